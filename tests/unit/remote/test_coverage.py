from hypothesis import given
from hypothesis import strategies as st

from headrace.remote.coverage import Gap, LineageCheck, cover, cover_log, lineage_of
from headrace.remote.segments import SegmentEpoch
from tests.unit.remote.described import segment


def test_each_offset_has_one_segment_where_segments_overlap() -> None:
    first, second, third = segment(1, 0, 100), segment(2, 101, 200), segment(3, 0, 150)
    covered = cover([first, second, third])
    assert [(each.segment, each.start, each.stop) for each in covered.extents] == [
        (third, 0, 151),
        (second, 151, 201),
    ]
    assert covered.superseded == [first]
    assert covered.gaps == []


def test_of_two_segments_with_the_same_offsets_the_newer_one_is_kept() -> None:
    old, new = segment(2, 0, 9, event_ms=5), segment(1, 0, 9, event_ms=6)
    covered = cover([old, new])
    assert [each.segment for each in covered.extents] == [new]
    assert covered.superseded == [old]


def test_offsets_that_no_segment_has_are_a_gap() -> None:
    assert cover([segment(1, 5, 9), segment(2, 15, 19)]).gaps == [Gap(10, 14)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_extents_and_gaps_hold_every_offset_once(ranges: list[tuple[int, int]]) -> None:
    segments = [
        segment(number, start, start + length) for number, (start, length) in enumerate(ranges)
    ]
    covered = cover(segments)
    held = {offset for each in segments for offset in range(each.start_offset, each.next_offset)}
    answered = [offset for each in covered.extents for offset in range(each.start, each.stop)]
    assert answered == sorted(held)
    for each in covered.extents:
        assert each.segment.start_offset <= each.start < each.stop == each.segment.next_offset
    missing = {offset for gap in covered.gaps for offset in range(gap.first, gap.last + 1)}
    whole = range(min(held), max(held) + 1) if held else range(0)
    assert missing == set(whole) - held
    kept = {each.segment.id for each in covered.extents}
    assert sorted([*kept, *(each.id for each in covered.superseded)]) == sorted(
        each.id for each in segments
    )


def test_records_after_the_start_of_a_higher_epoch_are_of_another_lineage() -> None:
    lost = segment(1, 100, 200, epochs=[(5, 100)])
    log = segment(2, 100, 250, epochs=[(5, 100), (6, 150)])
    lineage = lineage_of([lost, log])
    assert lineage == (SegmentEpoch(5, 100), SegmentEpoch(6, 150))
    assert not LineageCheck(lineage).holds(lost)
    assert LineageCheck(lineage).holds(log)


def test_an_epoch_that_begins_after_a_higher_one_is_not_in_the_log() -> None:
    lost = segment(1, 200, 300, epochs=[(5, 200)])
    log = segment(2, 100, 250, epochs=[(4, 100), (6, 150)])
    lineage = lineage_of([lost, log])
    assert [each.epoch for each in lineage] == [4, 6]
    assert not LineageCheck(lineage).holds(lost)


def test_epochs_that_brokers_know_decide_too() -> None:
    lost = segment(1, 0, 99, epochs=[(3, 0)])
    assert LineageCheck(lineage_of([lost])).holds(lost)
    assert not LineageCheck(lineage_of([lost], [SegmentEpoch(3, 0), SegmentEpoch(4, 50)])).holds(
        lost
    )


def test_of_a_segment_that_was_cut_the_records_before_the_cut_are_the_log() -> None:
    first, cut = segment(1, 0, 9, epochs=[(0, 0)]), segment(2, 10, 29, epochs=[(0, 10), (1, 20)])
    log = segment(3, 15, 39, epochs=[(0, 15), (2, 18)])
    covered = cover_log([first, cut, log])
    assert [(each.segment, each.start, each.stop) for each in covered.extents] == [
        (first, 0, 10),
        (cut, 10, 18),
        (log, 18, 40),
    ]
    assert not covered.gaps
    assert not covered.superseded
