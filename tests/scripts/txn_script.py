"""Transactions in words: every command gives lines that say all that came of it.

The coordinator, its shard and who writes markers are the product's; the log is on a simulated
disk, time stands still but for `wait`, and partitions do as the script says. Producers are called
by name; all have transactional id `t` unless they say otherwise. A producer speaks version 2 of
transactions (KIP-890), with `v1` the one before. `epoch=` and `id=` say something else than what
the producer has.

    settings transaction.version=1 name=value ...   before everything else
    init a [of=t] [timeout=60000] [named]           `named` says what it has (KIP-360)
    add a orders-0 stock-1 [v1]       verify a orders-0       both at once: join commands with `&`
    commit a [v1] [epoch=0] [id=1]    abort a ...             exhaust a    give it the last epoch
    refuse orders-0 NOT_LEADER_OR_FOLLOWER                    what its next markers are answered
    hold orders-0                     leave them unanswered
    accept orders-0                   from now on, and what is held
    stall / flow                      nothing is replicated, and so nothing answered / it is
    readonly / writable               the coordinator's own log
    wait 3000     move                another node coordinates, with what was replicated
    status
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from msgspec.structs import replace

from headrace.config import load_settings
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord, read_record_batch
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_PRODUCER_ID, TRANSACTIONS_TOPIC, BrokerId, TopicId
from headrace.log.cutting import truncate
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Appended
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.loop.clock import Clock
from headrace.metadata.features import TRANSACTION_VERSION
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic
from headrace.records.header import read_headers
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import VirtualLoop
from headrace.txn import ending, initialization
from headrace.txn.coordinator import transaction_coordinator
from headrace.txn.ending import end, end_bumping
from headrace.txn.initialization import init_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.marker_sending import MarkerSender, OnWritten
from headrace.txn.markers import Marker
from headrace.txn.partitions import add_partitions, verify_partitions
from headrace.txn.records import RECORD_TYPES, to_record, to_transaction
from headrace.txn.state import EPOCH_MAX, NOT_STARTED_MS, Place, Producer, Transaction
from headrace.wire.messages.transaction_log_key import TransactionLogKey
from headrace.wire.messages.transaction_log_value import TransactionLogValue

TURNS: Final = 30
"""More turns of the loop than anything takes that waits for no time."""
BROKER: Final = BrokerId(1)


@contextmanager
def scripted_transactions() -> Iterator["ScriptedTransactions"]:
    """Give the world of one script; its loop is closed at the end."""
    loop = VirtualLoop()
    try:
        yield ScriptedTransactions(loop)
    finally:
        loop.close()


class ScriptedTransactions:
    """The world of one script: one coordinator, and producers by name."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.lines: list[str] = []
        self._loop = loop
        self._producers: dict[str, Producer] = {}
        self._next_id = 0
        self._is_begun = False
        self._settings: dict[str, str] = {}
        self._image = Image()
        self._image.state.features[TRANSACTION_VERSION] = 2
        partition = Partition((BROKER,), (BROKER,), BROKER, 1)
        self._image.add_topic(Topic(TRANSACTIONS_TOPIC, TopicId(b"t" * 16), [partition]))
        self._journal = Journal()
        self._partitions = Partitions(self.say)

    def run(self, command: str) -> list[str]:
        self.lines = []
        self._loop.run_until_complete(self._run(command))
        return self.lines

    async def _run(self, line: str) -> None:
        commands = [each.split() for each in line.split("&")]
        if not self._is_begun and commands[0][0] != "settings":
            await self._begin()
        for name, *words in commands:
            if (waited := getattr(self, "do_" + name)(*words)) is not None:
                await waited
        await self._settle()

    async def _begin(self) -> None:
        self._is_begun = True
        self._coordinator = transaction_coordinator(
            load_settings(overrides=self._settings),
            lambda: self._image,
            cast(Clock, self),
            cast(MarkerSender, self._partitions),
        )
        self._coordinator.lead(0, self._journal)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
            self._say_written()

    def now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def say(self, line: str) -> None:
        self._say_written()  # whatever is said came after it
        self.lines.append(line)

    def _say_written(self) -> None:
        self.lines += map(describe_record, self._journal.take_written())

    @property
    def _shard(self) -> Shard[TransactionsMachine]:
        return self._coordinator.shard("t")

    # What producers ask for

    def do_settings(self, *words: str) -> None:
        self._settings = dict(word.split("=") for word in words)
        level = self._settings.pop(TRANSACTION_VERSION, "2")
        self._image.state.features[TRANSACTION_VERSION] = int(level)

    def do_init(self, name: str, *words: str) -> None:
        options = dict(word.split("=") for word in words if "=" in word)
        former = self._producers.get(name)
        transactional_id = options.get("of", former.transactional_id if former else "t")
        asked = Producer(transactional_id)
        if "named" in words and former is not None:
            asked = _changed(former, options)
        state = self._shard.machine.state
        new_id = self._new_id(initialization.needs_producer_id(state, transactional_id))
        timeout_ms = int(options.get("timeout", 60_000))

        def take(answer: Any) -> str:
            self._producers[name] = Producer(transactional_id, *answer)
            return _given(answer)

        self._ask(
            name,
            take,
            lambda *rest: init_producer_id(rest[0], asked, timeout_ms, new_id, *rest[1:]),
        )

    def do_add(self, name: str, *words: str) -> None:
        producer, version = self._speaker(name, words)
        places = _places(words)
        self._ask(
            name,
            lambda _: "added",
            lambda state, *rest: add_partitions(state, producer, places, version, *rest),
        )

    def do_verify(self, name: str, *words: str) -> None:
        producer, _ = self._speaker(name, words)
        places = _places(words)
        self._ask(
            name,
            lambda codes: " ".join(f"{_text(each)}:{code.name}" for each, code in codes.items()),
            lambda state, _, reply: verify_partitions(state, producer, places, reply),
        )

    def do_commit(self, name: str, *words: str) -> None:
        self._end(name, words, is_commit=True)

    def do_abort(self, name: str, *words: str) -> None:
        self._end(name, words, is_commit=False)

    def _end(self, name: str, words: tuple[str, ...], *, is_commit: bool) -> None:
        producer, version = self._speaker(name, words)
        if version == 0:
            self._ask(
                name,
                lambda _: "decided",
                lambda state, *rest: end(state, producer, is_commit, *rest),
            )
            return
        state = self._shard.machine.state
        new_id = self._new_id(ending.needs_producer_id(state, producer.transactional_id))

        def take(answer: Any) -> str:
            self._producers[name] = Producer(producer.transactional_id, *answer)
            return f"decided, goes on as {_given(answer)}"

        self._ask(
            name,
            take,
            lambda state, *rest: end_bumping(state, producer, is_commit, new_id, *rest),
        )

    def do_exhaust(self, name: str) -> None:
        """Leave a producer one epoch, as if others had taken over again and again."""
        producer = self._producers[name]

        def exhaust(machine: TransactionsMachine, now_ms: int) -> Outcome:
            found = machine.state.find_own(producer)
            last = replace(found, producer_epoch=EPOCH_MAX - 1)
            return Outcome((to_record(last, machine.state.version_of()),))

        self._shard.write(exhaust, print)
        self._producers[name] = producer._replace(producer_epoch=EPOCH_MAX - 1)

    def _ask(
        self, name: str, describe: Callable[[Any], str], operation: Callable[..., Outcome]
    ) -> None:
        def reply(answer: Any) -> None:
            text = answer.code.name if isinstance(answer, KafkaError) else describe(answer)
            self.say(f"{name}: {text}")

        self._shard.write(lambda machine, now_ms: operation(machine.state, now_ms, reply), reply)

    def _speaker(self, name: str, words: tuple[str, ...]) -> tuple[Producer, int]:
        options = dict(word.split("=") for word in words if "=" in word)
        return _changed(self._producers[name], options), 0 if "v1" in words else 2

    def _new_id(self, is_needed: bool) -> int:
        if not is_needed:
            return NO_PRODUCER_ID
        self._next_id += 1
        return self._next_id

    # What happens to the coordinator

    def do_refuse(self, place: str, code: str) -> None:
        self._partitions.refusals[_place(place)] = ErrorCode[code]

    def do_hold(self, place: str) -> None:
        self._partitions.held[_place(place)] = []

    def do_accept(self, place: str) -> None:
        self._partitions.accept(_place(place))

    def do_stall(self) -> None:
        self._journal.is_stalled = True

    def do_flow(self) -> None:
        self._journal.is_stalled = False
        self._journal.replicate()

    def do_readonly(self) -> None:
        self._journal.failure = ReadOnlyLog("t", "its disk is full")

    def do_writable(self) -> None:
        self._journal.failure = None

    async def do_wait(self, duration_ms: str) -> None:
        await asyncio.sleep(int(duration_ms) / 1000)

    def do_move(self) -> None:
        self._say_written()
        self._coordinator.resign(0)
        lost = self._journal.fail_over()
        self.say(f"moved{f', {lost} records are lost' if lost else ''}")
        self._coordinator.lead(0, self._journal)

    def do_status(self) -> None:
        transactions = self._shard.machine.state.transactions
        for each in transactions.values():
            self.say(f"{each.transactional_id}: {describe(each)}")
        if not transactions:
            self.say("nobody has a transactional id")


