"""Truncation in steps: what the loop does, what a thread does, and what happens in between."""

import errno
from collections.abc import Callable

import pytest

from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.log.truncating import Cut, begin_for, begin_restart, begin_truncation
from headrace.records.header import assign_offset
from headrace.testing.disk import Operation, SimulatedDisk
from tests.unit.log.logs import NOW_MS, append, batch_of, open_simulated, values_of

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
SLOW: tuple[Operation, ...] = ("rename", "sync", "sync_folder", "remove")
"""What takes long, and grows with the segments that go."""


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=3)


def numbered(disk: SimulatedDisk, count: int) -> Log:
    log = open_simulated(disk, SMALL)
    for number in range(count):
        append(
            log,
            b"%d" % number,
            leader_epoch=number // 10,
            timestamp=NOW_MS + (number * 7) % 50,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
        )
    log.advance_high_watermark(log.end_offset)
    return log


def cut_at_17(log: Log) -> Cut:
    cut = begin_truncation(log, 17)
    assert cut is not None
    return cut


@pytest.mark.parametrize("begin", [cut_at_17, lambda log: begin_restart(log, 17)])
def test_readers_see_the_cut_at_once_and_the_loop_does_nothing_slow(
    disk: SimulatedDisk, begin: Callable[[Log], Cut]
) -> None:
    log = numbered(disk, 60)
    before = [disk.counts[name] for name in SLOW]
    cut = begin(log)
    assert (log.end_offset, log.high_watermark) == (17, 17)
    kept = [b"%d" % number for number in range(log.start_offset, 17)]
    assert values_of(log) == kept
    with pytest.raises(ReadOnlyLog):
        append(log, b"too early")
    assert [disk.counts[name] for name in SLOW] == before
    cut.run()
    during = dict(disk.counts)
    cut.finish()
    assert dict(disk.counts) == during
    append(log, b"new", leader_epoch=9)
    assert values_of(log) == [*kept, b"new"]
    log.close()
    assert values_of(open_simulated(disk, SMALL, start_offset=log.start_offset)) == [*kept, b"new"]


@pytest.mark.parametrize("operation", ["rename", "sync_folder", "truncate", "list"])
def test_what_failed_half_way_is_done_again(disk: SimulatedDisk, operation: str) -> None:
    log = numbered(disk, 60)
    cut = cut_at_17(log)
    disk.fail(operation, error=errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="No space left"):
        cut.run()
    cut.run()
    cut.finish()
    state = log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 16
    assert append(log, b"17", producer_id=7, producer_epoch=0, base_sequence=17).base_offset == 17
    log.close()
    assert len(values_of(open_simulated(disk, SMALL))) == 18


def test_a_log_that_was_full_is_tried_again_after_its_truncation(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    disk.fill_up(0)
    with pytest.raises(ReadOnlyLog):
        append(log, b"no room")
    cut = cut_at_17(log)
    cut.run()
    cut.finish()
    assert log.is_out_of_space
    disk.make_room()
    assert append(log, b"room").base_offset == 17


def test_a_disk_that_fails_meanwhile_keeps_the_log_read_only(disk: SimulatedDisk) -> None:
    log = numbered(disk, 30)
    cut = cut_at_17(log)
    log.fail(OSError(errno.EIO, "failed"))
    cut.run()
    cut.finish()
    with pytest.raises(ReadOnlyLog, match="failed"):
        append(log, b"")
    with pytest.raises(ReadOnlyLog):
        begin_truncation(log, 3)
    with pytest.raises(ReadOnlyLog):
        begin_restart(log, 3)


def test_an_empty_log_moves_to_a_batch_far_beyond_its_segment(disk: SimulatedDisk) -> None:
    """A compacted topic may have lost more offsets than one segment can have."""
    batch = batch_of(b"far")
    assign_offset(batch, 2**31 + 5, 0)
    log = open_simulated(disk)
    cut = begin_for(log, batch)
    assert cut is not None
    cut.run()
    cut.finish()
    log.append_replicated(batch)
    assert (log.start_offset, values_of(log)) == (0, [b"far"])
