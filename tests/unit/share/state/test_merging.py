"""Batches of states, against one state an offset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import UNKNOWN_OFFSET
from headrace.share.durable import StateBatch
from headrace.share.state.merging import merge_batches
from tests.unit.share.state.world import ACKNOWLEDGED, ARCHIVED, AVAILABLE

OFFSETS_MAX = 30


def _batch(first: int, length: int, state: int, count: int) -> StateBatch:
    return StateBatch(first, first + length, state, count)


BATCHES = st.lists(
    st.builds(
        _batch,
        st.integers(0, OFFSETS_MAX),
        st.integers(0, 12),
        st.sampled_from((AVAILABLE, ACKNOWLEDGED, ARCHIVED)),
        st.integers(0, 3),
    ),
    max_size=8,
)
STARTS = st.just(UNKNOWN_OFFSET) | st.integers(0, OFFSETS_MAX + 15)

Model = dict[int, tuple[int, int]]
"""Delivery count and state of each offset."""


def apply(model: Model, new: list[StateBatch], start: int) -> Model:
    changed = dict(model)
    for first, last, state, count in new:
        for offset in range(first, last + 1):
            changed[offset] = max(changed.get(offset, (-1, -1)), (count, state))
    return {offset: each for offset, each in changed.items() if offset >= start}


def expand(batches: tuple[StateBatch, ...]) -> Model:
    return {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


@given(st.lists(st.tuples(BATCHES, STARTS), max_size=6))
def test_writes_leave_what_one_state_an_offset_would(
    writes: list[tuple[list[StateBatch], int]],
) -> None:
    merged: tuple[StateBatch, ...] = ()
    model: Model = {}
    for new, start in writes:
        merged = merge_batches(merged, new, start)
        model = apply(model, new, start)
        assert expand(merged) == model
        for one, other in pairwise(merged):
            assert one.last_offset < other.first_offset
            is_next = one.last_offset + 1 == other.first_offset
            assert not (is_next and one[2:] == other[2:]), "these are one batch"


@given(BATCHES, STARTS)
def test_merging_twice_is_merging_once(new: list[StateBatch], start: int) -> None:
    once = merge_batches((), new, start)
    assert merge_batches(once, new, start) == once


def test_batches_that_overlap_with_other_first_offsets_are_not_both_kept() -> None:
    known = (StateBatch(10, 19, AVAILABLE, 1),)
    merged = merge_batches(known, [StateBatch(15, 24, ACKNOWLEDGED, 1)], UNKNOWN_OFFSET)
    assert merged == (StateBatch(10, 14, AVAILABLE, 1), StateBatch(15, 24, ACKNOWLEDGED, 1))


def test_a_batch_that_straddles_the_start_is_trimmed() -> None:
    assert merge_batches((StateBatch(0, 9, ARCHIVED, 2),), [], 7) == (
        StateBatch(7, 9, ARCHIVED, 2),
    )


def test_what_was_delivered_more_often_wins_whatever_its_state() -> None:
    known = (StateBatch(0, 9, ARCHIVED, 1),)
    merged = merge_batches(known, [StateBatch(0, 9, AVAILABLE, 2)], UNKNOWN_OFFSET)
    assert merged == (StateBatch(0, 9, AVAILABLE, 2),)


def test_what_ended_does_not_become_available_again_in_the_same_delivery() -> None:
    known = (StateBatch(0, 9, ACKNOWLEDGED, 1),)
    assert merge_batches(known, [StateBatch(0, 9, AVAILABLE, 1)], UNKNOWN_OFFSET) == known


def test_neighbours_in_one_state_are_one_batch() -> None:
    known = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(6, 9, ACKNOWLEDGED, 1))
    merged = merge_batches(known, [StateBatch(5, 5, ACKNOWLEDGED, 1)], UNKNOWN_OFFSET)
    assert merged == (StateBatch(0, 9, ACKNOWLEDGED, 1),)


def test_a_batch_that_ends_before_it_begins_says_nothing() -> None:
    assert merge_batches((), [StateBatch(9, 8, ACKNOWLEDGED, 1)], UNKNOWN_OFFSET) == ()
