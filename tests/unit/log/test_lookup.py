"""Offsets by timestamp."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.cutting import delete_records
from headrace.log.lookup import (
    NOT_FOUND,
    SpecialTimestamp,
    find_max_timestamp,
    find_timestamp,
    list_offset,
)
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import NOW_MS, open_simulated, records_of

SMALL = LogSettings(segment_bytes=500, index_interval_bytes=100)


@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=25),
    is_reopened=st.booleans(),
    deleted=st.integers(0, 20),
)
def test_the_first_record_as_late_as_a_timestamp_is_found(
    batches: list[list[int]], is_reopened: bool, deleted: int
) -> None:
    disk = SimulatedDisk(seed=1)
    log = open_simulated(disk, SMALL)
    for batch in batches:
        builder = BatchBuilder()
        for timestamp in batch:
            builder.append(timestamp, None, b"some value of some length")
        log.append(memoryview(builder.build()), leader_epoch=4, now_ms=NOW_MS)
    log.advance_high_watermark(log.end_offset)
    delete_records(log, min(deleted, log.end_offset))
    if is_reopened:
        log.close()
        log = open_simulated(disk, SMALL, start_offset=log.start_offset)
    records = records_of(log)
    for timestamp in (0, 1, 25, 49, 50, 51):
        expected = next((r for r in records if r.timestamp >= timestamp), None)
        found = find_timestamp(log, timestamp)
        if expected is None:
            assert found is None
        else:
            assert found == (expected.timestamp, expected.offset, 4)


def test_the_largest_timestamp_is_found_at_its_first_record() -> None:
    log = open_simulated(SimulatedDisk(seed=1), SMALL)
    assert find_max_timestamp(log) is None
    for timestamp in (5, 9, 7, 9):
        builder = BatchBuilder()
        builder.append(timestamp, None, b"")
        log.append(memoryview(builder.build()), leader_epoch=0, now_ms=NOW_MS)
    found = find_max_timestamp(log)
    assert found is not None
    assert (found.timestamp, found.offset) == (9, 1)


@pytest.mark.parametrize("timestamp", [-1, 0, 10])
def test_an_empty_log_has_no_timestamps(timestamp: int) -> None:
    assert find_timestamp(open_simulated(SimulatedDisk(seed=1)), timestamp) is None


def test_offsets_have_names() -> None:
    log = open_simulated(SimulatedDisk(seed=1), SMALL)
    for timestamp in (5, 9, 7):
        builder = BatchBuilder()
        builder.append(timestamp, None, b"")
        log.append(memoryview(builder.build()), leader_epoch=2, now_ms=NOW_MS)
    log.advance_high_watermark(3)
    delete_records(log, 1)
    assert list_offset(log, SpecialTimestamp.EARLIEST, 3) == (-1, 1, 2)
    assert list_offset(log, SpecialTimestamp.EARLIEST_LOCAL, 3) == (-1, 1, 2)
    assert list_offset(log, SpecialTimestamp.LATEST, 3) == (-1, 3, 2)
    assert list_offset(log, SpecialTimestamp.MAX_TIMESTAMP, 3) == (9, 1, 2)
    assert list_offset(log, SpecialTimestamp.LATEST_TIERED, 3) == NOT_FOUND
    assert list_offset(log, 6, 3) == (9, 1, 2)
    assert list_offset(log, 6, 1) == NOT_FOUND
    assert list_offset(log, 10, 3) == NOT_FOUND
