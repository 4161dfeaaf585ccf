"""A small machine, a partition and a clock to try a shard with."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from headrace.coordinator.machine import OnError, Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Appended, Log
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.schema import Message

TYPES = {OffsetCommitKey.API_KEY: (OffsetCommitKey, OffsetCommitValue)}
VERSION = 4


class Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Offsets:
    """A small machine: the last offset of each topic, and who waits for one."""

    def __init__(self) -> None:
        self.committed: dict[str, int] = {}
        self.open: dict[int, dict[str, int]] = {}
        self.deadline_ms: int | None = None
        self.expired = 0
        self.unmet = 0
        self.kept: list[OnError] = []
        self.was_loaded = False

    def replay(self, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        place = self.committed
        if record.producer_id >= 0:
            place = self.open.setdefault(record.producer_id, {})
        place[record.key.topic] = record.value.offset

    def id_of(self, key: Message) -> str | None:
        assert isinstance(key, OffsetCommitKey)
        return key.group

    def set_aside(self, id_: str) -> None:
        """Begin nothing."""

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        written = self.open.pop(producer_id, {})
        if is_commit:
            self.committed.update(written)

    def on_loaded(self, now_ms: int) -> Outcome:
        self.was_loaded = True
        return Outcome()

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_deadline(self, now_ms: int) -> Outcome:
        self.deadline_ms = None
        self.expired += 1
        return Outcome()

    def on_deadline_unmet(self, now_ms: int) -> None:
        self.unmet += 1

    def waiting(self) -> Iterable[OnError]:
        return self.kept


class Journal:
    """A partition whose followers are as fast as the test wants."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.name = "journal"
        self.produce_waiters: dict[Any, int | None] = {}
        self.is_replicated = True
        self.is_leader = True
        self.leader_epoch = 0
        self.has_enough_replicas = True
        self.failure: KafkaError | None = None
        self._next_failure: KafkaError | None = None

    def fail_next(self, failure: KafkaError) -> None:
        """Refuse one append."""
        self._next_failure = failure

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        if self.failure is not None:
            raise self.failure
        if self._next_failure is not None:
            failure, self._next_failure = self._next_failure, None
            raise failure
        if not self.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")
        appended = self.log.append_own(batch, leader_epoch=self.leader_epoch)
        if self.is_replicated:
            self.log.advance_high_watermark(self.log.end_offset)
        return appended

    def replicate(self) -> None:
        self.log.advance_high_watermark(self.log.end_offset)
        self.tell()

    def lose_leadership(self) -> None:
        """Have another node lead, before anybody is told."""
        self.is_leader = False
        self.leader_epoch += 1

    def tell(self) -> None:
        """Tell whoever waits that something changed."""
        for waiter in tuple(self.produce_waiters):
            waiter.on_progress()


def commit(topic: str, offset: int, reply: Reply[Any]) -> Callable[[Any, int], Outcome]:
    record = CoordinatorRecord(
        OffsetCommitKey(group="g", topic=topic), OffsetCommitValue(offset=offset), VERSION
    )
    return lambda machine, now_ms: Outcome((record,), (told(reply, offset),))


async def turn() -> None:
    """Let what was begun within this turn of the loop be done."""
    for _ in range(3):
        await asyncio.sleep(0)


async def settle(shard: Shard[Offsets]) -> None:
    await shard.loaded()
    await turn()


def run(test: Callable[[Journal, Clock], Awaitable[None]]) -> None:
    asyncio.run(test(Journal(new_log()), Clock()))  # type: ignore[arg-type]


def new_log() -> Log:
    return open_log(SimulatedDisk(1), "journal-0", LogSettings(), is_clean=True)


def new_shard(journal: Journal, clock: Clock) -> Shard[Offsets]:
    shard = Shard(journal, Offsets, TYPES, clock)
    shard.start()
    return shard
