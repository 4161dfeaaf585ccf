"""A shard whose writes are refused, whose machine fails, and whose callers come back at once."""

import asyncio
from functools import partial
from typing import Any

import pytest

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import ReadOnlyLog
from headrace.log.settings import LogSettings
from headrace.records.control import build_end_transaction_marker
from headrace.testing.virtual_loop import run_virtual
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from tests.unit.coordinator.shards import (
    TYPES,
    VERSION,
    Clock,
    Journal,
    Offsets,
    commit,
    new_log,
    new_shard,
    run,
    settle,
    turn,
)

FULL = ReadOnlyLog("journal", "the disk is full")


def marker(clock: Clock, *, is_commit: bool = True, producer_epoch: int = 0) -> memoryview:
    return memoryview(
        build_end_transaction_marker(
            clock.ms,
            is_commit=is_commit,
            producer_id=5,
            producer_epoch=producer_epoch,
            coordinator_epoch=0,
        )
    )


def commit_in_transaction(
    shard: Shard[Offsets], offset: int, answers: list[Any], *, producer_epoch: int = 0
) -> None:
    shard.write_transactional(
        commit("a", offset, answers.append),
        answers.append,
        producer_id=5,
        producer_epoch=producer_epoch,
    )


def test_callers_that_wait_for_a_sync_are_told_when_it_fails() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        journal.log.settings = LogSettings(flush_messages=1)
        journal.is_replicated = False  # the high watermark waits for the disk
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn()
        assert answers == []
        journal.log.fail(OSError(5, "the disk is broken"))
        for waiter in tuple(journal.produce_waiters):
            waiter.on_progress()
        await turn()
        (answer,) = answers
        assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "the disk is broken" in answer.message

    run(test)


def test_a_refused_batch_of_a_transaction_is_its_producers_matter_alone() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        waiting: list[Any] = []
        commit_in_transaction(shard, 1, answers, producer_epoch=3)
        machine = shard.machine
        machine.kept.append(waiting.append)
        commit_in_transaction(shard, 2, answers, producer_epoch=2)
        assert answers[0] == 1
        assert answers[1].code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert (shard.state, shard.machine, waiting) == (State.ACTIVE, machine, [])
        assert machine.open == {5: {"a": 1}}

    run(test)


