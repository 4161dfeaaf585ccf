"""What members say of their records."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.share.partition.types import Acknowledgement, AckType, Cause
from tests.unit.share.partition.share_partitions import LIMITS, LOCK_MS, Partition, written

INVALID_REQUEST = ErrorCode.INVALID_REQUEST
INVALID_STATE = ErrorCode.INVALID_RECORD_STATE


def test_an_acceptance_is_written_and_then_moves_the_start() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.ACCEPT, 0, 9)
    assert written(change) == (0, 10, [(0, 9, 2, 1)])
    assert change.write is not None
    assert (change.write.state_epoch, change.write.leader_epoch) == (3, 7)
    assert partition.machine.start_offset == 0
    partition.done(change)
    assert partition.machine.start_offset == partition.machine.next_fetch_offset(1) == 10
    assert partition.seen == ""


def test_a_released_record_is_for_anybody_and_keeps_its_count() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.RELEASE, 3, 5)
    assert written(change) == (0, 0, [(3, 5, 0, 1)])
    assert partition.machine.next_fetch_offset(1) == 10
    partition.done(change)
    assert partition.fetch("b", (0, 9)) == [(3, 5, 2)]


def test_a_record_that_was_delivered_often_enough_is_archived_when_released() -> None:
    partition = Partition(limits=LIMITS._replace(delivery_count_limit=2))
    partition.fetch("a", (0, 0), (1, 1))
    partition.release("a", 0, 1)
    partition.fetch("a", (0, 0), (1, 1))
    change = partition.say("a", AckType.RELEASE, 1)
    assert written(change) == (0, 1, [(1, 1, 4, 2)])
    partition.done(change)
    assert partition.machine.in_flight(1)[1].cause is Cause.EXHAUSTED


def test_rejected_records_and_gaps_are_archived() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.reject("a", 5)
    partition.done(partition.say("a", AckType.GAP, 6))
    causes = [each.cause for each in partition.machine.in_flight(1)]
    assert causes == [None, Cause.REJECTED, Cause.GONE, None]
    assert partition.machine.delivery_complete_count == 2


def test_one_batch_says_different_things_of_its_offsets() -> None:
    partition = Partition()
    partition.fetch("a", (0, 5))
    said = [Acknowledgement(0, 5, [1, 2, 2, 3, 1, 4])]
    change = partition.machine.acknowledge("a", said, 1)
    assert written(change)[2] == [(0, 0, 2, 1), (1, 2, 0, 1), (3, 3, 4, 1), (4, 4, 2, 1)]
    partition.done(change)
    assert partition.seen == (
        "1-2 available x1; 3-3 archived x1; 4-4 acknowledged x1; 5-5 acquired x1 by a"
    )


def test_batches_of_what_was_acquired_apart_are_acknowledged_as_one() -> None:
    partition = Partition()
    partition.fetch("a", (0, 4))
    partition.now += 10
    partition.fetch("a", (5, 9))
    partition.accept("a", 0, 9)
    assert partition.machine.start_offset == 10


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([(3, 2, [1])], INVALID_REQUEST),
        ([(3, 4, [1]), (2, 2, [1])], INVALID_REQUEST),
        ([(0, 2, [1]), (1, 3, [1])], INVALID_REQUEST),
        ([(0, 1, [1]), (1, 2, [1])], INVALID_STATE),
        ([(0, 1, [1]), (1, 12, [1])], INVALID_REQUEST),
        ([(0, 1, [])], INVALID_REQUEST),
        ([(0, 3, [1, 1])], INVALID_REQUEST),
        ([(0, 0, [5])], INVALID_REQUEST),
        ([(0, 0, [-1])], INVALID_REQUEST),
        ([(-1, 0, [1])], INVALID_REQUEST),
        ([(5, 10, [1])], INVALID_REQUEST),
        ([(10, 12, [1])], INVALID_REQUEST),
        ([(0, 3, [1]), (7, 7, [1]), (9, 11, [1])], INVALID_STATE),
        ([(0, 7, [1])], INVALID_STATE),
        ([(8, 8, [1])], INVALID_STATE),
    ],
)
def test_the_first_error_undoes_everything(
    said: list[tuple[int, int, list[int]]], code: ErrorCode
) -> None:
    partition = Partition()
    partition.fetch("a", (0, 6))
    partition.fetch("b", (7, 9))
    before = partition.seen
    with pytest.raises(KafkaError) as raised:
        partition.machine.acknowledge("a", [Acknowledgement(*each) for each in said], 1)
    assert raised.value.code == code
    assert partition.seen == before
    partition.accept("a", 0, 6)
    assert partition.machine.start_offset == 7


def test_a_window_of_nothing_has_no_record_that_could_be_acknowledged() -> None:
    partition = Partition(start=10)
    for first, last in ((10, 10), (11, 11), (9, 12)):
        with pytest.raises(KafkaError) as raised:
            partition.say("a", AckType.ACCEPT, first, last)
        assert raised.value.code == INVALID_STATE


def test_what_is_said_of_offsets_before_the_start_is_taken_and_means_nothing() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.accept("a", 0, 4)
    assert partition.say("b", AckType.REJECT, 0, 3).write is None
    change = partition.say("a", AckType.ACCEPT, 2, 6)
    assert written(change)[2] == [(5, 6, 2, 1)]


def test_nothing_more_can_be_said_of_a_record_while_something_is_being_written_of_it() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    change = partition.say("a", AckType.RELEASE, 2, 4)
    with pytest.raises(KafkaError) as raised:
        partition.say("a", AckType.ACCEPT, 4)
    assert raised.value.code == INVALID_STATE
    assert "being acknowledged already" in raised.value.message
    partition.accept("a", 5, 9)
    partition.done(change)
    with pytest.raises(KafkaError):
        partition.say("a", AckType.ACCEPT, 4)


def test_a_renewed_lock_ends_later_and_nothing_is_written() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.now += 600
    assert partition.say("a", AckType.RENEW, 0, 4).write is None
    assert written(partition.wait(LOCK_MS - 600))[2] == [(5, 9, 0, 1)]
    assert written(partition.wait(600))[2] == [(0, 4, 0, 1)]


def test_locks_are_not_renewed_where_the_group_does_not_allow_it() -> None:
    partition = Partition(limits=LIMITS._replace(is_renew_allowed=False))
    partition.fetch("a", (0, 9))
    with pytest.raises(KafkaError) as raised:
        partition.machine.acknowledge("a", [Acknowledgement(0, 1, [1, 4])], 1)
    assert raised.value.code == INVALID_STATE
    assert partition.seen == "0-9 acquired x1 by a"


def test_what_is_complete_counts_what_is_being_written_too() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    first = partition.say("a", AckType.ACCEPT, 0, 4)
    second = partition.say("a", AckType.ACCEPT, 5, 9)
    assert written(first)[:2] == (0, 5)
    assert written(second)[:2] == (0, 10)
    partition.done(second)
    assert partition.machine.delivery_complete_count == 5
    assert partition.machine.start_offset == 0
    partition.done(first)
    assert partition.machine.start_offset == 10
