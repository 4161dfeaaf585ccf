"""Search in the bytes of indexes, and what is no index of a segment."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import BrokerId
from headrace.remote.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    DamagedSegment,
    Place,
    offset_behind,
    offset_of_time,
    place_of,
)
from headrace.remote.segments import RemoteSegment, SegmentEpoch, SegmentId, SegmentState
from tests.unit.tier.tiers import ORDERS

SEGMENT = RemoteSegment(
    partition=ORDERS,
    id=SegmentId(b"0123456789abcdef"),
    start_offset=100,
    end_offset=199,
    max_timestamp_ms=5000,
    broker_id=BrokerId(1),
    event_timestamp_ms=0,
    size_bytes=10_000,
    epochs=(SegmentEpoch(0, 100),),
    state=SegmentState.COPY_FINISHED,
)
OFFSETS = b"".join(OFFSET_ENTRY.pack(*entry) for entry in [(9, 500), (30, 2000), (70, 6000)])
TIMES = b"".join(TIME_ENTRY.pack(*entry) for entry in [(1000, 9), (3000, 30), (5000, 95)])


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        (100, Place(0, 199)),
        (108, Place(0, 199)),
        (109, Place(500, 109)),
        (129, Place(500, 109)),
        (130, Place(2000, 130)),
        (199, Place(6000, 170)),
    ],
)
def test_a_batch_is_looked_for_from_the_last_entry_before_it(offset: int, place: Place) -> None:
    assert place_of(OFFSETS, SEGMENT, offset) == place


def test_without_entries_a_search_begins_with_the_segment() -> None:
    assert place_of(b"", SEGMENT, 150) == Place(0, 199)
    assert offset_of_time(b"", SEGMENT, 4000) == 100
    assert offset_behind(b"", SEGMENT, 150, 10) is None


@pytest.mark.parametrize(
    ("offset", "byte_count", "behind"),
    [(100, 0, 109), (100, 1500, 130), (100, 1501, 170), (109, 1, 170), (109, 5000, None)],
)
def test_the_end_of_a_read_is_an_entry_behind_its_bytes(
    offset: int, byte_count: int, behind: int | None
) -> None:
    assert offset_behind(OFFSETS, SEGMENT, offset, byte_count) == behind


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 100), (1000, 100), (1001, 109), (3000, 109), (3001, 130), (9000, 195)],
)
def test_no_record_before_the_one_that_a_time_leads_to_is_as_late(
    timestamp: int, offset: int
) -> None:
    assert offset_of_time(TIMES, SEGMENT, timestamp) == offset


@pytest.mark.parametrize(
    "index",
    [OFFSETS[:-1], OFFSET_ENTRY.pack(50, 10_000), OFFSET_ENTRY.pack(100, 500)],
    ids=["torn", "beyond the bytes", "beyond the offsets"],
)
def test_what_does_not_fit_the_segment_is_damaged(index: bytes) -> None:
    with pytest.raises(DamagedSegment):
        offset_behind(index, SEGMENT, 100, 1)
    with pytest.raises(DamagedSegment):
        place_of(index, SEGMENT, 250)


def test_a_time_index_that_leads_out_of_the_segment_is_damaged() -> None:
    with pytest.raises(DamagedSegment):
        offset_of_time(TIME_ENTRY.pack(1000, 100), SEGMENT, 2000)


@given(st.binary(max_size=200), st.integers(100, 199), st.integers(0, 2**40))
def test_any_bytes_are_searched_or_refused(index: bytes, offset: int, number: int) -> None:
    for search in (
        lambda: place_of(index, SEGMENT, offset),
        lambda: offset_behind(index, SEGMENT, offset, number),
        lambda: offset_of_time(index, SEGMENT, number),
    ):
        with suppress(DamagedSegment):
            search()
