"""A file that ends anywhere: the log opens with a prefix of what it had, or names the damage."""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import pytest

from headrace.log.errors import CorruptLog
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from tests.crash.histories import (
    Truth,
    content_of,
    flush,
    open_torn,
    quiet,
    truth_of,
    write_history,
)
from tests.unit.log.logs import FOLDER

SWEPT_BYTES = 64 * 1024
SMALL_FILES = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")


class Written(NamedTuple):
    """A log on a disk that is to be cloned, and everything that was in it."""

    disk: SimulatedDisk
    settings: LogSettings
    truth: Truth
    end_offset: int


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.fixture(scope="module")
def long() -> Written:
    """One segment of more than 64 KiB; all of it is synced."""
    sizes = [100, 300, 60, 1500, *[36_000] * 3, 200, 700, 60]
    return _written(LogSettings(index_interval_bytes=2000), sizes)


@pytest.fixture(scope="module")
def rolled() -> Written:
    """A log of several segments with indexes, snapshots and epochs; all of it is synced."""
    return _written(LogSettings(segment_bytes=3000, index_interval_bytes=200), [300, 80, 500] * 10)


def _written(settings: LogSettings, sizes: list[int]) -> Written:
    disk = SimulatedDisk(seed=3)
    log = open_torn(disk, settings, is_clean=True)
    write_history(log, sizes=sizes)
    flush(log)
    truth = truth_of(log)
    assert content_of(log) == b"".join(truth.batches)
    log.close()
    return Written(disk, settings, truth, log.end_offset)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_log_cut_at_any_byte_is_a_prefix_or_named_corruption(long: Written, step: int) -> None:
    path = f"{FOLDER}/00000000000000000000.log"
    size = long.disk.list(FOLDER)["00000000000000000000.log"]
    assert size > SWEPT_BYTES
    everything = b"".join(long.truth.batches)
    positions = [0, *accumulate(len(batch) for batch in long.truth.batches)]
    end_at = dict(zip(positions, [0, *long.truth.ends], strict=True))
    recovery_points = (0, long.truth.ends[len(positions) // 2], long.truth.ends[-3])
    whole = 0
    for cut in range(size - SWEPT_BYTES, size, step):
        while whole + 1 < len(positions) and positions[whole + 1] <= cut:
            whole += 1
        recovery_point = recovery_points[cut % len(recovery_points)]
        disk = long.disk.clone()
        disk.truncate_file(path, cut)
        end_offset = end_at[positions[whole]]
        opened = _open(disk, long.settings, recovery_point)
        if isinstance(opened, CorruptLog):
            assert (opened.path, opened.position) == (path, positions[whole])
            assert end_offset < recovery_point
        else:
            assert opened.end_offset == end_offset
            assert content_of(opened) == everything[: positions[whole]]


def _open(disk: SimulatedDisk, settings: LogSettings, recovery_point: int) -> Log | CorruptLog:
    try:
        return open_torn(disk, settings, recovery_point=recovery_point)
    except CorruptLog as error:
        return error


@pytest.mark.parametrize("ending", SMALL_FILES)
@pytest.mark.parametrize("is_clean", [True, False])
def test_any_other_file_cut_at_any_byte_costs_no_record(
    rolled: Written, ending: str, is_clean: bool
) -> None:
    everything = b"".join(rolled.truth.batches)
    names = [name for name in rolled.disk.list(FOLDER) if name.endswith(ending)]
    assert names
    for name in names:
        for size in range(rolled.disk.list(FOLDER)[name]):
            for recovery_point in (0, rolled.end_offset // 2, rolled.end_offset):
                disk = rolled.disk.clone()
                disk.truncate_file(f"{FOLDER}/{name}", size)
                log = open_torn(
                    disk, rolled.settings, recovery_point=recovery_point, is_clean=is_clean
                )
                assert content_of(log) == everything
                assert log.end_offset == rolled.end_offset
                if is_clean:
                    break


@pytest.mark.parametrize("is_clean", [True, False])
def test_any_other_file_that_is_gone_costs_nothing_that_the_log_says(
    rolled: Written, is_clean: bool
) -> None:
    """Operators delete indexes to have them built again."""
    whole = open_torn(rolled.disk.clone(), rolled.settings, is_clean=True)
    for name in rolled.disk.list(FOLDER):
        if name.endswith((".log", ".txnindex")):
            continue
        disk = rolled.disk.clone()
        disk.remove(f"{FOLDER}/{name}")
        log = open_torn(disk, rolled.settings, recovery_point=rolled.end_offset, is_clean=is_clean)
        assert log.epochs.entries() == whole.epochs.entries()
        assert [segment.largest_timestamp for segment in log.segments] == [
            segment.largest_timestamp for segment in whole.segments
        ]
        assert log.aborted_transactions(0, log.end_offset) == whole.aborted_transactions(
            0, whole.end_offset
        )
        assert [(s.producer_id, s.epoch, s.last_sequence) for s in log.producers] == [
            (s.producer_id, s.epoch, s.last_sequence) for s in whole.producers
        ]


def test_a_segment_that_is_missing_ends_the_log_before_it(rolled: Written) -> None:
    whole = open_torn(rolled.disk.clone(), rolled.settings, is_clean=True)
    bases = [segment.base_offset for segment in whole.segments]
    disk = rolled.disk.clone()
    disk.remove(f"{FOLDER}/{bases[2]:020d}.log")
    log = open_torn(disk, rolled.settings, recovery_point=0)
    assert log.end_offset == bases[2]
    assert content_of(log) == b"".join(rolled.truth.up_to(bases[2]))
    disk = rolled.disk.clone()
    disk.remove(f"{FOLDER}/{bases[2]:020d}.log")
    with pytest.raises(CorruptLog, match=f"next begins at offset {bases[3]}"):
        open_torn(disk, rolled.settings, recovery_point=bases[2] + 1)
