from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.remote.coverage import Gap, cover
from headrace.spark.tier.planning import clip, gaps_between, into_tasks, prune
from tests.unit.remote.described import segment


def test_only_segments_between_the_offsets_are_read() -> None:
    extents = cover([segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)]).extents
    assert [(each.start, each.stop) for each in clip(extents, 15, 20)] == [(15, 20)]
    assert clip(extents, 30, 40) == []
    assert clip(extents, 15, 15) == []


def test_segments_from_before_a_time_are_skipped_unless_their_time_is_unknown() -> None:
    segments = [
        segment(1, 0, 9, max_timestamp_ms=5),
        segment(2, 10, 19, max_timestamp_ms=-1),
        segment(3, 20, 29, max_timestamp_ms=50),
    ]
    slices = clip(cover(segments).extents, 0, 30)
    assert [each.start for each in prune(slices, 6)] == [10, 20]
    assert prune(slices, None) == slices


def test_gaps_are_those_of_the_wanted_offsets() -> None:
    assert gaps_between([Gap(10, 14), Gap(30, 40)], 12, 31) == [Gap(12, 14), Gap(30, 30)]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 500)), min_size=1, max_size=6),
        max_size=4,
    ),
    st.integers(1, 600),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 10),
)
def test_tasks_hold_every_offset_once_and_are_not_too_large(
    partitions: list[list[tuple[int, int]]],
    task_bytes: int,
    partitions_min: int | None,
    records_max: int | None,
) -> None:
    planned = []
    for drawn in partitions:
        segments, at = [], 0
        for number, (length, size) in enumerate(drawn):
            segments.append(segment(number, at, at + length, size_bytes=size))
            at += length + 1
        planned.append(clip(cover(segments).extents, 0, at))
    tasks = into_tasks(planned, task_bytes, partitions_min, records_max)
    expected = [
        (number, offset)
        for number, slices in enumerate(planned)
        for each in slices
        for offset in range(each.start, each.stop)
    ]
    assert len(expected) == sum(each.records for task in tasks for each in task)
    assert all(task for task in tasks)
    for task in tasks:
        for before, after in pairwise(task):
            assert before.stop == after.start
        if records_max is not None:
            assert sum(each.records for each in task) <= records_max
        if len(task) > 1:
            assert sum(each.size_bytes for each in task) <= task_bytes


def test_small_segments_share_a_task_and_a_large_one_is_cut() -> None:
    small = [segment(number, number * 10, number * 10 + 9, size_bytes=100) for number in range(4)]
    assert len(into_tasks([clip(cover(small).extents, 0, 40)], 200)) == 2
    large = clip(cover([segment(1, 0, 99, size_bytes=1000)]).extents, 0, 100)
    assert [each.records for (each,) in into_tasks([large], 250)] == [25] * 4
    assert len(into_tasks([large], 10_000, partitions_min=5)) == 5
