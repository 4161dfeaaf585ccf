"""What tasks and the driver do with the journal and the transactions of a sink, step by step.

A task opens its place with `open_place`, writes under the transaction that it gets, and hands the
slot to the driver, with the transaction still open. The driver then calls `commit_batch` or
`abort_batch`. Everything may stop after any step; `decisions` says why that is well.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from headrace.errors import HeadraceError
from headrace.spark.sink.decisions import (
    Claim,
    Decision,
    Fenced,
    History,
    Slot,
    TaskStep,
    Writer,
    decision_of,
    ending_of,
    is_over,
    is_to_be_decided,
    may_abort,
    task_step,
)

ID_PREFIX: Final = "headrace-spark"
TIMEOUT_NAME: Final = "kafka.transaction.timeout.ms"
NAMED_MAX: Final = 3
"""How many transactions a message names."""


class TimedOut(HeadraceError):
    """The cluster aborted transactions of a batch before it was decided."""


class Sink(msgspec.Struct, frozen=True):
    """The writer: a query or a batch write, and its run."""

    name: str
    run: str
    writer: Writer = Writer()

    @property
    def prefix(self) -> str:
        """How the transactional ids of this run begin."""
        return self.prefix_of(self.run)

    def prefix_of(self, run: str) -> str:
        """How the transactional ids of a run begin."""
        return f"{ID_PREFIX}-{self.name}-{run}-"

    def transactional_id(self, partition: int, attempt: int, run: str | None = None) -> str:
        """Name the transactions of an attempt at a partition; batches of a run share it."""
        return f"{self.prefix_of(run or self.run)}{partition}-{attempt}"

    def ids_of(self, decision: Decision | None) -> list[str]:
        """Name the transactions of a decided batch."""
        if decision is None:
            return []
        return [
            self.transactional_id(slot.partition, slot.attempt, decision.run)
            for slot in decision.slots
        ]


class Place(msgspec.Struct, frozen=True):
    """What a task writes for: a batch of a sink, a Spark partition, and the attempt at it."""

    sink: Sink
    batch: int
    partition: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        return self.sink.transactional_id(self.partition, self.attempt)


class Journal(Protocol):
    """The records of one sink in the cluster."""

    async def read(self) -> History:
        """Return everything that was written before the call."""

    async def claim(self, run: str, writer: str = "", over: str = "") -> History:
        """Write a claim, unless a newer one comes in between; return everything up to it.

        With `over`, only if that run, or none, holds the sink.
        """

    async def append(self, record: Claim | Decision) -> None:
        """Write a record; Fenced if a newer claim than its token's is there."""

    def is_stopped(self, writer: Writer) -> bool:
        """Return whether the driver has written down that a writer is over, as far as was read."""


class Stops(Protocol):
    """What a driver knows of a query that it stops: its writers, not its name."""

    async def stop(self, writer: Writer) -> None:
        """Write into every journal that writers of the query made before this one are over."""

    async def sinks_of(self, label: str) -> list[Sink]:
        """Return the sinks that a writer with this label holds the claim of."""


class Transactions(Protocol):
    """The transactions of one cluster, by transactional id."""

    async def begin(self, transactional_id: str) -> tuple[int, int]:
        """Fence the id's previous producer, abort what it left, return producer id and epoch."""

    async def commit(self, slots: Mapping[str, Slot]) -> list[bool]:
        """Commit transactions, maybe again; return False for each that was aborted meanwhile."""

    async def ended(self, slots: Mapping[str, Slot]) -> list[str]:
        """Return those of these transactions that are no longer open."""

    async def sweep(self, prefixes: tuple[str, ...], kept: frozenset[str] = frozenset()) -> None:
        """Shut out every producer whose id begins so, and abort what it left open."""


class LostRows(msgspec.Struct, frozen=True):
    """Transactions of a decided batch that the cluster aborted before they were ended."""

    batch: int
    transactional_ids: tuple[str, ...]
    total: int


async def open_place(journal: Journal, transactions: Transactions, place: Place) -> Slot | None:
    """Return the slot under which a task may write; None if it is not to write."""
    sink = place.sink
    # The producer id comes first, see `decisions`.
    producer_id, producer_epoch = await transactions.begin(place.transactional_id)
    history, step = await _claimed(journal, transactions, sink, place.batch)
    if step is TaskStep.SKIP:
        return None
    assert history.claim is not None, "who may write has claimed"
    claim_epoch = history.claim.token.producer_epoch
    return Slot(place.partition, place.attempt, producer_id, producer_epoch, claim_epoch)


