"""How compaction replaces old files with new ones, safely at any crash.

1. The new segment is written to files that end in `.cleaned`, and synced.
2. They are renamed to `.swap`, the log itself last: once `.log.swap` is there, the new segment is
   whole and the old ones are not needed any more.
3. The old segments are renamed to `.deleted`.
4. The new files take their names, the log again last.

Opening a log does steps 3 and 4 again if it finds a `.log.swap`, and else removes what is left.
The endings are Kafka's.

Names survive a crash up to any point in the order of their changes (see `Disk`), so steps 2 to 4
need no sync between them. They are done at once, on the loop: no truncation comes between, and
none that comes later can be undone by a swap that a crash finishes.
"""

from contextlib import suppress
from typing import Final

from headrace.log.disk import Disk
from headrace.log.segment import DELETED_SUFFIX, SUFFIXES, file_name
from headrace.log.walk import headers

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
_LOG_LAST: Final = (".index", ".timeindex", ".txnindex", ".log")


def complete_cleaned(disk: Disk, folder: str, base_offset: int) -> None:
    """Create an empty file for each that the old segment has and the new one lacks.

    So every file that the swap replaces has a counterpart, and a repeated swap can tell an old
    file from one that it has already replaced.
    """
    for suffix in _LOG_LAST:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path) and not disk.exists(path + CLEANED_SUFFIX):
            disk.open(path + CLEANED_SUFFIX, create=True).close()


def offer_swap(disk: Disk, folder: str, base_offset: int) -> None:
    """Do step 2 for a new segment that is complete and synced; `finish_swap` must follow at once.

    After an OSError the old segments are as they were, and `discard_cleaned` is to be called.
    """
    for suffix in _LOG_LAST:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path + CLEANED_SUFFIX):
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)


def finish_swap(disk: Disk, folder: str, base_offset: int, replaced: list[int]) -> None:
    """Do steps 3 and 4, or what is left of them; durable with the next sync of the folder.

    `replaced` are the base offsets of the replaced segments. Readers of one of them continue
    through its DiskFile. After an OSError the log is usable again once it is reopened.
    """
    for old in replaced:
        if old != base_offset:
            delete_segment(disk, folder, old)
    for suffix in _LOG_LAST:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path + SWAP_SUFFIX):
            if disk.exists(path):
                disk.rename(path, path + DELETED_SUFFIX)
            disk.rename(path + SWAP_SUFFIX, path)


def discard_cleaned(disk: Disk, folder: str, base_offset: int) -> None:
    """Remove what there is of a new segment that was not offered, as far as the disk lets."""
    for suffix in _LOG_LAST:
        for ending in (CLEANED_SUFFIX, SWAP_SUFFIX):
            with suppress(OSError):  # what is left is removed when the log is opened
                disk.remove(f"{folder}/{file_name(base_offset, suffix)}{ending}")


def delete_segment(disk: Disk, folder: str, base_offset: int) -> None:
    """Rename the files of a segment so that they count as deleted."""
    for suffix in SUFFIXES:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)


def finish_swaps(disk: Disk, folder: str) -> None:
    """Finish or undo what a crash interrupted."""
    names = disk.list(folder)
    swaps = sorted(int(name[:20]) for name in names if name.endswith(f".log{SWAP_SUFFIX}"))
    bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
    for base_offset in swaps:
        end_offset = _end_offset(disk, f"{folder}/{file_name(base_offset, '.log')}{SWAP_SUFFIX}")
        replaced = [base for base in bases if base_offset <= base < end_offset]
        finish_swap(disk, folder, base_offset, replaced)
    if swaps:
        disk.sync_folder(folder)
    for name in disk.list(folder):
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            disk.remove(f"{folder}/{name}")


def _end_offset(disk: Disk, path: str) -> int:
    """Return the offset after the last batch of a file, 0 if it has none.

    Old segments that start there or later had nothing to keep, or were not replaced. In both cases
    they may stay: the new segment does not overlap them.
    """
    file = disk.open(path)
    end_offset = 0
    for _, header in headers(file, 0, file.size):
        end_offset = header.next_offset
    file.close()
    return end_offset
