"""Which part of a log is to be compacted, and which log."""

import pytest

from headrace.log.cleanable import (
    RELATIVE_OFFSET_MAX,
    SEGMENTS_MAX,
    Cleanable,
    SegmentFacts,
    choose,
    group,
    plan,
)
from headrace.log.compaction import plan_log
from headrace.log.settings import LogSettings
from tests.unit.log.keyed import open_compacted, put, roll, run

NOW_MS = 1_000_000
SETTINGS = LogSettings(is_compacted=True, segment_bytes=1000, segment_index_bytes=100)


def segment(
    base_offset: int, size_bytes: int = 100, *, time_ms: int = 1, index_bytes: int = 10
) -> SegmentFacts:
    return SegmentFacts(base_offset, size_bytes, index_bytes, time_ms, time_ms)


SEGMENTS = [segment(0), segment(10), segment(20), segment(30)]


def plan_of(
    settings: LogSettings = SETTINGS,
    segments: list[SegmentFacts] = SEGMENTS,
    *,
    start: int = 0,
    checkpoint: int = 10,
    stable: int = 100,
) -> Cleanable:
    return plan(
        segments,
        settings,
        start_offset=start,
        checkpoint=checkpoint,
        stable_offset=stable,
        now_ms=NOW_MS,
    )


def test_dirty_part_reaches_from_the_checkpoint_to_the_active_segment() -> None:
    found = plan_of()
    assert (found.first_dirty_offset, found.end_offset) == (10, 30)
    assert (found.clean_bytes, found.dirty_bytes) == (100, 200)
    assert found.dirty_ratio == pytest.approx(2 / 3)


def test_nothing_from_the_last_stable_offset_on_is_compacted() -> None:
    found = plan_of(stable=15)
    assert (found.end_offset, found.dirty_bytes) == (15, 100)
    assert plan_of(stable=5) == (10, 10, 100, 0, False, 0.5)


@pytest.mark.parametrize("checkpoint", [3, 31, 1000])
def test_checkpoint_outside_of_the_log_counts_for_nothing(checkpoint: int) -> None:
    assert plan_of(start=5, checkpoint=checkpoint).first_dirty_offset == 5


def test_young_records_wait_for_the_minimum_lag() -> None:
    settings = LogSettings(is_compacted=True, min_compaction_lag_ms=100)
    segments = [segment(0), segment(10), segment(20, time_ms=NOW_MS - 99), segment(30)]
    assert plan_of(settings, segments).end_offset == 20
    segments[2] = segment(20, time_ms=NOW_MS - 100)
    assert plan_of(settings, segments).end_offset == 30


def test_old_records_do_not_wait_for_the_dirty_ratio_beyond_the_maximum_lag() -> None:
    clean = segment(0, 10_000)
    settings = LogSettings(is_compacted=True, max_compaction_lag_ms=100)
    old = [clean, segment(10, time_ms=NOW_MS - 101), segment(20, time_ms=NOW_MS), segment(30)]
    assert plan_of(settings, old).is_due
    young = [clean, segment(10, time_ms=NOW_MS - 100), segment(20, time_ms=NOW_MS), segment(30)]
    assert not plan_of(settings, young).is_due


def test_log_is_due_when_its_dirty_ratio_is_exceeded() -> None:
    half = LogSettings(is_compacted=True, min_cleanable_dirty_ratio=0.5)
    assert not plan_of(half, [segment(0), segment(10), segment(20)]).is_due
    assert plan_of(half, [segment(0), segment(10, 101), segment(20)]).is_due
    assert not plan_of(half, [segment(0)], checkpoint=0).is_due


def test_dirtiest_log_that_is_due_is_chosen() -> None:
    plans = {
        "clean": plan_of(checkpoint=30),
        "dirty": plan_of(checkpoint=10),
        "dirtiest": plan_of(checkpoint=0),
    }
    assert choose(plans) == "dirtiest"
    assert choose({"clean": plans["clean"]}) is None
    assert choose({}) is None


def test_neighbours_are_grouped_up_to_the_size_of_a_segment() -> None:
    segments = [segment(number * 10, 400) for number in range(5)]
    assert [len(run) for run in group(segments, SETTINGS, 50)] == [2, 2, 1]


def test_neighbours_are_grouped_up_to_the_size_of_an_index() -> None:
    segments = [segment(number * 10, 1, index_bytes=40) for number in range(5)]
    assert [len(run) for run in group(segments, SETTINGS, 50)] == [2, 2, 1]


def test_group_spans_no_more_offsets_than_an_index_can_say() -> None:
    segments = [segment(0, 1), segment(10, 1)]
    assert len(group(segments, SETTINGS, RELATIVE_OFFSET_MAX + 1)) == 1
    assert len(group(segments, SETTINGS, RELATIVE_OFFSET_MAX + 2)) == 2


def test_group_has_a_bounded_number_of_segments() -> None:
    segments = [segment(number, 0, index_bytes=0) for number in range(SEGMENTS_MAX + 1)]
    assert [len(run) for run in group(segments, SETTINGS, 1000)] == [SEGMENTS_MAX, 1]


def test_plan_of_a_log_follows_its_passes() -> None:
    log = open_compacted(settings=LogSettings(is_compacted=True, max_compaction_lag_ms=10))
    put(log, (b"a", b"1"), timestamp=NOW_MS)
    roll(log)
    assert plan_log(log, NOW_MS + 11).is_forced
    assert plan_log(log, NOW_MS).dirty_ratio == 1
    run(log)
    assert plan_log(log, NOW_MS).dirty_ratio == 0
    assert not plan_log(log, NOW_MS + 11).is_due
