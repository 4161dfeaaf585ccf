"""One partition of an internal topic: load, write, commit, roll back, unload."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Appended, Log
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import read_headers
from headrace.testing.disk import SimulatedDisk
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue

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
        self.kept: list[Reply] = []
        self.was_loaded = False

    def replay(self, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        place = self.committed
        if record.producer_id >= 0:
            place = self.open.setdefault(record.producer_id, {})
        place[record.key.topic] = record.value.offset

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

    def waiting(self) -> Iterable[Reply]:
        return self.kept


class Journal:
    """A partition whose followers are as fast as the test wants."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.name = "journal"
        self.produce_waiters: set[Any] = set()
        self.is_replicated = True
        self.failure: KafkaError | None = None

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        if self.failure is not None:
            raise self.failure
        appended = self.log.append_own(batch, leader_epoch=0)
        if self.is_replicated:
            self.log.advance_high_watermark(self.log.end_offset)
        return appended

    def replicate(self) -> None:
        self.log.advance_high_watermark(self.log.end_offset)
        for waiter in tuple(self.produce_waiters):
            waiter.on_progress()


def commit(topic: str, offset: int, reply: Reply) -> Callable[[Any, int], Outcome]:
    record = CoordinatorRecord(
        OffsetCommitKey(group="g", topic=topic), OffsetCommitValue(offset=offset), VERSION
    )
    return lambda machine, now_ms: Outcome((record,), ((reply, offset),))


async def turn(shard: Shard[Offsets]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def settle(shard: Shard[Offsets]) -> None:
    await shard.loaded()
    await turn(shard)


def run(test: Callable[[Journal, Clock], Awaitable[None]]) -> None:
    log = open_log(SimulatedDisk(1), "journal-0", LogSettings(), is_clean=True)
    asyncio.run(test(Journal(log), Clock()))  # type: ignore[arg-type]


def new_shard(journal: Journal, clock: Clock) -> Shard[Offsets]:
    shard = Shard(journal, Offsets, TYPES, clock)
    shard.start()
    return shard


def test_answers_come_when_the_records_are_committed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn(shard)
        assert (answers, shard.machine.committed) == ([], {"a": 1})
        journal.replicate()
        assert answers == [1]

    run(test)


def test_operations_of_one_turn_are_one_batch() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        for offset in range(10):
            shard.write(commit("a", offset, answers.append), answers.append)
        await turn(shard)
        assert answers == list(range(10))
        chunk = journal.log.read(0, 1_000_000, up_to=journal.log.end_offset)
        assert chunk is not None
        assert [header.record_count for _, header in read_headers(chunk)] == [10]

    run(test)


def test_a_batch_is_never_larger_than_the_topic_takes_and_no_operation_is_torn() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        journal.log.change_settings(LogSettings.from_configs({"max.message.bytes": "500"}))
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        for offset in range(20):
            shard.write(commit("t" * 50, offset, answers.append), answers.append)
        await turn(shard)
        assert answers == list(range(20))
        chunk = journal.log.read(0, 1_000_000, up_to=journal.log.end_offset)
        assert chunk is not None
        sizes = [header.size_bytes for _, header in read_headers(chunk)]
        assert len(sizes) > 1
        assert max(sizes) <= 500

    run(test)


def test_what_does_not_fit_into_a_batch_is_refused_and_changes_nothing() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        journal.log.change_settings(LogSettings.from_configs({"max.message.bytes": "500"}))
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        shard.write(commit("t" * 1000, 1, answers.append), answers.append)
        await turn(shard)
        assert [each.code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert (shard.machine.committed, journal.log.end_offset) == ({}, 0)

    run(test)


def test_loading_gives_the_state_that_was_written() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        for topic in ("a", "b", "a"):
            shard.write(commit(topic, journal.log.end_offset, print), print)
            await turn(shard)
        again = new_shard(journal, clock)
        assert again.state is State.LOADING
        await settle(again)
        assert again.machine.committed == shard.machine.committed == {"a": 2, "b": 1}
        assert again.machine.was_loaded

    run(test)


@pytest.mark.parametrize("is_commit", [True, False])
def test_records_of_a_transaction_count_when_it_is_committed(is_commit: bool) -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        shard.write_transactional(
            commit("a", 7, answers.append), answers.append, producer_id=5, producer_epoch=0
        )
        assert (answers, shard.machine.committed) == ([1, 7], {"a": 1})
        marker = build_end_transaction_marker(
            clock.ms, is_commit=is_commit, producer_id=5, producer_epoch=0, coordinator_epoch=0
        )
        shard.end_transaction(memoryview(marker), transaction_version=2)
        expected = {"a": 7 if is_commit else 1}
        assert shard.machine.committed == expected
        again = new_shard(journal, clock)
        await settle(again)
        assert again.machine.committed == expected

    run(test)


def test_what_could_not_be_written_is_taken_back() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn(shard)
        journal.failure = ReadOnlyLog("journal", "the disk is full")
        shard.write(commit("a", 2, answers.append), answers.append)
        await turn(shard)
        assert answers[0] == 1
        assert answers[1].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        journal.failure = None
        await settle(shard)
        assert shard.machine.committed == {"a": 1}
        shard.write(commit("a", 3, answers.append), answers.append)
        await turn(shard)
        assert answers[2] == 3

    run(test)


def test_everybody_who_waits_is_told_when_the_partition_goes_elsewhere() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn(shard)
        shard.machine.kept.append(answers.append)
        shard.close()
        assert [each.code for each in answers] == [ErrorCode.NOT_COORDINATOR] * 2
        shard.write(commit("a", 2, answers.append), answers.append)
        assert answers[2].code is ErrorCode.NOT_COORDINATOR
        assert not journal.produce_waiters

    run(test)


def test_requests_are_told_to_come_back_while_it_loads() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        assert [each.code for each in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        await settle(shard)

    run(test)


def test_a_record_of_a_newer_software_stops_loading() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        shard.write(commit("a", 1, print), print)
        await turn(shard)
        stranger: Shard[Offsets] = Shard(journal, Offsets, {}, clock)
        stranger.start()
        await settle(stranger)
        assert stranger.state is State.FAILED
        answers: list[Any] = []
        stranger.write(commit("a", 1, answers.append), answers.append)
        assert answers[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_deadlines_are_kept_and_a_clock_that_moved_is_noticed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        shard.machine.deadline_ms = clock.ms + 1_000_000
        shard.write(lambda machine, now_ms: Outcome(), print)
        await turn(shard)
        assert shard.machine.expired == 0
        clock.ms += 1_000_000
        shard.rearm()
        async with asyncio.timeout(10):
            while not shard.machine.expired:
                await asyncio.sleep(0)

    run(test)