class Partitions:
    """The partitions that get markers, and what they say to them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.refusals: dict[Place, ErrorCode] = {}
        self.held: dict[Place, list[Reply[None]]] = {}
        self._say = say

    def send(
        self,
        marker: Marker,
        places: Iterable[Place],
        is_wanted: Callable[[], bool],
        on_written: OnWritten,
    ) -> None:
        for place in places:
            self._write(place, marker, partial(on_written, place))

    def _write(self, place: Place, marker: Marker, on_written: Reply[None]) -> None:
        code = self.refusals.get(place)
        what = "commit" if marker.is_commit else "abort"
        fate = "held" if place in self.held else code.name if code else "written"
        self._say(
            f"marker {what} producer={marker.producer_id} epoch={marker.producer_epoch} "
            f"coordinator={marker.coordinator_epoch} to {_text(place)}: {fate}"
        )
        if place in self.held:
            self.held[place].append(on_written)
        else:
            on_written(KafkaError(code, "as the script says") if code else None)

    def accept(self, place: Place) -> None:
        self.refusals.pop(place, None)
        for on_written in self.held.pop(place, ()):
            on_written(None)

    def leader_epoch(self, topic: str, index: int) -> int:
        return 0


class Journal:
    """The partition of `__transaction_state`, replicated at once unless it is stalled."""

    def __init__(self) -> None:
        self.log = open_log(SimulatedDisk(1), "journal-0", LogSettings(), is_clean=True)
        self.name = "journal"
        self.produce_waiters: dict[Any, int | None] = {}
        self.is_leader = True
        self.leader_epoch = 0
        self.has_enough_replicas = True
        self.failure: KafkaError | None = None
        self.is_stalled = False
        self._written: list[CoordinatorRecord] = []

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        if self.failure is not None:
            raise self.failure
        appended = self.log.append_own(batch, leader_epoch=0)
        ((_, header),) = read_headers(batch)
        self._written += read_record_batch(batch, header, RECORD_TYPES)
        if not self.is_stalled:
            asyncio.get_running_loop().call_soon(self.replicate)
        return appended

    def take_written(self) -> list[CoordinatorRecord]:
        written, self._written = self._written, []
        return written

    def replicate(self) -> None:
        if not self.is_stalled:
            self.log.advance_high_watermark(self.log.end_offset)
            for waiter in tuple(self.produce_waiters):
                waiter.on_progress()

    def fail_over(self) -> int:
        """Have a leader that has what was replicated; give how many records it does not have."""
        lost = self.log.end_offset - self.log.high_watermark
        truncate(self.log, self.log.high_watermark)
        self.is_stalled = False
        return lost


def _changed(producer: Producer, options: dict[str, str]) -> Producer:
    return Producer(
        options.get("of", producer.transactional_id),
        int(options.get("id", producer.producer_id)),
        int(options.get("epoch", producer.producer_epoch)),
    )


def _place(text: str) -> Place:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _places(words: tuple[str, ...]) -> list[Place]:
    return [_place(word) for word in words if "-" in word]


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _given(answer: Any) -> str:
    return f"producer={answer[0]} epoch={answer[1]}"


def describe_record(record: CoordinatorRecord) -> str:
    key, value = record.key, record.value
    assert isinstance(key, TransactionLogKey)
    if value is None:
        return f"wrote {key.transactional_id}: gone"
    assert isinstance(value, TransactionLogValue)
    transaction = to_transaction(key.transactional_id, value)
    return f"wrote {key.transactional_id}: {describe(transaction)}"


def describe(transaction: Transaction) -> str:
    words = [
        f"{transaction.status.label} producer={transaction.producer_id} "
        f"epoch={transaction.producer_epoch} version={transaction.client_version}"
    ]
    if transaction.partitions:
        words.append(f"partitions=({' '.join(map(_text, transaction.partitions))})")
    if transaction.started_ms != NOT_STARTED_MS:
        words.append(f"since={transaction.started_ms}")
    if transaction.next_producer_id != NO_PRODUCER_ID:
        words.append(f"next={transaction.next_producer_id}")
    if transaction.previous_producer_id not in (NO_PRODUCER_ID, transaction.producer_id):
        words.append(f"previous={transaction.previous_producer_id}")
    return " ".join(words)
