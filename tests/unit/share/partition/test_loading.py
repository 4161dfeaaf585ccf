"""What a new leader begins with."""

import pytest

from headrace.errors import KafkaError
from headrace.share.durable import StateBatch
from tests.unit.share.partition.share_partitions import LIMITS, Partition, written


def test_what_was_never_written_of_is_fetched_anew() -> None:
    partition = Partition(
        StateBatch(12, 13, 2, 1), StateBatch(16, 17, 0, 2), StateBatch(20, 21, 4, 1), start=10
    )
    assert partition.machine.delivery_complete_count == 4
    assert partition.fetch("a", (10, 19), (20, 25)) == [
        (10, 11, 1),
        (14, 15, 1),
        (16, 17, 3),
        (18, 19, 1),
        (22, 25, 1),
    ]
    partition.accept("a", 10, 11)
    assert partition.machine.start_offset == 14


def test_a_gap_that_the_log_no_longer_has_does_not_hold_up_the_start() -> None:
    partition = Partition(StateBatch(12, 13, 2, 1), StateBatch(16, 17, 0, 2), start=10)
    assert partition.fetch("a", (16, 19)) == [(16, 17, 3), (18, 19, 1)]
    assert partition.machine.start_offset == 16


def test_the_start_is_behind_what_was_complete() -> None:
    partition = Partition(StateBatch(10, 13, 2, 1), StateBatch(14, 14, 4, 3), start=10)
    assert partition.machine.start_offset == partition.machine.next_fetch_offset(1) == 15


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(8, 13, 2, 1)],
        [StateBatch(14, 13, 2, 1)],
        [StateBatch(10, 13, 1, 1)],
        [StateBatch(10, 13, 5, 1)],
        [StateBatch(10, 13, 2, 1), StateBatch(12, 15, 0, 1)],
    ],
)
def test_a_state_that_cannot_be_is_refused(batches: list[StateBatch]) -> None:
    with pytest.raises(KafkaError, match="is inconsistent"):
        Partition(*batches, start=10)


def test_what_is_written_gives_the_same_picture_again() -> None:
    partition = Partition()
    partition.fetch("a", (0, 19))
    partition.accept("a", 5, 9)
    change = partition.machine.acknowledge("a", [], 1)
    assert change.write is None
    released = partition.machine.release_member("a", 1)
    start, _, batches = written(released)
    again = Partition(
        *sorted([StateBatch(5, 9, 2, 1), *(StateBatch(*each) for each in batches)]), start=start
    )
    partition.done(released)
    assert again.seen == partition.seen


def test_letters_that_were_on_their_way_are_sent_again() -> None:
    limits = LIMITS._replace(has_dead_letters=True)
    partition = Partition(StateBatch(0, 3, 3, 5), StateBatch(4, 4, 3, 2), limits=limits)
    causes = [(each.first_offset, each.cause.value) for each in partition.machine.dead_letters()]
    assert causes == [(0, "delivery count exceeded"), (4, "rejected")]
