"""A cluster and a Spark driver in memory, which stop wherever a test wants them to.

The code under test is the real protocol; the journal's partition and the coordinator are models of
what Kafka promises. A run is one actor. Everything that it does to the cluster counts as one step
of its own, and a test says what happens at which: the process is killed there, or stands still
until somebody lets it go on, or sees a failure although (or before) the cluster did as asked.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from headrace.errors import HeadraceError
from headrace.spark.sink.decisions import (
    Claim,
    Decision,
    Fenced,
    History,
    Slot,
    Writer,
    claim_of,
)
from headrace.spark.sink.protocol import (
    LostRows,
    Place,
    Sink,
    abort_batch,
    commit_batch,
    find_stopped,
    open_place,
)

P = ParamSpec("P")
T = TypeVar("T")

SINK = "query"
LABEL = "label"
JOURNAL_PRODUCER_ID = 1
Layout = Sequence[Sequence[str]]
"""The rows of each Spark partition."""


class Killed(BaseException):
    """The process is gone."""


class Unreachable(HeadraceError):
    """No answer came."""


@dataclass
class Fate:
    """What happens to an actor at one of its steps."""

    step: int = -1
    kind: str = "none"
    """killed, paused, unanswered (done, but the answer is lost), unreachable (not done)"""


@dataclass
class Transaction:
    """One transactional id at its coordinator."""

    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    is_fenced: bool = False
    rows: list[str] = field(default_factory=list)


class Cluster:
    """The journal's partition and the transactions of a sink."""

    def __init__(self) -> None:
        self.log: list[Claim | Decision] = []
        self.journal_epoch = -1
        self.transactions: dict[str, Transaction] = {}
        self.seen: Counter[str] = Counter()
        self.stopped_ns = -1
        """The last stop in the journal's partition."""
        self.next_batch = 0
        """Where Spark's checkpoint says that the query goes on."""

    def history(self) -> History:
        history = History()
        for record in _compacted(self.log):
            history.apply(record)
        return history

    def append(self, record: Claim | Decision) -> None:
        newest = max((each.token.producer_epoch for each in self.log), default=-1)
        epoch, sequence = record.token.producer_epoch, record.token.sequence
        if epoch < newest:
            raise Fenced("a newer epoch wrote to the partition")
        used = [each.token.sequence for each in self.log if each.token.producer_epoch == epoch]
        if sequence in used:
            return  # the partition knows the batch
        assert sequence == len(used), "the partition would miss a sequence number"
        self.log.append(record)

    def begin(self, name: str) -> tuple[int, int]:
        known = self.transactions.setdefault(name, Transaction(100 + len(self.transactions), -1))
        known.epoch += 1
        known.state, known.is_fenced, known.rows = "Empty", False, []
        return known.producer_id, known.epoch

    def write(self, name: str, slot: Slot, row: str) -> None:
        known = self.transactions[name]
        if known.epoch != slot.producer_epoch:
            raise Fenced(f"{name} has a newer epoch")
        known.state = "Ongoing"
        known.rows.append(row)

    def commit(self, name: str, epoch: int) -> bool:
        known = self.transactions[name]
        if known.state == "Complete" and known.epoch == epoch + 1:
            return True
        if known.state != "Ongoing" or known.epoch != epoch:
            return False
        self.seen.update(known.rows)
        known.epoch, known.state, known.rows = epoch + 1, "Complete", []
        return True

    def ended(self, slots: Mapping[str, Slot]) -> list[str]:
        known = self.transactions
        return [
            name
            for name, slot in slots.items()
            if known[name].state != "Ongoing" or known[name].epoch != slot.producer_epoch
        ]

    def sweep(self, prefixes: tuple[str, ...], kept: frozenset[str]) -> None:
        for name, known in self.transactions.items():
            could_write = known.state == "Ongoing" or (
                known.state == "Empty" and not known.is_fenced
            )
            if could_write and name.startswith(prefixes) and name not in kept:
                self.begin(name)
                known.is_fenced = True

    def open_ids(self) -> list[str]:
        return [name for name, known in self.transactions.items() if known.state == "Ongoing"]