def test_a_transactional_write_that_the_disk_refuses_changes_nothing() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        journal.failure = FULL
        commit_in_transaction(shard, 1, answers)
        assert answers[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (shard.state, shard.machine.open) == (State.ACTIVE, {})

    run(test)


@pytest.mark.parametrize("is_transactional", [True, False])
def test_transactional_requests_are_told_to_come_back_while_it_loads(
    is_transactional: bool,
) -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        answers: list[Any] = []
        if is_transactional:
            commit_in_transaction(shard, 1, answers)
            assert [each.code for each in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        else:
            with pytest.raises(KafkaError) as raised:
                shard.end_transaction(marker(clock), transaction_version=2)
            assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle(shard)
        assert journal.log.end_offset == 0

    run(test)


def test_a_marker_is_not_written_behind_records_that_were_lost() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        journal.fail_next(FULL)
        with pytest.raises(KafkaError) as raised:
            shard.end_transaction(marker(clock), transaction_version=2)
        assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert answers[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert journal.log.end_offset == 0
        await settle(shard)

    run(test)


def test_nobody_is_answered_twice_if_it_closes_while_it_begins_anew() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        waiting: list[Any] = []
        shard.machine.kept.append(waiting.append)
        journal.fail_next(FULL)
        shard.write(commit("a", 1, _ignore), _ignore)
        await asyncio.sleep(0)
        assert shard.state is State.LOADING
        shard.close()
        assert len(waiting) == 1

    run(test)


def test_who_comes_back_at_once_finds_nothing_of_what_was_lost() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        again: list[Any] = []

        def come_back(_: object) -> None:
            commit_in_transaction(shard, 7, again)

        shard.write(commit("a", 1, come_back), come_back)
        journal.fail_next(FULL)
        await turn()
        assert [each.code for each in again] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert journal.log.end_offset == 0
        await settle(shard)
        assert (shard.machine.committed, shard.machine.open) == ({}, {})

    run(test)


def test_what_an_answer_sets_off_is_not_drawn_into_a_transaction() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []

        def go_on(_: object) -> None:
            shard.write(commit("b", 2, answers.append), answers.append)

        shard.write(commit("a", 1, go_on), go_on)
        commit_in_transaction(shard, 7, answers)
        shard.end_transaction(marker(clock, is_commit=False), transaction_version=0)
        await turn()
        assert answers == [2, 7]
        again = new_shard(journal, clock)
        await settle(again)
        assert again.machine.committed == shard.machine.committed == {"a": 1, "b": 2}

    run(test)


def test_deadlines_go_on_after_one_that_could_not_be_met() -> None:
    class Late(Offsets):
        """Fails at its first deadline, and has another."""

        def on_deadline(self, now_ms: int) -> Outcome:
            self.expired += 1
            self.deadline_ms = now_ms + 1 if self.expired == 1 else None
            if self.expired == 1:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not this time")
            return Outcome()

    async def test(journal: Journal, clock: Clock) -> None:
        shard: Shard[Offsets] = Shard(journal, Late, TYPES, clock)
        shard.start()
        await settle(shard)
        shard.machine.deadline_ms = clock.ms
        shard.write(lambda machine, now_ms: Outcome(), _ignore)
        async with asyncio.timeout(10):
            while shard.machine.expired < 2:
                clock.ms += 1
                await asyncio.sleep(0.001)

    run(test)


def test_whatever_stops_loading_is_told_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object, **__: object) -> memoryview:
        raise OSError(5, "the disk fails")

    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        shard.write(commit("a", 1, _ignore), _ignore)
        await turn()
        monkeypatch.setattr(type(journal.log), "read_cold", fail)
        again = new_shard(journal, clock)
        async with asyncio.timeout(10):
            await again.loaded()
        assert again.state is State.FAILED
        answers: list[Any] = []
        again.write(commit("a", 1, answers.append), answers.append)
        assert answers[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test)


def test_a_machine_that_cannot_take_its_own_record_begins_anew_without_it() -> None:
    class Picky(Offsets):
        def replay(self, record: CoordinatorRecord) -> None:
            super().replay(record)
            if "b" in self.committed:
                raise KeyError("a bug")

    async def test(journal: Journal, clock: Clock) -> None:
        shard: Shard[Offsets] = Shard(journal, Picky, TYPES, clock)
        shard.start()
        await settle(shard)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        with pytest.raises(KeyError):
            shard.write(commit("b", 2, answers.append), answers.append)
        await settle(shard)
        assert (shard.state, shard.machine.committed) == (State.ACTIVE, {})
        assert [each.code for each in answers] == [ErrorCode.NOT_COORDINATOR]

    run(test)


def test_a_log_that_stays_read_only_is_not_loaded_over_and_over() -> None:
    class Overdue(Offsets):
        """Wants to write as soon as it is loaded."""

        def on_loaded(self, now_ms: int) -> Outcome:
            return commit("a", 1, _ignore)(self, now_ms)

    async def test() -> int:
        journal, loads = Journal(new_log()), 0

        def make() -> Overdue:
            nonlocal loads
            loads += 1
            return Overdue()

        journal.failure = FULL
        shard: Shard[Offsets] = Shard(journal, make, TYPES, Clock())
        shard.start()
        await asyncio.sleep(60)
        assert shard.machine.committed == {}
        journal.failure = None
        await asyncio.sleep(60)
        assert (shard.state, shard.machine.committed) == (State.ACTIVE, {"a": 1})
        return loads

    assert run_virtual(test()) < 60


def test_records_that_lost_their_leader_before_they_were_appended_are_nowhere() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        shard.close()
        await turn()
        assert [each.code for each in answers] == [ErrorCode.NOT_COORDINATOR]
        assert journal.log.end_offset == 0

    run(test)


def test_a_shard_that_closed_while_it_loads_stays_closed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await asyncio.sleep(0)
        shard.close()
        async with asyncio.timeout(10):
            await shard.loaded()
        await turn()
        assert shard.state is State.CLOSED

    run(test)


def _ignore(_: object) -> None:
    """Nobody waits."""


class Unencodable:
    """A caller whose answer cannot be sent, but the failure of it can."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __call__(self, answer: Any) -> None:
        if not isinstance(answer, KafkaError):
            raise ValueError("too long a text")
        self.told.append(answer)


def test_an_answer_that_cannot_be_sent_is_its_callers_failure_and_nobody_elses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = new_shard(journal, clock)
        await settle(shard)
        first, broken, last = list[Any](), Unencodable(), list[Any]()
        replies: list[Reply[Any]] = [first.append, broken, last.append]
        for offset, reply in enumerate(replies, 1):
            shard.write(commit("a", offset, reply), reply)
        await turn()
        assert (first, last) == ([1], [3])
        assert [each.code for each in broken.told] == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert shard.machine.committed == {"a": 3}

    run(test)
    assert "too long a text" in caplog.text


@pytest.mark.parametrize("count", [3, 1000])
def test_everybody_is_told_of_the_end_even_if_one_cannot_be(count: int) -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        journal.is_replicated = False
        shard = new_shard(journal, clock)
        await settle(shard)
        told: list[Any] = []

        def broken(answer: Any) -> None:
            raise ValueError("nothing can be sent")

        for number in range(count):
            reply = broken if number == 1 else told.append
            shard.write(commit("a", number, reply), reply)
        await turn()
        shard.close()
        async with asyncio.timeout(10):
            while len(told) < count - 1:
                await asyncio.sleep(0)
        assert {each.code for each in told} == {ErrorCode.NOT_COORDINATOR}

    run(test)


def test_a_deadline_that_cannot_be_met_does_not_keep_the_loop_busy() -> None:
    attempts: list[int] = []

    class Busy(Offsets):
        """Has work that is due at once, again and again, and cannot be done."""

        def next_deadline_ms(self) -> int | None:
            return 0

        def on_deadline(self, now_ms: int) -> Outcome:
            attempts.append(now_ms)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "too large")

    async def test() -> None:
        shard: Shard[Busy] = Shard(Journal(new_log()), Busy, TYPES, Clock())
        shard.start()
        await asyncio.sleep(60)
        shard.close()

    run_virtual(test())
    assert 10 < len(attempts) < 100


def tombstone_of(topic: str) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group="g", topic=topic), OffsetCommitValue(), VERSION)


def test_records_that_stand_for_themselves_are_written_in_as_many_batches_as_it_takes() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        journal.log.change_settings(LogSettings.from_configs({"max.message.bytes": "500"}))
        shard = new_shard(journal, clock)
        await settle(shard)
        records = tuple(tombstone_of(f"topic {number}") for number in range(100))
        answers: list[Any] = []
        shard.write(
            lambda machine, now_ms: Outcome(records, (told(answers.append, "done"),), True), print
        )
        await turn()
        assert answers == ["done"]
        assert len(shard.machine.committed) == journal.log.end_offset == 100

    run(test)


def test_nothing_is_noted_of_an_operation_that_cannot_be_written() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        journal.log.change_settings(LogSettings.from_configs({"max.message.bytes": "500"}))
        shard = new_shard(journal, clock)
        await settle(shard)
        noted: list[str] = []
        answers: list[Any] = []
        for topic in ("x" * 1000, "a"):
            outcome = Outcome((tombstone_of(topic),), notes=(partial(noted.append, topic),))
            shard.write(lambda machine, now_ms, outcome=outcome: outcome, answers.append)  # type: ignore[misc]
        assert [each.code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert noted == ["a"]

    run(test)


def test_a_record_that_no_batch_takes_does_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        journal.log.change_settings(LogSettings.from_configs({"max.message.bytes": "500"}))
        shard = new_shard(journal, clock)
        await settle(shard)
        records = (tombstone_of("a"), tombstone_of("x" * 1000), tombstone_of("b"))
        shard.write(lambda machine, now_ms: Outcome(records, is_divisible=True), print)
        await turn()
        assert set(shard.machine.committed) == {"a", "b"}
        answers: list[Any] = []
        shard.write(
            lambda machine, now_ms: Outcome(records, (told(answers.append, "done"),), True),
            answers.append,
        )
        await turn()
        assert [each.code for each in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]

    run(test)
    assert "dropped 1 records" in caplog.text


def test_a_machine_is_told_that_what_was_due_could_not_be_written() -> None:
    class Large(Offsets):
        def on_deadline(self, now_ms: int) -> Outcome:
            super().on_deadline(now_ms)
            return Outcome((tombstone_of("x" * 1000),))

    async def test(journal: Journal, clock: Clock) -> None:
        journal.log.change_settings(LogSettings.from_configs({"max.message.bytes": "500"}))
        shard: Shard[Offsets] = Shard(journal, Large, TYPES, clock)
        shard.start()
        await settle(shard)
        shard.machine.deadline_ms = clock.ms
        shard.rearm()
        async with asyncio.timeout(10):
            while not shard.machine.expired:
                await asyncio.sleep(0)
        assert shard.machine.unmet == 1

    run(test)
