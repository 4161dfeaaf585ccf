from itertools import pairwise

from hypothesis import given

from headrace.spark.share import intervals
from tests.unit.spark.offset_ranges import disjoint, numbers


@given(disjoint(), disjoint())
def test_parts_of_ranges_are_inside_or_outside_of_others(
    ranges: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    inside = numbers(intervals.overlaps(ranges, others))
    outside = numbers(intervals.outside(ranges, others))
    assert inside == [each for each in numbers(ranges) if each in set(numbers(others))]
    assert sorted(inside + outside) == numbers(ranges)


@given(disjoint(), disjoint())
def test_every_part_comes_with_the_ranges_that_it_is_of(
    ranges: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    for each, other, first, last in intervals.aligned(ranges, others):
        assert each[0] <= first <= last <= each[1]
        covering = [that for that in others if that[0] <= last and first <= that[1]]
        assert covering == ([] if other is None else [other])


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