async def commit_batch(
    journal: Journal,
    transactions: Transactions,
    sink: Sink,
    batch: int,
    slots: tuple[Slot, ...],
) -> list[LostRows]:
    """Make a batch seen, all of it; return what the cluster had aborted before it could be.

    Of a batch that was decided before, only what is left of the ending is done. Fenced if another
    run has taken over. A batch without rows is decided like any other.
    """
    if slots:
        history = await journal.read()
    else:  # no task may have claimed, as none had rows
        history, _ = await _claimed(journal, transactions, sink, batch)
    is_new = is_to_be_decided(history, sink.run, batch, slots)
    lost = await _finish(journal, transactions, sink, history)
    if is_new:
        decision = decision_of(history, batch, slots)
        await _check_open(transactions, sink.ids_of(decision), decision)
        await journal.append(decision)
        history.apply(decision)
        lost += await _finish(journal, transactions, sink, history)
    return lost


async def abort_batch(journal: Journal, transactions: Transactions, sink: Sink, batch: int) -> bool:
    """Abort what tasks of this run wrote for a batch, and shut out those that still write.

    False if the batch is decided after all; then what is left of its ending is done.
    """
    history = await journal.read()
    aborter = f"{sink.run} aborted"
    if history.claim is None or history.claim.run == sink.run:
        # Whatever decision is still on its way is refused from here on.
        history = await journal.claim(aborter, over=sink.run)
    elif not is_over(history, sink.run):
        return True  # the run never wrote: it claims first
    is_decided = not may_abort(history, sink.run, batch)
    if history.unended is not None and history.claim is not None and history.claim.run == aborter:
        with contextlib.suppress(Fenced):  # a newer run does the rest
            await _finish(journal, transactions, sink, history)
    else:
        await transactions.sweep((sink.prefix,), frozenset(sink.ids_of(history.unended)))
    return not is_decided


async def find_stopped(stops: Stops, writer: Writer) -> Sink | None:
    """Return the sink of a query that the driver stops, if no task reported its name.

    None if no run has claimed it; then none of its tasks writes from here on.
    """
    await stops.stop(writer)
    return next(iter(await stops.sinks_of(writer.label)), None)


async def commit_all(transactions: Transactions, sink: Sink, decision: Decision) -> list[bool]:
    """Commit what a decided batch is in; return of each slot whether it can be seen."""
    return await transactions.commit(dict(zip(sink.ids_of(decision), decision.slots, strict=True)))


def lost_rows(sink: Sink, decision: Decision, outcomes: Sequence[bool]) -> list[LostRows]:
    """Return what is missing of a decided batch, by what became of its slots."""
    ids = sink.ids_of(decision)
    aborted = tuple(name for name, is_seen in zip(ids, outcomes, strict=True) if not is_seen)
    return [LostRows(decision.batch, aborted, len(ids))] if aborted else []


async def _check_open(transactions: Transactions, ids: list[str], decision: Decision) -> None:
    """Fail while nothing is decided, rather than find out that a part of the batch is gone."""
    if ended := await transactions.ended(dict(zip(ids, decision.slots, strict=True))):
        names = ", ".join(ended[:NAMED_MAX])
        raise TimedOut(
            f"batch {decision.batch}: {len(ended)} of its {len(ids)} transactions were ended "
            f"before all tasks were done ({names}), and nothing of the batch will be seen. If it "
            f"takes longer than {TIMEOUT_NAME}, raise that, and the brokers' "
            "transaction.max.timeout.ms, or write less at once; if Spark lost an executor and ran "
            "tasks that were done again, start it again"
        )


async def _claimed(
    journal: Journal, transactions: Transactions, sink: Sink, batch: int
) -> tuple[History, TaskStep]:
    """Read the journal, claim if that is to do, and return what a task does now."""
    history = await journal.read()
    while True:
        if journal.is_stopped(sink.writer):
            raise Fenced(f"Spark stopped run {sink.run} before this task began to write")
        step = task_step(history, sink.run, batch)
        if step is not TaskStep.CLAIM:
            return history, step
        history = await journal.claim(sink.run, sink.writer.label)
        over = tuple(sink.prefix_of(run) for run in history.past if run != sink.run)
        await transactions.sweep(over, frozenset(sink.ids_of(history.unended)))


async def _finish(
    journal: Journal, transactions: Transactions, sink: Sink, history: History
) -> list[LostRows]:
    """End the transactions of the last decision if that is left to do, and note it."""
    decision = history.unended
    if decision is None:
        return []
    ids = sink.ids_of(decision)
    outcomes = await commit_all(transactions, sink, decision)
    await transactions.sweep((sink.prefix,), frozenset(ids))
    ending = ending_of(history)
    await journal.append(ending)
    history.apply(ending)
    return lost_rows(sink, decision, outcomes)
