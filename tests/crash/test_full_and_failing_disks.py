"""A disk that is full or fails: the log turns read-only and says why, and loses nothing."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from headrace.errors import ErrorCode
from headrace.log import cutting
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.testing.disk import ALWAYS, SimulatedDisk
from tests.crash.histories import content_of, open_torn, truth_of
from tests.unit.log.logs import FOLDER, append, end_transaction

SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=100)
MUCH_BYTES = 1 << 30


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=11)


def test_a_disk_that_fills_up_anywhere_costs_nothing_that_was_taken() -> None:
    """In the middle of a batch, an index, a snapshot, a roll or a flush."""
    is_full = True
    room = 0
    while is_full:
        disk = SimulatedDisk(seed=room)
        log = open_torn(disk, SETTINGS, is_clean=True)
        append(log, b"before")
        disk.fill_up(room)
        taken, refusals = _append_and_flush(log, 12)
        is_full = refusals > 0
        assert taken == log.end_offset - 1
        whole = truth_of(log)
        assert content_of(log) == b"".join(whole.batches), f"{room} bytes of room"
        disk.fill_up(MUCH_BYTES)
        _append_and_flush(log, 6)
        assert log.failure is None
        asyncio.run(log.flush())
        now = truth_of(log)
        assert now.batches[: len(whole.batches)] == whole.batches
        disk.crash()
        opened = open_torn(disk, SETTINGS, recovery_point=log.recovery_point)
        assert truth_of(opened) == now, f"{room} bytes of room"
        assert opened.epochs.entries() == log.epochs.entries()
        room += 37


def _append_and_flush(log: Log, count: int) -> tuple[int, int]:
    taken = 0
    refusals = []
    for number in range(count):
        try:
            epoch = (log.epochs.latest_epoch or 0) + number % 2
            append(log, b"%d" % number * 90, leader_epoch=epoch)
            taken += 1
            if number % 4 == 3:
                asyncio.run(log.flush())
        except ReadOnlyLog as error:
            refusals.append(error)
    assert {error.code for error in refusals} <= {ErrorCode.KAFKA_STORAGE_ERROR}
    assert all("No space left" in error.message for error in refusals)
    return taken, len(refusals)


def test_an_aborted_transaction_is_known_though_its_index_found_no_room(
    disk: SimulatedDisk,
) -> None:
    log = open_torn(disk, SETTINGS, is_clean=True)
    append(log, b"", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    disk.fail("create", "*.txnindex", error=errno.ENOSPC)
    end_transaction(log, 1, is_commit=False)
    log.advance_high_watermark(log.end_offset)
    assert [t.first_offset for t in log.aborted_transactions(0, log.end_offset)] == [0]
    asyncio.run(log.flush())
    disk.crash()
    opened = open_torn(disk, SETTINGS, recovery_point=log.recovery_point)
    assert [t.first_offset for t in opened.aborted_transactions(0, log.end_offset)] == [0]


def test_a_batch_that_cannot_be_cut_off_again_is_cut_off_when_space_returns(
    disk: SimulatedDisk,
) -> None:
    log = open_torn(disk, LogSettings(), is_clean=True)
    append(log, b"before")
    disk.fill_up(20)
    disk.fail("truncate", "*.log")
    with pytest.raises(ReadOnlyLog, match="cannot be cut off again"):
        append(log, b"torn")
    disk.fill_up(MUCH_BYTES)
    assert append(log, b"after").base_offset == 1
    log.close()
    opened = open_torn(disk, LogSettings(), is_clean=True)
    assert [batch[-6:-1] for batch in truth_of(opened).batches] == [b"efore", b"after"]


def test_a_full_disk_is_emptied_by_retention_and_goes_on(disk: SimulatedDisk) -> None:
    log = open_torn(disk, LogSettings(segment_bytes=1500, retention_bytes=0), is_clean=True)
    for number in range(40):
        append(log, b"%d" % number * 90)
    log.advance_high_watermark(log.end_offset)
    disk.fill_up(0)
    with pytest.raises(ReadOnlyLog):
        append(log, b"too much" * 200)
    with pytest.raises(ReadOnlyLog):
        append(log, b"still too much" * 200)
    disk.fill_up(MUCH_BYTES)
    assert cutting.apply_retention(log, 0) > 0
    assert append(log, b"fits").base_offset == 40


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_failed_is_for_good_until_the_log_is_opened_again(
    disk: SimulatedDisk, error: int
) -> None:
    """Even for want of space: the kernel has forgotten what it could not write."""
    log = open_torn(disk, SETTINGS, is_clean=True)
    append(log, b"durable")
    asyncio.run(log.flush())
    append(log, b"not durable")
    disk.fail("sync", "*.log", error=error)
    with pytest.raises(ReadOnlyLog):
        asyncio.run(log.flush())
    assert log.recovery_point == 1
    for _ in range(2):
        with pytest.raises(ReadOnlyLog):
            append(log, b"refused")
        with pytest.raises(ReadOnlyLog):
            asyncio.run(log.flush())
    with pytest.raises(OSError, match="earlier sync"):
        log.close()
    disk.crash()
    opened = open_torn(disk, SETTINGS, recovery_point=log.recovery_point)
    assert 1 <= opened.end_offset <= 2
    append(opened, b"it goes on")
    asyncio.run(opened.flush())


def test_an_append_that_fails_changes_nothing_and_reads_go_on(disk: SimulatedDisk) -> None:
    log = open_torn(disk, SETTINGS, is_clean=True)
    append(log, b"before")
    whole = content_of(log)
    disk.fail("append", "*.log", times=ALWAYS)
    with pytest.raises(ReadOnlyLog, match="Input/output error"):
        append(log, b"refused")
    disk.heal()
    with pytest.raises(ReadOnlyLog, match="Input/output error"):
        append(log, b"a disk that failed once is not trusted again")
    assert content_of(log) == whole
    assert log.end_offset == 1


def fail_index(disk: SimulatedDisk) -> None:
    disk.fail("append", "*.index")


def fail_new_segment(disk: SimulatedDisk) -> None:
    disk.fail("create", "*.log")


def fail_time_index(disk: SimulatedDisk) -> None:
    disk.fail("create", "*.timeindex", error=errno.ENOSPC)


@pytest.mark.parametrize("break_it", [fail_index, fail_new_segment, fail_time_index])
def test_a_roll_that_fails_changes_nothing(
    disk: SimulatedDisk, break_it: Callable[[SimulatedDisk], None]
) -> None:
    log = open_torn(disk, SETTINGS, is_clean=True)
    while log.size_bytes + 400 < SETTINGS.segment_bytes:
        append(log, b"x" * 60)
    whole, end_offset = truth_of(log), log.end_offset
    break_it(disk)
    with pytest.raises(ReadOnlyLog):
        append(log, b"y" * 500)
    assert log.end_offset == end_offset
    assert truth_of(log) == whole
    assert [name for name in disk.list(FOLDER) if name.endswith(".log")] == [
        "00000000000000000000.log"
    ]
    log.close()
    opened = open_torn(disk, SETTINGS, is_clean=True)
    assert truth_of(opened) == whole
    assert opened.end_offset == end_offset


def test_a_truncation_that_fails_leaves_a_log_to_be_opened_again(disk: SimulatedDisk) -> None:
    log = open_torn(disk, SETTINGS, is_clean=True)
    for number in range(30):
        append(log, b"%d" % number * 90)
    asyncio.run(log.flush())
    whole = truth_of(log)
    disk.fail("truncate", "*.log")
    with pytest.raises(ReadOnlyLog):
        cutting.truncate(log, 4)
    with pytest.raises(ReadOnlyLog):
        append(log, b"refused")
    opened = open_torn(disk, SETTINGS, recovery_point=log.recovery_point)
    assert truth_of(opened).batches == whole.batches[: opened.end_offset]
    assert cutting.truncate(opened, 4)
    assert opened.end_offset == 4
