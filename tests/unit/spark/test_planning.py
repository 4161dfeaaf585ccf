from hypothesis import given
from hypothesis import strategies as st

from headrace.client.topics import TopicPartition
from headrace.spark.planning import Range, bound_rows, split

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = st.lists(
    st.builds(
        lambda index, start, size: Range("t", index, start, start + size),
        st.integers(0, 9),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=6,
)


@given(RANGES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 300))
def test_parts_hold_every_offset_once_and_none_is_empty(
    ranges: list[Range], partitions_min: int | None, records_max: int | None
) -> None:
    parts = split(ranges, partitions_min, records_max)
    assert all(part.size > 0 for part in parts)
    assert sum(part.size for part in parts) == sum(each.size for each in ranges)
    for whole in ranges:
        inside = [each for each in parts if each.partition == whole.partition]
        assert whole.size == 0 or min(each.start for each in inside) <= whole.start
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)


def test_a_range_is_one_task_unless_more_are_asked_for() -> None:
    ranges = [Range("t", 0, 0, 1000), Range("t", 1, 5, 6)]
    assert split(ranges, None, None) == ranges
    assert split(ranges, 2, None) == ranges


def test_the_larger_range_is_cut_into_more_parts() -> None:
    parts = split([Range("t", 0, 0, 900), Range("t", 1, 0, 100)], 10, None)
    assert [part.partition for part in parts] == [0] * 9 + [1]
    assert {part.size for part in parts} == {100}


def test_a_limit_is_shared_in_proportion_to_the_lags() -> None:
    assert bound_rows({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}


def test_a_small_lag_beside_a_large_one_goes_on_too() -> None:
    ends = bound_rows({A: 0, B: 7}, {A: 1_000_000, B: 8}, 10)
    assert ends[B] == 8


def test_a_limit_above_the_lag_changes_nothing() -> None:
    assert bound_rows({A: 3, B: 0}, {A: 5, B: 0}, 2) == {A: 5, B: 0}


@given(
    st.dictionaries(st.sampled_from([A, B]), st.integers(0, 100)),
    st.dictionaries(st.sampled_from([A, B]), st.integers(100, 10_000)),
    st.integers(1, 500),
)
def test_a_limit_always_lets_something_through(
    start: dict[TopicPartition, int], latest: dict[TopicPartition, int], rows_max: int
) -> None:
    start = {each: start.get(each, 0) for each in latest}
    ends = bound_rows(start, latest, rows_max)
    assert all(start[each] <= ends[each] <= latest[each] for each in latest)
    if any(latest[each] > start[each] for each in latest):
        assert ends != start
        total = sum(latest[each] - start[each] for each in latest)
        read = sum(ends[each] - start[each] for each in latest)
        behind = sum(latest[each] > start[each] for each in latest)
        assert read == min(total, max(rows_max, behind))
