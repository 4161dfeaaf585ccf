"""How compaction puts new files in the place of old ones, so that a crash at any point is safe.

1. The new segment is written to files that end in `.cleaned`, and synced.
2. They are renamed to `.swap`, the log itself last: once `.log.swap` is there, the new segment is
   whole and the old ones are not needed any more.
3. The old segments are renamed to `.deleted`, but for the one with the same name.
4. The new files take their names, the log again last, and the folder is synced.

Opening a log does steps 3 and 4 again if it finds a `.log.swap`, and else removes what is left.
The endings are Kafka's.
"""

from typing import Final

from headrace.log.disk import Disk
from headrace.log.segment import DELETED_SUFFIX, SUFFIXES, file_name
from headrace.log.walk import headers

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
_LOG_LAST: Final = (".index", ".timeindex", ".txnindex", ".log")


def offer_swap(disk: Disk, folder: str, base_offset: int) -> None:
    """Do step 2 for a new segment whose files are written and synced."""
    for suffix in _LOG_LAST:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path + CLEANED_SUFFIX):
            disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    disk.sync_folder(folder)


def finish_swap(disk: Disk, folder: str, base_offset: int, replaced: list[int]) -> None:
    """Do steps 3 and 4: `replaced` are the base offsets of the segments that go."""
    for old in replaced:
        if old != base_offset:
            delete_segment(disk, folder, old)
    for suffix in _LOG_LAST:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)
        elif disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)
    disk.sync_folder(folder)


def delete_segment(disk: Disk, folder: str, base_offset: int) -> None:
    """Rename the files of a segment so that they count as deleted."""
    for suffix in SUFFIXES:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)


def finish_swaps(disk: Disk, folder: str) -> None:
    """Bring what a crash interrupted to its end, or undo it."""
    names = disk.list(folder)
    swaps = sorted(int(name[:20]) for name in names if name.endswith(f".log{SWAP_SUFFIX}"))
    bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
    for base_offset in swaps:
        end_offset = _end_offset(disk, f"{folder}/{file_name(base_offset, '.log')}{SWAP_SUFFIX}")
        replaced = [base for base in bases if base_offset <= base < end_offset]
        finish_swap(disk, folder, base_offset, replaced)
    for name in disk.list(folder):
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            disk.remove(f"{folder}/{name}")


def _end_offset(disk: Disk, path: str) -> int:
    """Give the offset behind the last batch of a file, 0 if it has none."""
    file = disk.open(path)
    end_offset = 0
    for _, header in headers(file, 0, file.size):
        end_offset = header.next_offset
    file.close()
    return end_offset
