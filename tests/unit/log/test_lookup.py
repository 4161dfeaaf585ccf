"""Offsets by timestamp."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import KafkaError
from headrace.log.cutting import delete_records, truncate
from headrace.log.errors import CorruptLog
from headrace.log.log import Log
from headrace.log.lookup import (
    NOT_FOUND,
    Found,
    SpecialTimestamp,
    Work,
    find,
    find_off_loop,
    list_offset,
)
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.header import HEADER_BYTES, TimestampType, assign_offset, seal
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import run_virtual
from tests.unit.log.logs import NOW_MS, append, batch_of, open_simulated, records_of

SMALL = LogSettings(segment_bytes=500, index_interval_bytes=100)
MAX = SpecialTimestamp.MAX_TIMESTAMP


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
        found = find(log, timestamp)
        if expected is None:
            assert found is None
        else:
            assert found == (expected.timestamp, expected.offset, 4)
    largest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
    expected_largest = None if largest is None else (largest.timestamp, largest.offset, 4)
    assert find(log, MAX) == expected_largest


def test_the_largest_timestamp_is_found_at_its_first_record() -> None:
    log = open_simulated(SimulatedDisk(seed=1), SMALL)
    assert find(log, MAX) is None
    for timestamp in (5, 9, 7, 9):
        builder = BatchBuilder()
        builder.append(timestamp, None, b"")
        log.append(memoryview(builder.build()), leader_epoch=0, now_ms=NOW_MS)
    found = find(log, MAX)
    assert found is not None
    assert (found.timestamp, found.offset) == (9, 1)


@pytest.mark.parametrize("timestamp", [-1, 0, 10])
def test_an_empty_log_has_no_timestamps(timestamp: int) -> None:
    assert find(open_simulated(SimulatedDisk(seed=1)), timestamp) is None


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
    assert list_offset(log, SpecialTimestamp.LATEST_TIERED, 3) == NOT_FOUND
    for timestamp in (6, SpecialTimestamp.MAX_TIMESTAMP):
        found = find(log, timestamp)
        assert list_offset(log, timestamp, 3, found) == (9, 1, 2)
        assert list_offset(log, timestamp, 1, found) == NOT_FOUND
    assert list_offset(log, 10, 3, find(log, 10)) == NOT_FOUND


def spoil(log: Log, batch: memoryview) -> None:
    """Append a batch whose records nobody can read, as an older version did."""
    spoiled = memoryview(bytearray(batch))
    spoiled[HEADER_BYTES:] = bytes(len(spoiled) - HEADER_BYTES)
    assign_offset(spoiled, log.end_offset, 0)
    seal(spoiled)
    log.append_replicated(spoiled)


def test_a_batch_that_nobody_can_read_is_passed_over_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = open_simulated(SimulatedDisk(seed=1))
    append(log, b"a", timestamp=10)
    spoil(log, batch_of(b"b", timestamp=20))
    append(log, b"c", timestamp=15)
    for _ in range(2):
        assert find(log, 12) == (15, 2, 0)
        assert find(log, 16) is None
    (line,) = caplog.messages
    assert line.startswith("orders-0: offsets 1 to 1 cannot be read, and look-ups by time pass")


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("kind", TimestampType)
def test_the_start_of_the_log_may_be_within_the_batch_that_is_latest(
    codec: Compression, kind: TimestampType
) -> None:
    log = open_simulated(SimulatedDisk(seed=1))
    builder = BatchBuilder(codec, timestamp_type=kind)
    for timestamp in (7, 9, 3, 5, 4):
        builder.append(timestamp, None, b"")
    log.append_replicated(memoryview(builder.build()))
    log.advance_high_watermark(log.end_offset)
    delete_records(log, 2)
    is_fixed = kind is TimestampType.LOG_APPEND_TIME
    assert find(log, MAX) == ((9, 2, -1) if is_fixed else (5, 3, -1))
    assert find(log, 4) == ((9, 2, -1) if is_fixed else (5, 3, -1))


def test_work_is_handed_out_and_goes_on_with_what_came_of_it() -> None:
    log = open_simulated(SimulatedDisk(seed=1), SMALL)
    for timestamp in range(50):
        append(log, b"some value of some length", timestamp=timestamp)
    done = []

    async def run(work: Work) -> Any:
        done.append(work)
        return work()

    assert run_virtual(find_off_loop(log, 40, run)) == (40, 40, 0)
    assert len(done) == 1
    assert run_virtual(find_off_loop(log, 50, run)) is None


def test_a_look_up_begins_again_when_the_log_changes_under_it() -> None:
    log = open_simulated(SimulatedDisk(seed=1), SMALL)
    for timestamp in range(50):
        append(log, b"some value of some length", timestamp=timestamp)
    log.advance_high_watermark(log.end_offset)
    attempts = []

    async def run(work: Work) -> Any:
        attempts.append(work)
        if len(attempts) == 1:
            found = work()
            truncate(log, 20)
            append(log, b"other", timestamp=60)
            return found
        return work()

    assert run_virtual(find_off_loop(log, 40, run)) == Found(60, 20, 0)
    assert len(attempts) > 1


def test_a_log_that_changes_each_time_is_asked_for_again_later() -> None:
    log = open_simulated(SimulatedDisk(seed=1), SMALL)
    append(log, b"a", timestamp=10)

    async def run(work: Work) -> Any:
        log.cuts += 1
        return work()

    with pytest.raises(KafkaError) as caught:
        run_virtual(find_off_loop(log, 5, run))
    assert caught.value.is_retriable


def test_damage_is_reported_as_damage() -> None:
    disk = SimulatedDisk(seed=1)
    log = open_simulated(disk)
    append(log, b"a", timestamp=10)
    file = log.segments[0].file
    file.truncate(50)
    with pytest.raises(CorruptLog):
        find(log, 5)
