"""Which records of the tier are a log's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.epochs import EpochStart, LeaderEpochs
from headrace.remote.segments import RemoteSegment, SegmentState
from headrace.tier.lineage import Stretch, find_stretch, late_stretches, own_end
from tests.unit.tier.tiers import ORDERS, ListedMetadata, segment_of


def lineage(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochStart(*entry) for entry in entries)


def find(epochs: LeaderEpochs, offset: int, *segments: RemoteSegment) -> Stretch | None:
    return find_stretch(ListedMetadata(segments), ORDERS.key, epochs, offset)


@pytest.mark.parametrize(
    ("offset", "end"),
    [(0, 150), (99, 150), (120, 150), (150, 150), (199, 199)],
)
def test_what_a_deposed_leader_copied_ends_where_the_log_went_on(offset: int, end: int) -> None:
    copied = segment_of(0, 199, (1, 0), (2, 100))
    assert own_end(copied, lineage((1, 0), (2, 100), (3, 150)), offset) == end


def test_an_epoch_that_the_log_never_had_is_not_its_own() -> None:
    copied = segment_of(0, 199, (1, 0), (2, 100))
    assert own_end(copied, lineage((1, 0), (3, 100)), 0) == 100
    assert own_end(copied, lineage((1, 0), (3, 100)), 100) == 100
    assert own_end(copied, lineage((1, 0)), 50) == 100
    assert own_end(copied, lineage((0, 0), (4, 300)), 50) == 50


def test_epochs_before_all_that_the_log_knows_are_its_own() -> None:
    copied = segment_of(0, 199, (1, 0), (2, 100))
    assert own_end(copied, lineage((2, 120)), 50) == 200
    assert own_end(copied, lineage((3, 150)), 50) == 150
    assert own_end(copied, LeaderEpochs(), 50) == 200


def test_an_offset_is_found_in_its_segment() -> None:
    first, second = segment_of(0, 99, (0, 0)), segment_of(100, 199, (0, 100), (1, 150))
    epochs = lineage((0, 0), (1, 150))
    assert find(epochs, 0, first, second) == Stretch(first, 0, 100)
    assert find(epochs, 42, first, second) == Stretch(first, 42, 100)
    assert find(epochs, 100, first, second) == Stretch(second, 100, 200)
    assert find(epochs, 199, first, second) == Stretch(second, 199, 200)
    assert find(epochs, 200, first, second) is None


def test_a_gap_leads_to_the_next_segment() -> None:
    first, second = segment_of(10, 99, (0, 10)), segment_of(105, 199, (2, 105))
    epochs = lineage((0, 0), (2, 105), (3, 200))
    assert find(epochs, 3, first, second) == Stretch(first, 10, 100)
    assert find(epochs, 100, first, second) == Stretch(second, 105, 200)
    assert find(epochs, 104, first, second) == Stretch(second, 105, 200)


def test_a_gap_is_not_filled_by_another_lineage() -> None:
    divergent = segment_of(100, 180, (2, 100))
    own = segment_of(120, 199, (3, 120))
    epochs = lineage((1, 0), (3, 120))
    assert find(epochs, 100, divergent, own) == Stretch(own, 120, 200)
    assert find(epochs, 100, divergent) is None


def test_unfinished_copies_are_not_read() -> None:
    begun = segment_of(0, 99, (0, 0), state=SegmentState.COPY_STARTED)
    going = segment_of(100, 199, (0, 100), state=SegmentState.DELETE_STARTED)
    last = segment_of(200, 299, (0, 200))
    assert find(lineage((0, 0)), 50, begun, going, last) == Stretch(last, 200, 300)
    assert find(lineage((0, 0)), 50, begun, going) is None


def test_a_log_without_epochs_reads_what_there_is() -> None:
    first, second = segment_of(0, 99, (0, 0)), segment_of(100, 199, (1, 100))
    assert find(LeaderEpochs(), 50, first, second) == Stretch(first, 50, 100)
    assert find(lineage((2, 300)), 120, first, second) == Stretch(second, 120, 200)


def late(
    epochs: LeaderEpochs, timestamp: int, offset: int, *segments: RemoteSegment
) -> list[Stretch]:
    found = late_stretches(ListedMetadata(segments), ORDERS.key, epochs, timestamp, offset)
    return [each for each in found if each is not None]


def test_segments_that_are_too_old_are_passed_over_unless_their_time_is_unknown() -> None:
    old = segment_of(0, 99, (0, 0), max_timestamp_ms=500)
    unknown = segment_of(100, 199, (0, 100), max_timestamp_ms=-1)
    late_one = segment_of(200, 299, (0, 200), max_timestamp_ms=1000)
    epochs = lineage((0, 0))
    assert late(epochs, 1000, 0, old, unknown, late_one) == [
        Stretch(unknown, 100, 200),
        Stretch(late_one, 200, 300),
    ]
    assert late(epochs, 1000, 250, old, unknown, late_one) == [Stretch(late_one, 250, 300)]


def test_overlapping_segments_are_searched_once() -> None:
    large = segment_of(0, 150, (0, 0), (1, 100))
    small = segment_of(100, 199, (1, 100))
    assert late(lineage((0, 0), (1, 100)), 0, 20, large, small) == [
        Stretch(large, 20, 151),
        Stretch(small, 151, 200),
    ]


@given(st.data())
def test_every_own_record_is_found_and_no_other(data: st.DataObject) -> None:
    """A log that was cut and went on several times, and copies made at any time in between."""
    history: list[int] = []  # the epoch of each offset
    records: list[list[int]] = []
    segments = []
    epoch = 0
    for _ in range(data.draw(st.integers(1, 5))):
        epoch += data.draw(st.integers(1, 2))
        history = history[: data.draw(st.integers(0, len(history)))]
        history += [epoch] * data.draw(st.integers(1, 12))
        for _ in range(data.draw(st.integers(0, 3))):
            start = data.draw(st.integers(0, len(history) - 1))
            end = data.draw(st.integers(start, len(history) - 1))
            starts = [
                (history[each], each)
                for each in range(start, end + 1)
                if each == start or history[each] != history[each - 1]
            ]
            segments.append(segment_of(start, end, *starts))
            records.append(history)
    epochs = LeaderEpochs()
    for offset, own in enumerate(history):
        epochs.assign(own, offset)
    covered = {
        offset
        for segment, was in zip(segments, records, strict=True)
        for offset in range(segment.start_offset, segment.end_offset + 1)
        if offset < len(history) and was[offset] == history[offset]
    }
    for offset in range(len(history)):
        expected = min((each for each in covered if each >= offset), default=None)
        stretch = find(epochs, offset, *segments)
        if expected is None:
            assert stretch is None
            continue
        assert stretch is not None
        assert stretch.begin_offset == expected
        assert stretch.end_offset > expected
        assert covered.issuperset(range(stretch.begin_offset, stretch.end_offset))
        searched = [
            each
            for part in late(epochs, 0, offset, *segments)
            for each in range(part.begin_offset, part.end_offset)
        ]
        assert searched == sorted(each for each in covered if each >= offset)
