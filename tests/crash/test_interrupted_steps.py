"""Power that fails in the middle of anything: the log opens, and keeps what it promised."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from headrace.log import cutting
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.testing.disk import PowerLost, SimulatedDisk
from tests.crash.histories import (
    Truth,
    content_of,
    flush,
    open_torn,
    quiet,
    truth_of,
    write_history,
)
from tests.unit.log.logs import append

SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=200)
FLUSHED_SIZES = [300, 80, 500, 200] * 3
SEEDS = range(6)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def roll(log: Log) -> None:
    for number in range(12):
        append(log, b"%d" % number * 60)


def roll_and_flush(log: Log) -> None:
    roll(log)
    flush(log)


def truncate(log: Log) -> None:
    cutting.truncate(log, 7)


def truncate_and_go_on(log: Log) -> None:
    cutting.truncate(log, 7)
    for number in range(30):
        append(log, b"anew %d" % number * 9, leader_epoch=9)


def delete_records(log: Log) -> None:
    log.advance_high_watermark(log.end_offset)
    cutting.delete_records(log, log.end_offset - 3)


def restart(log: Log) -> None:
    cutting.restart_at(log, 1000)


def close(log: Log) -> None:
    log.close()


KEEPING_ALL = (roll, roll_and_flush, delete_records, close)


def make() -> tuple[SimulatedDisk, Log]:
    """A log of several segments, flushed but for its last batch."""
    disk = SimulatedDisk(seed=1)
    log = open_torn(disk, SETTINGS, is_clean=True)
    write_history(log, sizes=FLUSHED_SIZES)
    flush(log)
    append(log, b"not flushed")
    return disk, log


@pytest.mark.parametrize("step", [*KEEPING_ALL, truncate, truncate_and_go_on, restart])
def test_power_lost_at_any_change_leaves_a_prefix(step: Callable[[Log], None]) -> None:
    """A prefix of what the log had before, or of what it has after; all of what was flushed."""
    _, log = make()
    flushed = log.recovery_point
    before = truth_of(log)
    step(log)
    outcomes = (before, truth_of(log))
    kept = min(flushed, log.recovery_point) if step is truncate else flushed
    is_done = False
    changes = 0
    while not is_done:
        disk, log = make()
        disk.lose_power_after(changes)
        with suppress(PowerLost):
            step(log)
            is_done = True
        for seed in SEEDS:
            crashed = disk.clone(seed)
            crashed.crash()
            # A truncation comes to the directory's checkpoint before the next append.
            noted = log.recovery_point if step is truncate_and_go_on else flushed
            opened = open_torn(crashed, SETTINGS, recovery_point=noted)
            where = f"{step.__name__}, power lost after {changes} changes, seed {seed}"
            assert any(_is_prefix(opened, truth) for truth in outcomes), where
            if step in (*KEEPING_ALL, truncate):
                assert opened.end_offset >= kept, where
            append(opened, b"and it goes on")
        changes += 1


@pytest.mark.parametrize("seed", SEEDS)
def test_power_lost_at_any_change_of_a_recovery_leaves_it_to_the_next_one(seed: int) -> None:
    origin, log = make()
    flushed = log.recovery_point
    for number in range(20):
        append(log, b"%d" % number * 60)
    truth = truth_of(log)
    origin = origin.clone(seed)
    origin.crash()
    is_done = False
    changes = 0
    while not is_done:
        disk = origin.clone(seed + changes)
        disk.lose_power_after(changes)
        with suppress(PowerLost):
            open_torn(disk, SETTINGS, recovery_point=flushed)
            is_done = True
        disk.crash()
        opened = open_torn(disk, SETTINGS, recovery_point=flushed)
        assert _is_prefix(opened, truth), f"power lost after {changes} changes, seed {seed}"
        assert opened.end_offset >= flushed
        changes += 1


def _is_prefix(log: Log, truth: Truth) -> bool:
    """Say whether the log has, from its start to its end, what the truth has."""
    kept = [
        (data, end)
        for data, end in zip(truth.batches, truth.ends, strict=True)
        if log.start_offset < end <= log.end_offset
    ]
    is_whole = not kept or kept[-1][1] == log.end_offset
    return is_whole and content_of(log) == b"".join(data for data, _ in kept)
