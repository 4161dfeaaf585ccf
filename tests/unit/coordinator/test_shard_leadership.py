"""What a shard answers while the watermark stands, too few replicas follow, or another leads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import Outcome, effect, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.coordinator.replies import REPLIES_AT_ONCE
from headrace.coordinator.shard import WRITE_TIMEOUT_MS, Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.cutting import truncate
from headrace.records.control import build_end_transaction_marker
from headrace.testing.virtual_loop import run_virtual
from tests.unit.coordinator.shards import (
    TYPES,
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

TIMEOUT_SECONDS = WRITE_TIMEOUT_MS / 1000


def run_in_virtual_time(test: Callable[[Journal, Clock], Awaitable[None]]) -> None:
    run_virtual(test(Journal(new_log()), Clock()))  # type: ignore[arg-type]


def read(topic: str, reply: Any) -> Callable[[Any, int], Outcome]:
    """Return an operation that writes nothing."""
    return lambda machine, now_ms: Outcome(replies=(told(reply, machine.committed.get(topic)),))


def refuse(machine: Any, now_ms: int) -> Outcome:
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "there is none")


def codes(answers: list[Any]) -> list[Any]:
    return [each.code if isinstance(each, KafkaError) else each for each in answers]


async def loaded_shard(journal: Journal, clock: Clock) -> Shard[Offsets]:
    shard = new_shard(journal, clock)
    await settle(shard)
    return shard


# Somebody else's records


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_watermark_of_another_epoch_does_not_answer(leads_again: bool) -> None:
    """KAFKA-20634: other records came to stand at these offsets, and they are committed."""

    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn()
        end_offset = journal.log.end_offset
        journal.lose_leadership()
        truncate(journal.log, 0)
        other = Shard(Journal(new_log()), Offsets, TYPES, clock)
        other.start()
        await settle(other)
        other.write(commit("a", 2, print), print)
        await turn()
        chunk = other.journal.log.read(0, 1_000_000, up_to=end_offset)
        assert chunk is not None
        journal.log.append_replicated(chunk)
        journal.is_leader = leads_again
        journal.replicate()
        assert journal.log.high_watermark >= end_offset
        assert codes(answers) == [ErrorCode.NOT_COORDINATOR]
        assert not journal.produce_waiters

    run(test)


def test_many_replies_stop_when_the_leadership_goes_between_two_turns() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        answers: list[Any] = []
        for offset in range(2 * REPLIES_AT_ONCE):
            shard.write(commit("a", offset, answers.append), answers.append)
        while not answers:
            await asyncio.sleep(0)
        journal.lose_leadership()
        await turn()
        assert codes(answers[REPLIES_AT_ONCE:]) == [ErrorCode.NOT_COORDINATOR] * REPLIES_AT_ONCE

    run(test)


def test_nothing_is_appended_in_an_epoch_that_was_not_loaded() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        journal.leader_epoch += 1  # before the turn is over
        await turn()
        shard.write(commit("a", 2, answers.append), answers.append)
        shard.write_transactional(
            commit("a", 3, answers.append), answers.append, producer_id=5, producer_epoch=0
        )
        assert codes(answers) == [ErrorCode.NOT_COORDINATOR] * 3
        marker = build_end_transaction_marker(
            clock.ms, is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0
        )
        with pytest.raises(KafkaError) as refused:
            shard.end_transaction(memoryview(marker), transaction_version=2)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert journal.log.end_offset == 0

    run(test)


def test_a_load_stops_when_the_leadership_goes() -> None:
    """KAFKA-16030."""

    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        for offset in range(1000):
            shard.write(commit("a", offset, print), print)
        await turn()
        replayed: list[CoordinatorRecord] = []

        class Slow(Offsets):
            def replay(self, record: CoordinatorRecord) -> None:
                replayed.append(record)
                super().replay(record)

        ended: list[int | None] = []
        again: Shard[Offsets] = Shard(journal, Slow, TYPES, clock, on_load_ended=ended.append)
        again.start()
        while not replayed:
            await asyncio.sleep(0)
        journal.lose_leadership()
        await again.loaded()
        assert (again.state, ended, again.machine.committed) == (State.CLOSED, [None], {})
        assert len(replayed) < 1000

    run(test)


def test_a_load_of_a_former_epoch_does_not_replace_a_later_one() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        for offset in range(300):
            shard.write(commit("a", offset, print), print)
        await turn()
        coordinator: Coordinator[Offsets] = Coordinator(
            TopicName("t"), TYPES, lambda index: Offsets(), clock, lambda: 1
        )
        coordinator.lead(0, journal)
        await asyncio.sleep(0)
        journal.leader_epoch += 1
        coordinator.lead(0, journal)
        later = coordinator.shard_at(0)
        assert later is not None
        await settle(later)
        assert (later.state, later.leader_epoch) == (State.ACTIVE, 1)
        assert later.machine.committed == {"a": 299}
        coordinator.resign(0, Journal(new_log()))  # a partition that is gone already
        assert coordinator.shard_at(0) is later
        coordinator.resign(0, journal)
        assert coordinator.shard_at(0) is None

    run(test)


# What is not committed yet


def test_reads_wait_until_everything_that_they_saw_is_committed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        answers: list[Any] = []
        shard.write(commit("a", 1, print), print)
        await turn()
        shard.write(read("a", answers.append), answers.append)
        await turn()
        assert answers == [1]
        journal.is_replicated = False
        shard.write(commit("a", 2, print), print)
        await turn()
        shard.write(read("a", answers.append), answers.append)
        await turn()
        assert answers == [1]
        journal.replicate()
        assert answers == [1, 2]

    run(test)


def test_a_read_that_saw_what_is_truncated_later_is_never_answered_with_it() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 2, print), print)
        shard.write(read("a", answers.append), answers.append)
        await turn()
        journal.lose_leadership()
        journal.tell()
        assert codes(answers) == [ErrorCode.NOT_COORDINATOR]

    run(test)


def test_a_loaded_record_is_shown_once_it_is_committed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        journal.is_replicated = False
        shard.write(commit("a", 2, print), print)
        await turn()
        journal.leader_epoch += 1
        again = await loaded_shard(journal, clock)
        answers: list[Any] = []
        again.write(read("a", answers.append), answers.append)
        await turn()
        assert answers == []
        journal.replicate()
        assert answers == [2]

    run(test)


def test_a_refusal_waits_for_what_it_is_due_to() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        answers: list[Any] = []
        shard.write(refuse, answers.append)
        assert codes(answers) == [ErrorCode.GROUP_ID_NOT_FOUND]
        journal.is_replicated = False
        shard.write(commit("a", 2, print), print)
        shard.write(refuse, answers.append)
        await turn()
        shard.write(refuse, answers.append)
        await turn()
        assert len(answers) == 1
        journal.replicate()
        assert codes(answers) == [ErrorCode.GROUP_ID_NOT_FOUND] * 3

    run(test)


# A watermark that stands


def test_clients_do_not_wait_for_ever_and_what_was_written_stays() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        journal.is_replicated = False
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await asyncio.sleep(TIMEOUT_SECONDS / 2)
        shard.write(commit("a", 2, answers.append), answers.append)
        await asyncio.sleep(TIMEOUT_SECONDS * 0.75)
        assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert (shard.state, shard.load_count) == (State.ACTIVE, 1)
        journal.replicate()
        assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 2]
        assert shard.machine.committed == {"a": 2}
        await asyncio.sleep(2 * TIMEOUT_SECONDS)
        assert len(answers) == 2

    run_in_virtual_time(test)


def test_what_records_set_off_waits_as_long_as_it_takes() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        journal.is_replicated = False
        happened: list[Any] = []
        answers: list[Any] = []

        def decide(number: int) -> Callable[[Any, int], Outcome]:
            outcome = commit("a", number, answers.append)(None, 0)
            replies = (effect(happened.append, number), *outcome.replies)
            return lambda machine, now_ms: outcome._replace(replies=replies)

        for number in range(3):
            shard.write(decide(number), answers.append)
            await asyncio.sleep(2 * TIMEOUT_SECONDS)
        assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert happened == []
        journal.replicate()
        assert happened == [0, 1, 2]
        assert not journal.produce_waiters
        journal.leader_epoch += 1
        shard.close()

    run_in_virtual_time(test)


def test_there_is_one_timer_however_many_clients_wait() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        loop = asyncio.get_running_loop()
        journal.is_replicated = False
        before = len(loop._scheduled)  # type: ignore[attr-defined]
        for offset in range(500):
            shard.write(commit("a", offset, print), print)
            await turn()
        assert len(loop._scheduled) == before + 1  # type: ignore[attr-defined]
        journal.replicate()

    run_in_virtual_time(test)


# Too few replicas


def test_below_min_isr_nothing_is_lost_and_nothing_is_loaded_again() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn()
        shard.machine.kept.append(print)  # as a member that waits
        journal.has_enough_replicas = False
        for offset in range(100):
            shard.write(commit("a", offset, answers.append), answers.append)
            shard.write_transactional(
                commit("a", 3, answers.append), answers.append, producer_id=5, producer_epoch=0
            )
            await turn()
        assert codes(answers) == [1] + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 200
        assert (shard.state, shard.load_count, journal.log.end_offset) == (State.ACTIVE, 1, 1)
        assert (shard.machine.committed, len(shard.machine.kept)) == ({"a": 1}, 1)
        answers.clear()
        shard.write(read("a", answers.append), answers.append)
        await turn()
        assert answers == [1]  # what writes nothing is answered
        journal.has_enough_replicas = True
        shard.write(commit("a", 7, answers.append), answers.append)
        await turn()
        assert answers == [1, 7]
        shard.machine.kept.clear()

    run(test)


def test_below_min_isr_notes_of_an_operation_are_not_taken() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        journal.has_enough_replicas = False
        taken: list[str] = []
        outcome = commit("a", 1, print)(None, 0)
        noted = outcome._replace(notes=(lambda: taken.append("note"),))
        shard.write(lambda machine, now_ms: noted, print)
        await turn()
        assert taken == []

    run(test)


def test_a_deadline_below_min_isr_is_met_later_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Expiring(Offsets):
        def on_deadline(self, now_ms: int) -> Outcome:
            self.deadline_ms = None
            return commit("expired", 1, print)(None, 0)

        def on_deadline_unmet(self, now_ms: int) -> None:
            super().on_deadline_unmet(now_ms)
            self.deadline_ms = now_ms

    async def test(journal: Journal, clock: Clock) -> None:
        shard: Shard[Offsets] = Shard(journal, Expiring, TYPES, clock)
        shard.start()
        await settle(shard)
        journal.has_enough_replicas = False
        shard.machine.deadline_ms = clock.ms
        shard.write(lambda machine, now_ms: Outcome(), print)
        await asyncio.sleep(60)
        assert 10 < shard.machine.unmet < 100
        assert shard.load_count == 1
        journal.has_enough_replicas = True
        await asyncio.sleep(5)
        assert shard.machine.committed == {"expired": 1}

    run_in_virtual_time(test)
    assert len([each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]) == 1


def test_replicas_that_went_within_a_turn_cost_one_load() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        shard = await loaded_shard(journal, clock)
        answers: list[Any] = []
        shard.write(commit("a", 1, answers.append), answers.append)
        journal.has_enough_replicas = False
        await turn()
        assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        await settle(shard)
        assert (shard.machine.committed, shard.load_count) == ({}, 2)
        shard.write(commit("a", 1, answers.append), answers.append)
        await turn()
        assert shard.load_count == 2

    run(test)
