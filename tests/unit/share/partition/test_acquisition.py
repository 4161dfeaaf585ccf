"""Who gets which records. The figures of ranges and of throttling are Apache Kafka 4.3.1's."""

import pytest

from headrace.share.durable import DeliveryState, StateBatch
from headrace.share.partition.types import AckType, Cause, FetchedBatch, Limits, Wanted
from headrace.wire.share_types import AcquireMode
from tests.unit.share.partition.share_partitions import ALL, LIMITS, LOCK_MS, Partition

EXACT = AcquireMode.RECORD_LIMIT


def available(first: int, last: int, count: int) -> StateBatch:
    return StateBatch(first, last, DeliveryState.AVAILABLE, count)


def test_a_record_is_leased_to_one_member_only() -> None:
    partition = Partition()
    assert partition.fetch("a", (0, 9)) == [(0, 9, 1)]
    assert partition.fetch("b", (0, 9), at=0) == []
    assert partition.machine.next_fetch_offset(1) == 10


def test_whole_batches_are_acquired_even_if_that_is_more_than_asked_for() -> None:
    partition = Partition()
    wanted = Wanted(max_records=13, batch_size=100)
    batches = ((0, 3), (4, 7), (8, 11), (12, 20), (21, 30))
    assert partition.fetch("a", *batches, wanted=wanted) == [(0, 20, 1)]


def test_ranges_are_as_long_as_asked_for_and_end_with_a_batch() -> None:
    partition = Partition()
    wanted = Wanted(max_records=500, batch_size=10)
    batches = ((0, 3), (4, 7), (8, 11), (12, 15), (16, 40), (41, 42))
    assert partition.fetch("a", *batches, wanted=wanted) == [(0, 11, 1), (12, 40, 1), (41, 42, 1)]


def test_a_record_limit_is_kept_to_and_the_rest_of_the_batch_is_for_others() -> None:
    partition = Partition()
    assert partition.fetch("a", (0, 40), wanted=Wanted(13, 5, EXACT)) == [(0, 12, 1)]
    assert partition.machine.next_fetch_offset(1) == 13
    assert partition.fetch("b", (0, 40), wanted=Wanted(5, 5, EXACT)) == [(13, 17, 1)]


def test_a_full_window_takes_no_new_records() -> None:
    partition = Partition(limits=LIMITS._replace(in_flight_max=10))
    assert partition.fetch("a", (0, 7), (8, 20), (21, 30)) == [(0, 20, 1)]
    assert not partition.machine.can_acquire(1)
    assert partition.fetch("b", (21, 30)) == []
    partition.accept("a", 0, 15)
    assert partition.machine.can_acquire(1)


def test_what_was_released_inside_a_full_window_can_be_acquired() -> None:
    partition = Partition(limits=LIMITS._replace(in_flight_max=10))
    partition.fetch("a", (0, 9))
    assert not partition.machine.can_acquire(1)
    partition.release("a", 2, 4)
    assert partition.machine.can_acquire(1)
    assert partition.fetch("b", (0, 9), (10, 12)) == [(2, 4, 2)]


def test_offsets_before_the_first_batch_are_gone() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    partition.release("a", 0, 9)
    assert partition.fetch("b", (4, 9)) == [(4, 9, 2)]
    assert partition.machine.start_offset == 4


def test_gone_offsets_behind_the_window_do_not_hold_up_the_start() -> None:
    partition = Partition()
    assert partition.fetch("a", (3, 9)) == [(3, 9, 1)]
    assert partition.machine.start_offset == 3
    assert partition.fetch("a", (14, 15)) == [(14, 15, 1)]
    assert partition.seen == ("3-9 acquired x1 by a; 10-13 archived x0; 14-15 acquired x1 by a")
    assert partition.machine.in_flight(1)[1].cause is Cause.GONE


def test_a_read_that_began_later_says_nothing_of_what_was_released_since() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    began = partition.machine.next_fetch_offset(1)
    partition.release("a", 0, 4)
    assert partition.fetch("b", (10, 12), at=began) == [(10, 12, 1)]
    assert partition.seen.startswith("0-4 available x1")


def test_a_read_that_began_before_a_reload_is_left_alone() -> None:
    partition = Partition()
    assert partition.fetch("a", (500, 509), at=500) == []
    assert partition.machine.start_offset == 0
    assert partition.seen == ""


