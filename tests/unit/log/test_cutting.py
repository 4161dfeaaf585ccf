"""Truncation, deletion of records, retention."""

import errno

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.log.cutting import (
    DELETED_AT_ONCE_MAX,
    apply_retention,
    delete_dropped,
    delete_records,
    find_deleted,
    remove_files,
    restart_at,
    truncate,
)
from headrace.log.errors import OffsetOutOfRange, ReadOnlyLog
from headrace.log.log import SPACE_MARGIN_BYTES, Log
from headrace.log.segment import SUFFIXES
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import (
    FOLDER,
    NOW_MS,
    append,
    end_transaction,
    open_simulated,
    records_of,
    values_of,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=3)


def numbered(disk: SimulatedDisk, count: int, settings: LogSettings = SMALL) -> Log:
    log = open_simulated(disk, settings)
    for number in range(count):
        append(log, b"%d" % number, leader_epoch=number // 10)
    log.advance_high_watermark(log.end_offset)
    return log


@pytest.mark.parametrize("offset", [0, 1, 7, 14, 29, 30, 50])
def test_truncation_leaves_what_is_below_the_offset(disk: SimulatedDisk, offset: int) -> None:
    log = numbered(disk, 30)
    assert truncate(log, offset) == (offset < 30)
    end = min(offset, 30)
    assert log.end_offset == end
    assert values_of(log) == [b"%d" % number for number in range(end)]
    assert append(log, b"new", leader_epoch=9).base_offset == end
    assert values_of(log)[-1] == b"new"
    assert all(entry.start_offset <= end for entry in log.epochs.entries())
    log.close()
    assert values_of(open_simulated(disk, SMALL)) == values_of(log)


def test_an_epoch_in_which_a_leader_appended_nothing_goes_with_its_leadership(
    disk: SimulatedDisk,
) -> None:
    log = open_simulated(disk)
    append(log, b"a", leader_epoch=1)
    log.begin_leader_epoch(2)
    assert not truncate(log, 1)
    assert [tuple(entry) for entry in log.epochs.entries()] == [(1, 0)]
    assert tuple(log.epochs.end_offset_for(1, log.end_offset)) == (1, 1)


def test_truncation_within_a_batch_takes_the_whole_batch(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    truncate(log, 3)
    assert log.end_offset == 1
    assert values_of(log) == [b"a"]


def test_truncation_below_the_start_is_out_of_range(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    delete_records(log, 20)
    with pytest.raises(OffsetOutOfRange):
        truncate(log, 19)


def test_truncation_brings_back_the_producers_of_that_time(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)
    for sequence in range(12):
        append(log, b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
    truncate(log, 5)
    assert append(log, b"5", producer_id=7, producer_epoch=0, base_sequence=5).base_offset == 5
    state = log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 5


def test_truncation_reopens_a_transaction_whose_marker_goes(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=1)
    end_transaction(log, 7, is_commit=False)
    log.advance_high_watermark(2)
    truncate(log, 1)
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 10) == []


def test_a_follower_that_fell_behind_begins_anew(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    restart_at(log, 100)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (100, 100, 100)
    assert log.epochs.entries() == []
    assert append(log, b"new").base_offset == 100
    assert values_of(log) == [b"new"]


def test_deleted_records_are_gone_at_once_and_their_segments_too(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    before = len(log.segments)
    assert delete_records(log, 17) == 17
    assert [record.offset for record in records_of(log)] == list(range(17, 30))
    assert len(log.segments) < before
    with pytest.raises(OffsetOutOfRange):
        log.read(16, 100, up_to=30)
    assert delete_records(log, 5) == 17
    assert delete_records(log, -1) == 30
    assert append(log, b"new").base_offset == 30


def test_records_above_the_high_watermark_cannot_be_deleted(disk: SimulatedDisk) -> None:
    log = numbered(disk, 10)
    append(log, b"unreplicated")
    with pytest.raises(KafkaError, match="the high watermark is 10") as refusal:
        delete_records(log, 11)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_retention_by_time_deletes_whole_old_segments(disk: SimulatedDisk) -> None:
    settings = LogSettings(segment_bytes=400, retention_ms=1000)
    log = open_simulated(disk, settings)
    for number in range(30):
        append(log, b"%d" % number, timestamp=NOW_MS - 3000 + 100 * number)
    log.advance_high_watermark(30)
    assert apply_retention(log, NOW_MS) > 0
    first = log.segments[0]
    assert first.largest_timestamp >= NOW_MS - 1000
    assert log.start_offset == first.base_offset
    assert apply_retention(log, NOW_MS) == 0


def test_a_log_that_is_old_as_a_whole_becomes_empty_and_goes_on(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    assert apply_retention(log, NOW_MS + log.settings.retention_ms + 1) > 0
    assert (log.start_offset, log.end_offset) == (30, 30)
    assert values_of(log) == []
    assert append(log, b"new").base_offset == 30


def test_retention_by_size_keeps_at_least_that_much(disk: SimulatedDisk) -> None:
    settings = LogSettings(segment_bytes=400, retention_bytes=1000, retention_ms=-1)
    log = numbered(disk, 60, settings)
    apply_retention(log, NOW_MS)
    assert 1000 <= log.size_bytes < 1400 + 400


def test_retention_keeps_what_is_not_replicated(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(segment_bytes=400, retention_ms=0))
    for number in range(30):
        append(log, b"%d" % number, timestamp=1000)
    log.advance_high_watermark(5)
    apply_retention(log, NOW_MS)
    assert log.start_offset <= 5


def old_log(disk: SimulatedDisk, count: int, segment_bytes: int) -> Log:
    settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=100, retention_ms=1000)
    log = open_simulated(disk, settings)
    for number in range(count):
        append(log, b"%d" % number, timestamp=NOW_MS - 5000)
    log.advance_high_watermark(count)
    return log


def fill_up(disk: SimulatedDisk, log: Log) -> None:
    disk.fill_up(0)
    with pytest.raises(ReadOnlyLog):
        append(log, b"refused")


def free_what_is_deleted(disk: SimulatedDisk, log: Log) -> None:
    find_deleted(log, NOW_MS)
    remove_files(disk, find_deleted(log, NOW_MS + log.settings.file_delete_delay_ms))


@pytest.mark.parametrize("segment_bytes", [400, 1_000_000])
def test_retention_makes_room_on_a_full_disk(disk: SimulatedDisk, segment_bytes: int) -> None:
    """Also if all there is is the active segment, whose indexes find no room either."""
    log = old_log(disk, 3000, segment_bytes)
    fill_up(disk, log)
    while apply_retention(log, NOW_MS):
        pass
    assert (log.start_offset, log.end_offset) == (3000, 3000)
    with pytest.raises(ReadOnlyLog):
        append(log, b"refused still: deleted files are there until the delay has passed")
    disk.fill_up(SPACE_MARGIN_BYTES - 100_000)
    free_what_is_deleted(disk, log)
    assert append(log, b"again").base_offset == 3000
    assert values_of(log) == [b"again"]


def test_retention_without_room_for_a_new_segment_deletes_the_others(disk: SimulatedDisk) -> None:
    log = old_log(disk, 20, 400)
    last = log.segments[-1].base_offset
    disk.fail("create", error=errno.ENOSPC, times=1)
    with pytest.raises(ReadOnlyLog):
        apply_retention(log, NOW_MS)
    assert log.is_out_of_space
    assert log.start_offset == last
    assert [segment.base_offset for segment in log.segments] == [last]
    assert apply_retention(log, NOW_MS) == 1
    assert log.start_offset == 20


def test_nothing_is_synced_to_delete_the_beginning_of_a_log(disk: SimulatedDisk) -> None:
    """That is done on the loop. A crash may bring segments back, always up to a point."""
    log = old_log(disk, 30, 400)
    before = disk.counts["sync"], disk.counts["sync_folder"]
    delete_records(log, 10)
    apply_retention(log, NOW_MS)
    assert (disk.counts["sync"], disk.counts["sync_folder"]) == before
    assert log.start_offset == 30


def test_segments_below_the_start_that_a_crash_brought_back_go(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    log.close()
    again = open_simulated(disk, SMALL, start_offset=20)
    assert again.segments[0].base_offset == 0
    assert apply_retention(again, NOW_MS) > 0
    assert 10 < again.segments[0].base_offset <= 20


def test_many_segments_go_in_parts_and_at_once_for_readers(disk: SimulatedDisk) -> None:
    log = numbered(disk, 500)
    count = len(log.segments)
    assert count > 2 * DELETED_AT_ONCE_MAX
    before = disk.counts["rename"]
    assert delete_records(log, 500) == 500
    assert disk.counts["rename"] - before <= DELETED_AT_ONCE_MAX * len(SUFFIXES)
    assert log.segments[0].base_offset + 10 >= 500
    assert delete_dropped(log), "one part is not enough"
    while delete_dropped(log):
        pass
    kept = [name for name in disk.list(FOLDER) if name.endswith(".log")]
    assert kept == [f"{log.segments[0].base_offset:020d}.log"]


def test_a_segment_that_was_deleted_is_not_created_by_who_still_reads_it(
    disk: SimulatedDisk,
) -> None:
    """Compaction does so in a thread. An empty file would look like a gap to the next start."""
    log = numbered(disk, 30)
    segment = log.segments[0]
    delete_records(log, 20)
    with pytest.raises(FileNotFoundError):
        list(segment.batches())
    assert not disk.exists(segment.path(".log"))


def test_deleted_files_are_renamed_first_and_removed_after_a_delay(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    delete_records(log, 20)
    deleted = [name for name in disk.list(FOLDER) if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in deleted
    delay_ms = log.settings.file_delete_delay_ms
    assert find_deleted(log, NOW_MS) == []
    assert find_deleted(log, NOW_MS + delay_ms - 1) == []
    due = find_deleted(log, NOW_MS + delay_ms)
    assert sorted(due) == sorted(f"{FOLDER}/{name}" for name in deleted)
    remove_files(disk, due)
    assert not any(name.endswith(".deleted") for name in disk.list(FOLDER))
    assert values_of(log) == [b"%d" % number for number in range(20, 30)]
