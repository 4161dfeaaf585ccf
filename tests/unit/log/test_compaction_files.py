"""The swap of files, and what is made of one that was interrupted."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from headrace.log.compaction_files import (
    complete_cleaned,
    discard_cleaned,
    finish_swap,
    finish_swaps,
    offer_swap,
)
from headrace.log.segment import file_name
from headrace.testing.disk import PowerLost, SimulatedDisk
from tests.unit.log.logs import batch_of

FOLDER = "orders-0"
BASES = (0, 10)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def write(disk: SimulatedDisk, name: str, data: bytes) -> None:
    file = disk.open(f"{FOLDER}/{name}", create=True)
    file.append(data)
    file.sync()


@pytest.fixture
def disk() -> SimulatedDisk:
    """Two old segments, and a new one for both that has no index of transactions."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.sync_folder("")
    for base in BASES:
        for suffix in SUFFIXES:
            write(disk, file_name(base, suffix), b"old")
    batch = bytes(batch_of(b"new", base_offset=12))
    write(disk, file_name(0, ".log.cleaned"), batch)
    write(disk, file_name(0, ".index.cleaned"), b"new")
    write(disk, file_name(0, ".timeindex.cleaned"), b"new")
    complete_cleaned(disk, FOLDER, 0)
    disk.sync_folder(FOLDER)
    return disk


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    """The files of segments, without their zeros; opening removes those that have no log."""
    names = disk.list(FOLDER)
    return {
        name.lstrip("0"): disk.read(f"{FOLDER}/{name}")[-3:]
        for name in names
        if not name.endswith(".deleted") and f"{name[:20]}.log" in names
    }


OLD = {
    **dict.fromkeys(SUFFIXES, b"old"),
    **{f"10{suffix}": b"old" for suffix in SUFFIXES},
}
NEW = {
    ".log": bytes(batch_of(b"new", base_offset=12))[-3:],
    ".index": b"new",
    ".timeindex": b"new",
    ".txnindex": b"",
    ".snapshot": b"old",
}


def test_new_files_take_the_place_of_the_old_and_the_producers_stay(disk: SimulatedDisk) -> None:
    offer_swap(disk, FOLDER, 0)
    finish_swap(disk, FOLDER, 0, list(BASES))
    assert contents(disk) == NEW


def test_old_files_can_be_read_on(disk: SimulatedDisk) -> None:
    files = [disk.open(f"{FOLDER}/{file_name(base, '.log')}") for base in BASES]
    offer_swap(disk, FOLDER, 0)
    finish_swap(disk, FOLDER, 0, list(BASES))
    assert [file.read(0, 3) for file in files] == [b"old", b"old"]


def test_what_was_not_offered_is_removed_when_the_log_is_opened(disk: SimulatedDisk) -> None:
    finish_swaps(disk, FOLDER)
    assert contents(disk) == OLD


def test_what_was_discarded_leaves_nothing(disk: SimulatedDisk) -> None:
    disk.fail("rename", "*.log.cleaned")
    with pytest.raises(OSError, match="Input/output"):
        offer_swap(disk, FOLDER, 0)
    discard_cleaned(disk, FOLDER, 0)
    assert contents(disk) == OLD


def test_swap_is_done_or_undone_wherever_crashes_stop_it(disk: SimulatedDisk) -> None:
    outcomes = set()
    for first in range(20):
        for second in range(20):
            twin = disk.clone(first * 20 + second)
            _stopped_after(twin, first, partial(_swap, twin))
            _stopped_after(twin, second, partial(finish_swaps, twin, FOLDER))
            finish_swaps(twin, FOLDER)
            assert contents(twin) in (OLD, NEW), (first, second)
            outcomes.add(contents(twin) == NEW)
    assert outcomes == {True, False}


def _swap(disk: SimulatedDisk) -> None:
    offer_swap(disk, FOLDER, 0)
    finish_swap(disk, FOLDER, 0, list(BASES))


def _stopped_after(disk: SimulatedDisk, changes: int, work: Callable[[], None]) -> None:
    disk.lose_power_after(changes)
    with suppress(PowerLost):
        work()
    disk.crash()