def test_holes_between_batches_are_leased_to_be_acknowledged_as_gaps() -> None:
    partition = Partition()
    assert partition.fetch("a", (0, 3), (6, 9)) == [(0, 9, 1)]


def test_control_batches_and_aborted_ones_are_passed_over() -> None:
    partition = Partition()
    batches = [
        FetchedBatch(0, 3),
        FetchedBatch(4, 6, is_deliverable=False),
        FetchedBatch(7, 7, is_deliverable=False, is_control=True),
        FetchedBatch(8, 9),
    ]
    got = partition.machine.acquire("a", batches, ALL, 1, fetch_offset=0)
    assert [tuple(each) for each in got] == [(0, 3, 1), (8, 9, 1)]
    causes = [each.cause for each in partition.machine.in_flight(1)]
    assert causes == [None, Cause.ABORTED, Cause.GONE, None]
    assert partition.machine.delivery_complete_count == 4
    partition.accept("a", 0, 3)
    assert partition.machine.start_offset == 8


def test_a_batch_that_nobody_can_read_is_given_up_at_once_however_much_it_claims() -> None:
    partition = Partition()
    last = 2**31 + 3
    unreadable = FetchedBatch(4, last, is_deliverable=False, is_readable=False)
    batches = [FetchedBatch(0, 3), unreadable, FetchedBatch(last + 1, last + 2)]
    got = partition.machine.acquire("a", batches, ALL, 1, fetch_offset=0)
    assert [tuple(each) for each in got] == [(0, 3, 1)]
    causes = [each.cause for each in partition.machine.in_flight(1)]
    assert causes == [None, Cause.UNREADABLE]
    partition.accept("a", 0, 3)
    assert partition.machine.start_offset == last + 1
    assert partition.fetch("a", (last + 1, last + 2)) == [(last + 1, last + 2, 1)]


def test_a_partition_that_begins_with_a_control_batch_begins_behind_it() -> None:
    partition = Partition()
    batches = [FetchedBatch(0, 0, is_deliverable=False, is_control=True)]
    assert partition.machine.acquire("a", batches, ALL, 1, fetch_offset=0) == []
    assert partition.machine.start_offset == partition.machine.next_fetch_offset(1) == 1


def test_a_batch_that_begins_before_the_start_is_acquired_from_the_start_on() -> None:
    partition = Partition(start=10)
    assert partition.fetch("a", (5, 14)) == [(10, 14, 1)]


@pytest.mark.parametrize(
    ("limit", "count", "acquired"),
    [
        (10, 4, 21),
        (10, 5, 8),
        (10, 7, 2),
        (10, 8, 1),
        (6, 3, 8),
        (6, 4, 4),
        (6, 5, 1),
        (5, 3, 8),
        (5, 4, 1),
        (4, 2, 8),
        (3, 2, 1),
    ],
)
def test_suspect_records_are_acquired_in_ever_smaller_parts(
    limit: int, count: int, acquired: int
) -> None:
    limits = LIMITS._replace(delivery_count_limit=limit)
    partition = Partition(available(0, 15, count), limits=limits)
    got = partition.fetch("a", (0, 15), (16, 20))
    assert sum(last - first + 1 for first, last, _ in got) == acquired


def test_suspect_records_are_not_acquired_together_with_others() -> None:
    partition = Partition(available(0, 15, 1), available(16, 31, 3), available(32, 47, 2))
    batches = ((0, 15), (16, 31), (32, 47), (48, 60))
    assert partition.fetch("a", *batches) == [(0, 15, 2)]
    assert partition.fetch("a", *batches) == [(16, 23, 4)]
    assert partition.fetch("a", *batches) == [(24, 31, 4)]
    assert partition.fetch("a", *batches) == [(32, 47, 3), (48, 60, 1)]


def test_a_suspect_part_halves_the_batch_that_it_came_from() -> None:
    limits = LIMITS._replace(delivery_count_limit=6)
    partition = Partition(limits=limits)
    for _ in range(3):
        assert partition.fetch("a", (0, 15)) != []
        partition.release("a", 0, 15)
    assert partition.fetch("a", (0, 15)) == [(0, 7, 4)]
    partition.release("a", 0, 7)
    assert partition.fetch("a", (0, 15)) == [(0, 3, 5)]
    partition.release("a", 0, 3)
    assert partition.fetch("a", (0, 15)) == [(0, 0, 6)]


