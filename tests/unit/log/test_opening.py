"""Opening a log: after a clean close, after a crash, with damage."""

import logging

import pytest
from msgspec.structs import replace

from headrace.log.errors import CorruptLog
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import (
    FOLDER,
    NOW_MS,
    append,
    end_transaction,
    open_simulated,
    values_of,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
FIRST_LOG = f"{FOLDER}/00000000000000000000.log"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=5)


def numbered(disk: SimulatedDisk, count: int, settings: LogSettings = SMALL) -> Log:
    log = open_simulated(disk, settings)
    for number in range(count):
        append(log, b"%d" % number, leader_epoch=number // 10)
    log.flusher.prepare().run()
    return log


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def index_entries(segment: Segment) -> list[tuple[int, ...]]:
    return [segment.offset_index[number] for number in range(len(segment.offset_index))]


def test_a_clean_open_reads_no_batches_and_finds_all(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    log.close()
    again = open_simulated(disk, SMALL)
    assert (again.end_offset, again.recovery_point) == (30, 30)
    assert again.epochs.entries() == log.epochs.entries()
    assert values_of(again) == numbers(30)
    assert append(again, b"30").base_offset == 30


def test_a_crash_leaves_a_log_with_the_same_records_and_indexes(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    before = [index_entries(segment) for segment in log.segments]
    again = open_simulated(disk, SMALL, is_clean=False)
    assert values_of(again) == numbers(30)
    assert again.epochs.entries() == log.epochs.entries()
    assert [index_entries(segment) for segment in again.segments] == before


def test_a_torn_tail_is_cut_off_and_named(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = numbered(disk, 5, LogSettings())
    size = log.size_bytes
    log.segments[0].close()
    disk.truncate_file(FIRST_LOG, size - 3)
    with caplog.at_level(logging.WARNING):
        again = open_simulated(disk, is_clean=False)
    assert values_of(again) == numbers(4)
    assert f"{FIRST_LOG} was not whole at byte" in caplog.text
    assert append(again, b"4").base_offset == 4


def test_damage_below_the_recovery_point_is_corruption(disk: SimulatedDisk) -> None:
    numbered(disk, 5, LogSettings())
    disk.flip_bit(FIRST_LOG, 100, 0)
    with pytest.raises(CorruptLog, match=f"{FIRST_LOG} at byte .*CRC32C.*below 5 were synced"):
        open_simulated(disk, is_clean=False, recovery_point=5)


@pytest.mark.parametrize(("recovery_point", "doubtful_offset"), [(0, 2), (2, 2), (100, None)])
def test_a_gap_that_a_crash_may_have_made_in_a_compacted_log_is_doubtful(
    disk: SimulatedDisk, recovery_point: int, doubtful_offset: int | None
) -> None:
    settings = replace(SMALL, is_compacted=True)
    log = numbered(disk, 20, settings)
    later = [segment.base_offset for segment in log.segments[1:]]
    disk.truncate_file(FIRST_LOG, log.segments[0].position_of(2))
    again = open_simulated(disk, settings, is_clean=False, recovery_point=recovery_point)
    assert [segment.base_offset for segment in again.segments[1:]] == later
    assert again.doubtful_offset == doubtful_offset


def test_damage_beyond_the_recovery_point_is_named_and_kept_aside(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = numbered(disk, 5, LogSettings())
    position = log.segments[0].position_of(2)
    original = disk.read(FIRST_LOG)
    disk.flip_bit(FIRST_LOG, position + 65, 0)
    again = open_simulated(disk, is_clean=False, recovery_point=1)
    assert values_of(again) == numbers(2)
    kept = f"{FIRST_LOG}.{position}.damaged"
    assert f"{FIRST_LOG} is damaged at byte {position}" in caplog.text
    assert kept in caplog.text
    assert len(disk.read(kept)) == len(original) - position
    assert append(again, b"2").base_offset == 2


def test_producers_are_known_again_after_close_and_after_a_crash(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)
    for sequence in range(12):
        append(log, b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
    log.flusher.prepare().run()
    crashed = open_simulated(disk, SMALL, is_clean=False)
    repeated = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 11}
    assert append(crashed, b"11", **repeated).is_duplicate
    crashed.close()
    closed = open_simulated(disk, SMALL)
    assert append(closed, b"11", **repeated).is_duplicate


def test_aborted_transactions_are_known_again_after_a_crash(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)
    for sequence in range(6):
        append(
            log,
            b"x" * 80,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=1,
        )
    end_transaction(log, 7, is_commit=False)
    append(log, b"y", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=1)
    log.flusher.prepare().run()
    again = open_simulated(disk, SMALL, is_clean=False)
    again.advance_high_watermark(again.end_offset)
    assert again.aborted_transactions(0, 100) == log.aborted_transactions(0, 100) != []
    assert again.last_stable_offset == 7


def test_leftovers_of_a_crash_are_removed(disk: SimulatedDisk) -> None:
    numbered(disk, 3)
    for name in ("00000000000000000009.log.deleted", "x.tmp", "00000000000000000000.log.cleaned"):
        disk.open(f"{FOLDER}/{name}", create=True).append(b"left over")
    open_simulated(disk, SMALL)
    assert not any(
        name.endswith((".deleted", ".tmp", ".cleaned", ".swap")) for name in disk.list(FOLDER)
    )


def test_a_checkpointed_start_is_kept(disk: SimulatedDisk) -> None:
    numbered(disk, 30).close()
    assert open_simulated(disk, SMALL, start_offset=13).start_offset == 13


def test_a_new_log_may_begin_at_any_offset(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, start_offset=500)
    assert (log.start_offset, log.end_offset) == (500, 500)
    assert append(log, b"a").base_offset == 500


def test_finished_segments_that_were_not_synced_are_due_after_a_crash() -> None:
    disk = SimulatedDisk()
    settings = LogSettings(segment_bytes=400)
    log = open_simulated(disk, settings)
    for number in range(20):
        append(log, b"%d" % number)
    assert log.is_flush_due(NOW_MS)
    disk.end_process()
    opened = open_simulated(disk, settings, is_clean=False, recovery_point=3)
    assert opened.end_offset == 20
    assert opened.is_flush_due(NOW_MS)
    one = open_simulated(disk, settings, is_clean=True, recovery_point=20)
    assert not one.is_flush_due(NOW_MS)
