"""The port through which logs reach files: what a disk promises, and what it does not.

`log.real_disk` keeps the promises with the kernel, `headrace.testing.disk` keeps the same ones in
memory and breaks, by seed, everything that is not promised here.

Threads: `read`, `sync` and `map` of a file may be called from any thread at any time. The other
calls on one file belong to one thread at a time, usually the loop's.
"""

import builtins
import contextlib
import errno
from typing import Any, Final, Never, Protocol, cast

from headrace.log.maps import Maps
from headrace.wire.schema import Buffer

TEMPORARY_SUFFIX: Final = ".tmp"
"""Kafka's suffix for a file that is renamed once complete; a crash may leave one behind."""


class Disk(Protocol):
    """Files below one folder.

    Paths are relative to it, with `/`; the empty path is the folder itself. Errors are OSError as
    the kernel gives them, and they name the file.

    Files and folders that were created, renamed or removed are so for sure, whatever crashes, only
    after `sync_folder` of the folder that has the name.
    """

    maps: Maps
    """The maps of its files that are held, which it bounds."""

    def open(self, path: str, *, create: bool = False, is_private: bool = False) -> "DiskFile":
        """Open a file that exists, or with `create` one that does not.

        A private one is made for this user alone to read.
        FileNotFoundError and FileExistsError are what happens otherwise.
        """

    def read(self, path: str) -> bytes:
        """Read a small file whole."""

    def replace(self, path: str, data: Buffer, *, is_private: bool = False) -> None:
        """Write a small file whole, atomically and durably: after a crash it is old or new.

        A private one is for this user alone to read, from its first byte on.

        After an OSError it is old or new as well, and which of them is not known to be durable.
        """

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a folder; a file with the name `new` is replaced and gone.

        A DiskFile of what is renamed follows; a read in a thread never sees the moment between.
        """

    def remove(self, path: str) -> None:
        """Remove a file. Every DiskFile of it is gone: FileNotFoundError from then on.

        That holds even if the removal fails; `open` the file again then. Large files take long.
        What a thread is reading or syncing at that time it still finishes, and what was mapped
        stays mapped.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""

    def list(self, folder: str) -> dict[str, int]:
        """Return the files in a folder, by name, with their sizes."""

    def list_folders(self, folder: str) -> builtins.list[str]:
        """Return the names of the folders in a folder, in order."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; one that is there already is fine."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder with what is in it; a crash may leave some of that."""

    def sync_folder(self, path: str) -> None:
        """Make durable what was created in, renamed in or removed from this very folder."""

    def sync_all(self) -> None:
        """Make durable whatever was written, created, renamed or removed, in every folder.

        Quicker than many syncs. It may wait for what others wrote to the same file system, and does
        not know of syncs that failed before.
        """

    def free_bytes(self) -> int:
        """Return how much can be written before the disk is full."""

    def total_bytes(self) -> int:
        """Return the size of the disk."""


class OwnedDisk(Disk, Protocol):
    """A disk that one node at a time may use."""

    def lock(self) -> None:
        """Lock the folder until `close`, or raise FolderInUse with its owner."""

    def close(self) -> None:
        """Release the lock and all other resources."""


class DiskFile(Protocol):
    """A file that is written at its end only.

    It holds a descriptor only while it is in use: the disk has a bounded number of them, takes them
    back from files that lie idle and opens these again on use.
    """

    @property
    def path(self) -> str:
        """Where the file is, renames included."""

    @property
    def size(self) -> int:
        """How many bytes the file has; known without asking the kernel."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or raise OSError and leave the file as it was.

        What was written in part before a disk turned out to be full is cut off again. Should that
        fail too, then the error says so, and `size` is what is really there.
        """

    def read(self, position: int, count: int) -> bytes:
        """Read `count` bytes, fewer only if the file ends before. May wait for the disk."""

    def read_cached(self, position: int, count: int) -> Buffer | None:
        """Read as `read` does if it can be done without waiting for the disk, else give None.

        A platform that cannot tell just reads. The buffer is the caller's.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; ValueError if it has fewer.

        Not durable before `sync`: a crash may bring back what was cut off.
        """

    def sync(self) -> None:
        """Make durable what was appended and cut before the call. Waits for the disk.

        After a sync that failed no later one of this DiskFile succeeds: the kernel has forgotten
        which pages it could not write, and would report success without having written them. What
        was appended since the last good sync must count as lost, even while it can be read. A new
        `open` gives a file that syncs again; that does not bring those bytes to the disk.
        """

    def map(self) -> memoryview:
        """Map the file as it is now, read-only; the view outlives `close`, `remove` and `rename`.

        Bytes that a later `truncate` cuts off must not be touched: the kernel kills for that.
        """

    def close(self) -> None:
        """Close the descriptor now; the next use reopens the file."""


class _GoneDisk:
    """The disk of deleted logs: every call raises FileNotFoundError."""

    def _refuse(self, *arguments: Any, **options: Any) -> Never:
        path = arguments[0] if arguments else ""
        raise FileNotFoundError(errno.ENOENT, "the log was deleted", path)

    open = read = replace = rename = remove = exists = list = list_folders = _refuse
    make_folder = remove_folder = sync_folder = sync_all = free_bytes = total_bytes = _refuse


GONE: Final = cast(Disk, _GoneDisk())


def replace_by_rename(disk: Disk, path: str, data: Buffer, *, is_private: bool = False) -> None:
    """Do `Disk.replace` in the steps that make it atomic and durable on every file system."""
    temporary = write_temporary(disk, path, data, is_synced=True, is_private=is_private)
    try:
        disk.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            disk.remove(temporary)
        raise
    disk.sync_folder(folder_of(path))


def write_temporary(
    disk: Disk, path: str, data: Buffer, *, is_synced: bool, is_private: bool = False
) -> str:
    """Write the file that is to take the place of another; return its path."""
    temporary = path + TEMPORARY_SUFFIX
    with contextlib.suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.open(temporary, create=True, is_private=is_private)
    try:
        file.append(data)
        if is_synced:
            file.sync()
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            disk.remove(temporary)
        raise
    finally:
        file.close()
    return temporary


def folder_of(path: str) -> str:
    """Return the path of the parent folder."""
    return path.rpartition("/")[0]