class Actor:
    """One run of the query: its steps, and the ports through which it takes them."""

    def __init__(self, cluster: Cluster, run: str, fate: Fate, made_ns: int = 0) -> None:
        self.cluster = cluster
        self.sink = Sink(SINK, run, Writer(LABEL, made_ns))
        self.stopped_ns = -1
        self.steps = 0
        self.fate = fate
        self.stands_still = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def take(self, effect: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Take one step, unless fate is against it."""
        await asyncio.sleep(0)
        step, self.steps = self.steps, self.steps + 1
        kind = self.fate.kind
        if kind == "killed" and step >= self.fate.step:
            raise Killed
        if kind == "paused" and step >= self.fate.step:
            self.stands_still.set()
            await self.goes_on.wait()
        if kind == "unreachable" and step == self.fate.step:
            raise Unreachable("nobody answers")
        result = effect(*arguments, **more)
        if kind == "unanswered" and step == self.fate.step:
            raise Unreachable("the answer was lost")
        return result

    # The journal

    async def read(self) -> History:
        history, self.stopped_ns = await self.take(self._read)
        return history

    def _read(self) -> tuple[History, int]:
        return self.cluster.history(), self.cluster.stopped_ns

    def is_stopped(self, writer: Writer) -> bool:
        return writer.made_ns <= self.stopped_ns

    async def claim(self, run: str, writer: str = "", over: str = "") -> History:
        epoch = await self.take(self._next_epoch)
        history = await self.read()
        if over and history.claim is not None and history.claim.run != over:
            return history
        try:
            claim = claim_of(history, run, JOURNAL_PRODUCER_ID, epoch, writer)
            await self.take(self.cluster.append, claim)
        except Fenced:
            pass  # somebody claimed meanwhile: whoever asked looks again
        return await self.read()

    def _next_epoch(self) -> int:
        self.cluster.journal_epoch += 1
        return self.cluster.journal_epoch

    async def append(self, record: Claim | Decision) -> None:
        await self.take(self.cluster.append, record)

    # The transactions

    async def begin(self, transactional_id: str) -> tuple[int, int]:
        return await self.take(self.cluster.begin, transactional_id)

    async def commit(self, slots: Mapping[str, Slot]) -> list[bool]:
        return await asyncio.gather(
            *(
                self.take(self.cluster.commit, transactional_id, slot.producer_epoch)
                for transactional_id, slot in slots.items()
            )
        )

    async def ended(self, slots: Mapping[str, Slot]) -> list[str]:
        return await self.take(self.cluster.ended, slots)

    async def sweep(self, prefixes: tuple[str, ...], kept: frozenset[str] = frozenset()) -> None:
        await self.take(self.cluster.sweep, prefixes, kept)

    # What a driver knows that stops a query

    async def stop(self, writer: Writer) -> None:
        await self.take(self._note_stop, writer)

    def _note_stop(self, writer: Writer) -> None:
        self.cluster.stopped_ns = max(self.cluster.stopped_ns, writer.made_ns)

    async def sinks_of(self, label: str) -> list[Sink]:
        claim = (await self.read()).claim
        is_found = claim is not None and claim.writer == label
        return [Sink(SINK, claim.run)] if claim is not None and is_found else []

    async def stop_query(self, batch: int) -> None:
        """Do what Spark has the driver do when a query is stopped and no task is done."""
        sink = await find_stopped(self, self.sink.writer)
        if sink is not None:
            await abort_batch(self, self, sink, batch)

    # What Spark does

    async def run_batch(self, batch: int, layout: Layout) -> list[LostRows]:
        """Run a micro-batch as Spark does: tasks, then commit, or abort if something fails."""
        try:
            tasks = [self.write(batch, (index, 0), rows) for index, rows in enumerate(layout)]
            slots = await asyncio.gather(*tasks)
            done = tuple(slot for slot in slots if slot is not None)
            lost = await commit_batch(self, self, self.sink, batch, done)
        except HeadraceError:
            await abort_batch(self, self, self.sink, batch)
            raise
        await self.take(self._note_in_checkpoint, batch)
        return lost

    def _note_in_checkpoint(self, batch: int) -> None:
        self.cluster.next_batch = max(self.cluster.next_batch, batch + 1)

    async def write(self, batch: int, place: tuple[int, int], rows: Sequence[str]) -> Slot | None:
        if not rows:
            return None
        slot = await open_place(self, self, Place(self.sink, batch, *place))
        if slot is None:
            return None
        name = self.sink.transactional_id(*place)
        for row in rows:
            await self.take(self.cluster.write, name, slot, row)
        return slot


def _compacted(log: Sequence[Claim | Decision]) -> list[Claim | Decision]:
    """Keep the last record of each kind: what a reader may find of the log at the least."""
    last = {type(record): index for index, record in enumerate(log)}
    return [log[index] for index in sorted(last.values())]