def test_a_released_record_rests_longer_after_each_release() -> None:
    limits = LIMITS._replace(release_backoff_ms=100, release_backoff_max_ms=300)
    partition = Partition(limits=limits)
    rests = []
    for _ in range(4):
        partition.fetch("a", (0, 0))
        partition.release("a", 0)
        rests.append(partition.machine.in_flight(partition.now)[0].resting_ms)
        assert partition.fetch("b", (0, 0), at=0) == []
        deadline_ms = partition.machine.next_deadline_ms()
        assert deadline_ms is not None
        assert partition.wait(deadline_ms - partition.now) is None
        assert partition.machine.next_fetch_offset(partition.now) == 0
    assert rests == [100, 200, 300, 300]


def test_a_resting_record_does_not_hold_up_others() -> None:
    limits = LIMITS._replace(release_backoff_ms=100, release_backoff_max_ms=100)
    partition = Partition(limits=limits)
    partition.fetch("a", (0, 4))
    partition.release("a", 0, 1)
    assert partition.machine.next_fetch_offset(partition.now) == 5
    assert partition.fetch("b", (5, 6)) == [(5, 6, 1)]


def test_the_end_of_a_session_or_of_a_lock_is_no_reason_to_rest() -> None:
    limits = LIMITS._replace(release_backoff_ms=100, release_backoff_max_ms=100)
    partition = Partition(limits=limits)
    partition.fetch("a", (0, 0))
    partition.done(partition.machine.release_member("a", 1))
    assert partition.fetch("b", (0, 0)) == [(0, 0, 2)]
    partition.done(partition.wait(LOCK_MS))
    assert partition.fetch("b", (0, 0)) == [(0, 0, 3)]


def test_a_window_that_is_smaller_now_is_left_as_it_is() -> None:
    partition = Partition()
    partition.fetch("a", (0, 99))
    partition.limits = Limits(LOCK_MS, 5, in_flight_max=10)
    assert not partition.machine.can_acquire(1)
    partition.accept("a", 0, 95)
    assert partition.fetch("a", (100, 109)) == [(100, 109, 1)]


# How far to read


def test_reading_reaches_as_far_as_enough_can_be_acquired() -> None:
    partition = Partition()
    partition.fetch("a", (0, 9))
    for offset in (2, 3, 7):
        partition.release("a", offset)
    reach = partition.machine.reach
    assert [reach(2, count, 1) for count in range(1, 6)] == [2, 3, 7, 10, 11]
    assert [reach(3, count, 1) for count in range(1, 4)] == [3, 7, 10]
    assert reach(10, 5, 1) == 14
    assert [partition.machine.count_acquirable(2, last, 1) for last in (2, 6, 7, 9, 12)] == [
        *(1, 2, 3, 3, 6)
    ]


def test_records_that_rest_are_not_counted_on() -> None:
    limits = LIMITS._replace(release_backoff_ms=50, release_backoff_max_ms=50)
    partition = Partition(limits=limits)
    partition.fetch("a", (0, 9))
    partition.release("a", 0, 4)
    assert partition.machine.reach(0, 2, 1) == 11
    assert partition.machine.count_acquirable(0, 9, 1) == 0
    assert partition.machine.reach(0, 2, 60) == 1


def test_a_partition_is_at_rest_when_nothing_is_held_written_or_to_be_sent() -> None:
    partition = Partition(limits=LIMITS._replace(has_dead_letters=True))
    assert partition.machine.is_at_rest
    partition.fetch("a", (0, 3))
    assert not partition.machine.is_at_rest
    change = partition.say("a", AckType.ACCEPT, 0, 1)
    partition.release("a", 2)
    partition.reject("a", 3)
    assert not partition.machine.is_at_rest
    partition.done(change)
    assert not partition.machine.is_at_rest  # offset 3 is on its way to the dead letters
    (letter,) = partition.machine.dead_letters()
    written = partition.machine.dead_lettered(letter, 1)
    assert not partition.machine.is_at_rest
    partition.done(written)
    assert partition.machine.is_at_rest
