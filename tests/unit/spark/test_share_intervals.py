from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.share import intervals
from tests.unit.spark.offset_ranges import disjoint, numbers


@given(st.integers(0, 40), st.integers(0, 20), disjoint())
def test_a_range_is_inside_or_outside_of_others(
    first: int, size: int, others: list[tuple[int, int]]
) -> None:
    last = first + size
    inside = numbers(intervals.overlaps(first, last, others))
    outside = numbers(intervals.outside(first, last, others))
    assert inside == [each for each in range(first, last + 1) if each in set(numbers(others))]
    assert sorted(inside + outside) == list(range(first, last + 1))


@given(disjoint(), disjoint())
def test_merged_ranges_are_disjoint_and_have_what_they_had(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    merged = intervals.merged(one + two)
    assert numbers(merged) == sorted({*numbers(one), *numbers(two)})
    assert all(before[1] + 1 < after[0] for before, after in pairwise(merged))


def test_offsets_become_ranges() -> None:
    offsets = [5, 3, 4, 9, 5]
    assert intervals.merged((each, each) for each in offsets) == [(3, 5), (9, 9)]
