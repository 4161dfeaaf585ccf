"""What the model and the sweeps found in a young log, each in its smallest form."""

import asyncio

import pytest

from headrace.errors import ErrorCode
from headrace.log import cutting, lookup
from headrace.log.errors import CorruptLog
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import (
    FOLDER,
    NOW_MS,
    append,
    batch_of,
    end_transaction,
    open_simulated,
    values_of,
)

SMALL = LogSettings(segment_bytes=200, index_interval_bytes=1)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=1)


def test_flush_messages_of_one_wants_a_flush_after_each_record(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(flush_messages=1))
    append(log, b"a")
    assert log.wants_flush
    asyncio.run(log.flush())
    assert not log.wants_flush
    end_transaction(log, 1, is_commit=True)
    assert log.wants_flush


def test_the_first_append_after_an_open_rolls_an_old_segment(disk: SimulatedDisk) -> None:
    settings = LogSettings(segment_ms=1000)
    log = open_simulated(disk, settings)
    append(log, b"old", timestamp=NOW_MS - 5000)
    log.close()
    log = open_simulated(disk, settings)
    append(log, b"new", timestamp=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_segment_without_batches_is_not_rolled(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    assert log.roll(0) is log.segments[0]
    assert len(log.segments) == 1


def test_a_follower_takes_a_marker_that_compaction_has_emptied(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    empty = BatchBuilder().build(
        producer_id=1, producer_epoch=0, is_control=True, is_transactional=True, last_offset_delta=0
    )
    assert log.append_replicated(memoryview(empty)) == 1


def test_the_largest_timestamp_is_not_that_of_a_deleted_record(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    for timestamp in (NOW_MS, NOW_MS - 3, NOW_MS - 1, NOW_MS - 2):
        append(log, b"", timestamp=timestamp)
    log.advance_high_watermark(4)
    cutting.delete_records(log, 1)
    found = lookup.find(log, lookup.SpecialTimestamp.MAX_TIMESTAMP)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS - 1, 2)


def test_records_without_a_timestamp_are_not_deleted_for_their_age(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(retention_ms=1000))
    append(log, b"ageless", timestamp=-1)
    log.advance_high_watermark(1)
    assert cutting.apply_retention(log, NOW_MS) == 0
    assert values_of(log) == [b"ageless"]


def test_retention_of_no_bytes_deletes_the_active_segment_too(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(retention_bytes=0))
    append(log, b"gone")
    log.advance_high_watermark(1)
    assert cutting.apply_retention(log, NOW_MS) == 1
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1, 1, 0)


def test_deleting_within_a_segment_moves_the_start_of_its_epoch(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    for epoch in (0, 0, 1, 1):
        append(log, b"", leader_epoch=epoch)
    log.advance_high_watermark(4)
    cutting.delete_records(log, 3)
    assert log.epochs.entries() == [(1, 3)]


def test_an_undecided_transaction_holds_readers_at_the_start_at_least(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, b"")
    log.advance_high_watermark(2)
    cutting.delete_records(log, 1)
    assert log.last_stable_offset == 1


def test_a_truncation_into_the_batch_of_the_start_begins_anew_at_the_start(
    disk: SimulatedDisk,
) -> None:
    log = open_simulated(disk)
    append(log, b"a", b"b", b"c")
    log.advance_high_watermark(3)
    cutting.delete_records(log, 1)
    cutting.truncate(log, 2)
    assert (log.start_offset, log.end_offset) == (1, 1)
    assert append(log, b"d").base_offset == 1
    log.close()
    assert values_of(open_simulated(disk, start_offset=1)) == [b"d"]


def test_an_epoch_that_began_before_the_recovered_segments_keeps_its_start(
    disk: SimulatedDisk,
) -> None:
    log = open_simulated(disk, SMALL)
    for epoch in (0, 1, 1, 1, 1, 1, 2):
        append(log, b"x" * 30, leader_epoch=epoch)
    asyncio.run(log.flush())
    opened = open_simulated(disk, SMALL, is_clean=False, recovery_point=log.segments[2].base_offset)
    assert opened.epochs.entries() == [(0, 0), (1, 1), (2, 6)]


def test_a_snapshot_from_before_the_first_segment_is_of_no_use(disk: SimulatedDisk) -> None:
    """The batches between were deleted; their producers' sequences would be out of order."""
    log = open_simulated(disk, SMALL)
    for sequence in range(2):
        append(log, b"x" * 30, producer_id=1, producer_epoch=0, base_sequence=sequence)
    log.close()
    log = open_simulated(disk, SMALL)
    for sequence in range(2, 9):
        append(log, b"x" * 30, producer_id=1, producer_epoch=0, base_sequence=sequence)
    for _ in range(4):
        append(log, b"x" * 30)
    log.advance_high_watermark(log.end_offset)
    cutting.delete_records(log, log.end_offset)
    opened = open_simulated(disk, SMALL, is_clean=False, recovery_point=2)
    assert opened.producers.get(1) is None


def test_indexes_that_a_deletion_left_behind_are_not_those_of_a_new_segment(
    disk: SimulatedDisk,
) -> None:
    log = open_simulated(disk, SMALL)
    for number in range(8):
        append(log, b"%d" % number * 30)
    second = log.segments[1].base_offset
    log.close()
    cut_at = log.segments[0].size_bytes
    for segment in log.segments[1:]:  # only the first of the renames of each has survived
        disk.rename(segment.path(".log"), segment.path(".log") + ".deleted")
    assert disk.list(FOLDER)[f"{0:020d}.log"] == cut_at
    opened = open_simulated(disk, SMALL)
    assert opened.end_offset == second
    for number in range(8):
        append(opened, b"%d" % number * 10)
    asyncio.run(opened.flush())
    assert values_of(opened)[second:] == [b"%d" % number * 10 for number in range(8)]


def test_a_log_that_lost_more_than_was_deleted_goes_on_at_its_start(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"flushed")
    asyncio.run(log.flush())
    opened = open_simulated(disk, is_clean=False, recovery_point=1, start_offset=5)
    assert (opened.start_offset, opened.end_offset) == (5, 5)
    assert append(opened, b"after").base_offset == 5
    opened.close()
    assert values_of(open_simulated(disk, start_offset=5)) == [b"after"]


def test_a_log_said_to_be_closed_that_ends_within_a_batch_does_not_open(
    disk: SimulatedDisk,
) -> None:
    log = open_simulated(disk)
    append(log, b"a")
    append(log, b"b")
    log.close()
    name = f"{0:020d}.log"
    disk.truncate_file(f"{FOLDER}/{name}", disk.list(FOLDER)[name] - 1)
    with pytest.raises(CorruptLog, match="within a batch") as error:
        open_simulated(disk)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_producer_of_a_batch_that_was_refused_for_space_may_send_it_again(
    disk: SimulatedDisk,
) -> None:
    log = open_simulated(disk)
    batch = batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    disk.fill_up(10)
    with pytest.raises(Exception, match="No space left"):
        log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    disk.fill_up(1 << 30)
    assert not log.append(batch, leader_epoch=0, now_ms=NOW_MS).is_duplicate
