"""One partition of an internal topic: load, write, commit, roll back, unload."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.coordinator.replies import REPLIES_AT_ONCE
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode
from headrace.log.errors import ReadOnlyLog
from headrace.log.settings import LogSettings
from headrace.records.compression import Compression
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import read_headers
from tests.unit.coordinator.shards import (
    TYPES,
    Clock,
    Journal,
    Offsets,
    commit,
    new_shard,
    run,
    settle,
    turn,
)


def test_answers_come_when_the_records_are_committed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn()
        assert (answers, shard.machine.committed) == ([], {"a": 1})
        journal.replicate()
        assert answers == [1]

    run(test)


def test_very_many_answers_leave_turns_to_others_and_keep_their_order() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        total = 5 * REPLIES_AT_ONCE + 7
        answers: list[Any] = []
        for offset in range(total):
            shard.write(commit("a", offset, answers.append), answers.append)
        seen = [0]
        while len(answers) < total:
            await asyncio.sleep(0)
            seen.append(len(answers))
        assert answers == list(range(total))
        assert max(later - former for former, later in pairwise(seen)) <= REPLIES_AT_ONCE
        assert not journal.produce_waiters

    run(test)


def test_who_is_not_answered_yet_when_a_shard_closes_is_told() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        total = 2 * REPLIES_AT_ONCE
        answers: list[Any] = []
        for offset in range(total):
            shard.write(commit("a", offset, answers.append), answers.append)
        while not answers:
            await asyncio.sleep(0)
        shard.close()
        await turn()
        assert len(answers) == total
        assert answers[:REPLIES_AT_ONCE] == list(range(REPLIES_AT_ONCE))
        assert {each.code for each in answers[REPLIES_AT_ONCE:]} == {ErrorCode.NOT_COORDINATOR}

    run(test)


def test_operations_of_one_turn_are_one_batch() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        for offset in range(10):
            shard.write(commit("a", offset, answers.append), answers.append)
        await turn()
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
        await turn()
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
        await turn()
        assert [each.code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert (shard.machine.committed, journal.log.end_offset) == ({}, 0)

    run(test)


def test_loading_gives_the_state_that_was_written() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        for topic in ("a", "b", "a"):
            shard.write(commit(topic, journal.log.end_offset, print), print)
            await turn()
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
        await turn()
        journal.failure = ReadOnlyLog("journal", "the disk is full")
        shard.write(commit("a", 2, answers.append), answers.append)
        await turn()
        assert answers[0] == 1
        assert answers[1].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        journal.failure = None
        await settle(shard)
        assert shard.machine.committed == {"a": 1}
        shard.write(commit("a", 3, answers.append), answers.append)
        await turn()
        assert answers[2] == 3

    run(test)


def test_everybody_who_waits_is_told_when_the_partition_goes_elsewhere() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn()
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


def test_a_record_of_a_type_that_is_unknown_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        shard.write(commit("a", 1, print), print)
        await turn()
        stranger: Shard[Offsets] = Shard(journal, Offsets, {}, clock)
        stranger.start()
        await settle(stranger)
        assert (stranger.state, stranger.machine.committed) == (State.ACTIVE, {})

    run(test)
    assert "skipping the record at offset 0: type 1 is unknown" in caplog.text


def test_deadlines_are_kept_and_a_clock_that_moved_is_noticed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        shard.machine.deadline_ms = clock.ms + 1_000_000
        shard.write(lambda machine, now_ms: Outcome(), print)
        await turn()
        assert shard.machine.expired == 0
        clock.ms += 1_000_000
        shard.rearm()
        async with asyncio.timeout(10):
            while not shard.machine.expired:
                await asyncio.sleep(0)

    run(test)


def test_offsets_are_the_same_when_written_and_when_loaded() -> None:
    seen: list[int] = []

    class Places(Offsets):
        def replay(self, record: CoordinatorRecord) -> None:
            seen.append(record.offset)
            super().replay(record)

    async def test(journal: Journal, clock: Clock) -> None:
        shard: Shard[Offsets] = Shard(journal, Places, TYPES, clock)
        shard.start()
        await settle(shard)
        for offset in range(3):
            shard.write(commit("a", offset, print), print)
        await turn()
        shard.write(commit("b", 0, print), print)
        shard.write_transactional(commit("c", 0, print), print, producer_id=5, producer_epoch=0)
        marker = build_end_transaction_marker(
            clock.ms, is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0
        )
        shard.end_transaction(memoryview(marker), transaction_version=2)
        shard.write(commit("d", 0, print), print)
        await turn()
        written = seen.copy()
        assert written == [0, 1, 2, 3, 4, 6]  # the marker is 5
        seen.clear()
        again: Shard[Offsets] = Shard(journal, Places, TYPES, clock)
        again.start()
        await settle(again)
        assert seen == written

    run(test)


def test_records_are_kept_in_the_codec_that_is_asked_for_and_loaded_again() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = Shard(journal, Offsets, TYPES, clock, compression=Compression.ZSTD)
        shard.start()
        await settle(shard)
        answers: list[Any] = []
        for offset in range(50):
            shard.write(commit("a", offset, answers.append), answers.append)
        await turn()
        chunk = journal.log.read(0, 1_000_000, up_to=journal.log.end_offset)
        assert chunk is not None
        assert [header.compression for _, header in read_headers(chunk)] == [Compression.ZSTD]
        again = new_shard(journal, clock)
        await settle(again)
        assert again.machine.committed == {"a": 49}

    run(test)
