"""Look-ups across the boundary between the tier and the disk."""

import asyncio
from typing import Any, cast

from msgspec.structs import replace

from headrace.log.cutting import apply_retention, truncate
from headrace.log.log import Log
from headrace.log.lookup import Found, Work, find
from headrace.log.settings import LogSettings
from headrace.replication.partition import Partition
from headrace.replication.remote_log import NoTier, RemoteLog, find_by_time
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import NOW_MS, batch_of, open_simulated

SETTINGS = replace(
    LogSettings(segment_bytes=200),
    is_tiered=True,
    is_copied=True,
    is_deleted_by_age=True,
    local_retention_ms=-1,
)


def tiered_log(count: int) -> Log:
    log = open_simulated(SimulatedDisk(seed=0), SETTINGS)
    for number in range(count):
        log.append(
            batch_of(b"%d" % number, timestamp=NOW_MS + number), leader_epoch=0, now_ms=NOW_MS
        )
    log.advance_high_watermark(log.end_offset)
    log.flusher.prepare().run()
    log.recovery_point = log.end_offset
    return log


class WholeLog(NoTier):
    """A tier that has a copy of a log, of which it answers for what is not on the disk."""

    def __init__(self, log: Log, copy: Log) -> None:
        self._log = log
        self._copy = copy

    async def find_time(self, partition: Partition, timestamp: int) -> Found | None:
        found = find(self._copy, timestamp)
        return found if found and found.offset < self._log.local_start_offset else None


class _Partition:
    name = "orders-0"

    def __init__(self, log: Log) -> None:
        self.log = log


def test_records_that_leave_the_disk_during_a_look_up_by_time_are_not_passed_over() -> None:
    log, copy = tiered_log(20), tiered_log(20)
    wanted = log.segments[1].base_offset
    is_moved = False

    async def run(work: Work) -> Any:
        nonlocal is_moved
        result = work()
        if not is_moved:
            is_moved = True
            log.remote_end_offset = log.segments[-1].base_offset
            log.change_settings(replace(SETTINGS, local_retention_bytes=1))
            while apply_retention(log, NOW_MS):
                pass
        return result

    remote = cast(RemoteLog, WholeLog(log, copy))
    partition = cast(Partition, _Partition(log))
    found = asyncio.run(find_by_time(remote, partition, NOW_MS + wanted, run))
    assert is_moved
    assert found is not None
    assert found.offset == wanted < log.local_start_offset


def test_what_a_log_gets_after_a_cut_is_not_taken_for_what_was_in_the_tier() -> None:
    """As after an unclean election: the tier has the records that lost."""
    log = tiered_log(20)
    log.remote_end_offset = log.segments[-1].base_offset
    cut_to = log.segments[2].base_offset
    assert truncate(log, cut_to)
    for number in range(20):
        batch = batch_of(b"new %d" % number, timestamp=NOW_MS)
        log.append(batch, leader_epoch=1, now_ms=NOW_MS)
    log.advance_high_watermark(log.end_offset)
    log.change_settings(replace(SETTINGS, local_retention_bytes=1))
    while apply_retention(log, NOW_MS):
        pass
    assert log.local_start_offset <= cut_to
