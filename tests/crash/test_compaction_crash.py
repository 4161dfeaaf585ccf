"""A compaction that a crash interrupts, at every change that it makes to the disk."""

import asyncio
from contextlib import suppress

import pytest

from headrace.log.compaction import compact
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.testing.disk import PowerLost, SimulatedDisk
from tests.unit.log.keyed import headers_of, open_compacted, put, roll, table_of
from tests.unit.log.logs import NOW_MS, end_transaction, open_simulated

SETTINGS = LogSettings(
    is_compacted=True, segment_bytes=400, index_interval_bytes=100, delete_retention_ms=0
)
SEEDS = 4
some_seeds = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, SEEDS))]
)


def prepared(disk: SimulatedDisk) -> Log:
    """A log of several groups, with an aborted transaction, a tombstone and an idle producer."""
    log = open_compacted(disk, SETTINGS)
    put(log, (b"idle", b"1"), producer_id=9, producer_epoch=0, base_sequence=0)
    for number in range(12):
        put(log, (b"key-%d" % (number % 5), b"%d" % number), (b"same", b"%d" % number))
        if number == 4:
            put(log, (b"same", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0,
                is_transactional=True)  # fmt: skip
            end_transaction(log, 1, is_commit=False)
        if number % 2:
            roll(log)
    put(log, (b"key-0", None), (b"idle", b"2"))
    roll(log)
    put(log, (b"active", b"1"))
    asyncio.run(log.flush())
    return log


def latest(log: Log) -> dict[bytes | None, bytes]:
    """What a reader of committed records has of each key that is not deleted."""
    aborted = log.aborted_transactions(0, log.end_offset)
    gone = {
        offset
        for header in headers_of(log)
        for offset in range(header.base_offset, header.next_offset)
        for transaction in aborted
        if header.producer_id == transaction.producer_id
        and transaction.first_offset <= header.base_offset <= transaction.last_offset
    }
    read = {key: value for offset, key, value in table_of(log) if offset not in gone}
    return {key: value for key, value in read.items() if value is not None}


def changes_of_a_pass() -> int:
    disk = SimulatedDisk()
    log = prepared(disk)
    before = disk.counts.total()
    asyncio.run(compact(log, NOW_MS))
    return disk.counts.total() - before


@some_seeds
def test_crash_at_any_point_of_a_pass_loses_no_key(seed: int) -> None:
    origin = SimulatedDisk(seed)
    log = prepared(origin)
    expected = latest(log)
    producers = sorted(state.producer_id for state in log.producers)
    for changes in range(changes_of_a_pass()):
        disk = origin.clone()
        log = open_simulated(disk, SETTINGS, is_clean=False, recovery_point=log.end_offset)
        log.advance_high_watermark(log.end_offset)
        disk.lose_power_after(changes)
        is_over = False
        with suppress(PowerLost):
            asyncio.run(compact(log, NOW_MS))
            is_over = True
        end_offset = log.end_offset
        disk.crash()
        again = open_simulated(disk, SETTINGS, is_clean=False, recovery_point=end_offset)
        assert again.end_offset == end_offset
        assert latest(again) == expected, changes
        assert sorted(state.producer_id for state in again.producers) == producers
        offsets = [header.base_offset for header in headers_of(again)]
        assert offsets == sorted(set(offsets)), changes
        assert not any(name.endswith((".cleaned", ".swap")) for name in disk.list(again.folder))
        _check_indexes(again)
        again.advance_high_watermark(end_offset)
        asyncio.run(compact(again, NOW_MS))
        assert latest(again) == expected, changes
        if is_over:
            return
    raise AssertionError("the pass never came to its end")


def _check_indexes(log: Log) -> None:
    for segment in log.segments:
        positions = {position: header.last_offset for position, header in segment.batches()}
        for index in range(len(segment.offset_index)):
            offset, position = segment.offset_index[index]
            assert positions[position] == segment.base_offset + offset
        if segment.size_bytes > 3 * SETTINGS.index_interval_bytes:
            assert len(segment.offset_index) > 0


@some_seeds
def test_crash_while_a_crashed_swap_is_finished_loses_nothing_either(seed: int) -> None:
    origin = SimulatedDisk(seed)
    log = prepared(origin)
    expected, end_offset = latest(log), log.end_offset
    for changes in range(seed, changes_of_a_pass(), 2 * SEEDS):
        disk = origin.clone()
        log = open_simulated(disk, SETTINGS, is_clean=False, recovery_point=end_offset)
        log.advance_high_watermark(log.end_offset)
        disk.lose_power_after(changes)
        with suppress(PowerLost):
            asyncio.run(compact(log, NOW_MS))
        disk.crash()
        for second in range(12):
            twin = disk.clone(seed + second)
            twin.lose_power_after(second)
            with suppress(PowerLost):
                open_simulated(twin, SETTINGS, is_clean=False, recovery_point=end_offset)
            twin.crash()
            again = open_simulated(twin, SETTINGS, is_clean=False, recovery_point=end_offset)
            assert latest(again) == expected, (changes, second)
            _check_indexes(again)
