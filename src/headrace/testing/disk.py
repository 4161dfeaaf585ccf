"""An in-memory disk that keeps the port's promises and, by seed, nothing beyond them.

Until a crash it reads like a page cache: appended data is there, synced or not. A crash loses what
`volatile` describes. Faults are armed beforehand: errors, lost syncs, a full disk, flipped bits.
The same seed and the same calls have the same outcome.

    disk = SimulatedDisk(seed=7)
    file = disk.open("log", create=True)
    disk.sync_folder("")
    file.append(b"promised")
    file.sync()
    file.append(b"not promised")
    disk.crash()
    assert disk.read("log").startswith(b"promised")
"""

import builtins
import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random
from threading import RLock
from typing import Final, Literal, get_args

from headrace.log.disk import folder_of, replace_by_rename
from headrace.log.maps import Maps
from headrace.log.real_disk import FolderInUse
from headrace.testing.volatile import Entry, File, Folder, Tree, path_of
from headrace.wire.schema import Buffer

Change = Literal[
    "create",
    "append",
    "truncate",
    "sync",
    "rename",
    "remove",
    "make_folder",
    "remove_folder",
    "sync_folder",
    "sync_all",
]
Operation = Change | Literal["open", "exists", "read", "read_cached", "map", "list"]
"""Operations that are counted and can fail. `Disk.replace` counts as its parts."""

CHANGES: Final = frozenset(get_args(Change))
ALWAYS: Final = 2**63
UNLIMITED_BYTES: Final = 2**50


class PowerLost(Exception):
    """The simulated machine is off. Not an OSError, as no program survives to handle it."""


class SimulatedDisk:
    """A `Disk` whose faults and crashes follow from `seed`."""

    def __init__(self, seed: int = 0) -> None:
        self.counts: Counter[Operation] = Counter()
        """How often each operation was called, including failures."""
        self.mutex = RLock()
        """Held during every call, as syncs may come from other threads."""
        self.maps = Maps()
        self._seed = seed
        self._draws = 0
        self._tree = Tree()
        self._faults: builtins.list[_Fault] = []
        self._capacity_bytes: int | None = None
        self._changes_left: int | None = None
        self._is_locked = False
        self.on_power_lost: Callable[[], None] | None = None
        """Called when power goes after `lose_power_after`, before PowerLost is raised."""

    # What goes wrong

    def crash(self) -> None:
        """Lose power and restart: data that was not durable survives or not, by the seed.

        Every earlier DiskFile is invalid, the page cache is cold, and power is on.
        """
        with self.mutex:
            self._tree = self._tree.crash(self.random())
            self._changes_left = None
            self._is_locked = False

    def end_process(self) -> None:
        """End the program but not the machine: written data survives, synced or not."""
        with self.mutex:
            self._changes_left = None
            self._is_locked = False

    def lose_power_after(self, changes: int) -> None:
        """Allow so many more changes, then raise PowerLost from every call until `crash`.

        With counts from 0 up this covers every moment at which a program can crash.
        """
        self._changes_left = changes

    def spare_power(self) -> None:
        """Cancel `lose_power_after`, if it has not happened yet."""
        if self._changes_left:
            self._changes_left = None

    def fail(
        self,
        operation: Operation,
        path_pattern: str = "*",
        *,
        error: int = errno.EIO,
        times: int = 1,
    ) -> None:
        """Make the operation fail on the next `times` paths that match (as `fnmatch`; `*` is any).

        A failed `sync` loses some of the data it should have made durable, and a later successful
        one does not restore it. A fault of `truncate` also applies to an append to a full disk
        that removes a partial write.
        """
        self._faults.append(_Fault(operation, path_pattern, error, times))

    def lose_sync(self, path_pattern: str = "*", *, times: int = ALWAYS) -> None:
        """Make the next syncs of matching files and folders report success and do nothing."""
        self._faults.append(_Fault("sync", path_pattern, None, times))
        self._faults.append(_Fault("sync_folder", path_pattern, None, times))
        self._faults.append(_Fault("sync_all", path_pattern, None, times))

    def heal(self) -> None:
        """Disarm every fault that has not happened yet."""
        self._faults.clear()

    def fill_up(self, bytes_left: int = 0) -> None:
        """Leave room for so many more bytes; removed or truncated data makes room too."""
        self._capacity_bytes = self._used_bytes() + bytes_left

    def make_room(self) -> None:
        """Make the disk unlimited, until `fill_up`."""
        self._capacity_bytes = None

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of a file, both in the page cache and on the platter."""
        self._file(path).flip_bit(position, bit)

    def truncate_file(self, path: str, size: int) -> None:
        """Truncate a file durably, unnoticed by its users."""
        file = self._file(path)
        file.truncate(size)
        file.sync()

    def drop_cache(self) -> None:
        """Make `read_cached` of existing data return None until it is read or mapped."""
        for file in self._tree.root.files():
            file.chill()

    def clone(self, seed: int | None = None) -> "SimulatedDisk":
        """Return an independent disk in the same state, armed faults included.

        Costs nothing per byte. With a `seed` its random choices differ: one state can be crashed
        in many ways.
        """
        twin = SimulatedDisk(self._seed if seed is None else seed)
        twin.counts = self.counts.copy()
        twin._draws = self._draws
        twin._tree = self._tree.clone()
        twin._faults = [replace(fault) for fault in self._faults]
        twin._capacity_bytes = self._capacity_bytes
        twin._changes_left = self._changes_left
        return twin

    # What the port promises

    def open(self, path: str, *, create: bool = False, is_private: bool = False) -> "SimulatedFile":
        with self.mutex:
            self.begin("create" if create else "open", path)
            if not create:
                return SimulatedFile(self, self._file(path))
            folder, name = self._slot(path)
            if name in folder.names:
                raise _error(errno.EEXIST, path)
            file = File(folder, name)
            self._tree.change(Entry(folder, name, file))
            return SimulatedFile(self, file)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.read(0, file.size)

    def replace(self, path: str, data: Buffer, *, is_private: bool = False) -> None:
        replace_by_rename(self, path, data, is_private=is_private)

    def rename(self, old: str, new: str) -> None:
        with self.mutex:
            self.begin("rename", old)
            node = self._tree.find(old)
            source, name = self._slot(old)
            target, new_name = self._slot(new)
            replaced = target.names.get(new_name)
            if isinstance(replaced, Folder):
                raise _error(errno.EISDIR if isinstance(node, File) else errno.ENOTEMPTY, new)
            self._tree.change(Entry(source, name, None), Entry(target, new_name, node))

    def remove(self, path: str) -> None:
        with self.mutex:
            self.begin("remove", path)
            self._file(path)
            self._tree.change(Entry(*self._slot(path), None))

    def exists(self, path: str) -> bool:
        with self.mutex:
            self.begin("exists", path)
            try:
                self._tree.find(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def list(self, folder: str) -> dict[str, int]:
        with self.mutex:
            self.begin("list", folder)
            nodes = sorted(self._folder(folder).names.items())
            return {name: node.now.size for name, node in nodes if isinstance(node, File)}

    def list_folders(self, folder: str) -> builtins.list[str]:
        with self.mutex:
            self.begin("list", folder)
            nodes = sorted(self._folder(folder).names.items())
            return [name for name, node in nodes if isinstance(node, Folder)]

    def make_folder(self, path: str) -> None:
        with self.mutex:
            self.begin("make_folder", path)
            folder = self._tree.root
            for name in path.split("/") if path else ():
                node = folder.names.get(name)
                if isinstance(node, File):
                    raise _error(errno.EEXIST, path)
                if node is None:
                    node = Folder(folder, name)
                    self._tree.change(Entry(folder, name, node))
                folder = node

    def remove_folder(self, path: str) -> None:
        with self.mutex:
            self.begin("remove_folder", path)
            self._empty(self._folder(path))
            self._tree.change(Entry(*self._slot(path), None))

    def sync_folder(self, path: str) -> None:
        with self.mutex:
            is_lost = self.begin("sync_folder", path)
            folder = self._folder(path)
            if not is_lost:
                self._tree.sync(folder)

    def sync_all(self) -> None:
        with self.mutex:
            if self.begin("sync_all", ""):
                return
            for file in self._tree.root.files():
                file.sync()
            for folder in self._tree.root.folders():
                self._tree.sync(folder)

    def free_bytes(self) -> int:
        if self._capacity_bytes is None:
            return UNLIMITED_BYTES
        return max(0, self._capacity_bytes - self._used_bytes())

    def total_bytes(self) -> int:
        return UNLIMITED_BYTES if self._capacity_bytes is None else self._capacity_bytes

    def lock(self) -> None:
        if self._is_locked:
            raise FolderInUse("the simulated disk is in use by another node")
        self._is_locked = True

    def close(self) -> None:
        self._is_locked = False

    # What files of this disk need

    def begin(self, operation: Operation, path: str) -> bool:
        """Count an operation, fail it if a fault is due, and return whether to skip its effect."""
        if self._changes_left is not None:
            if self._changes_left == 0:
                if self.on_power_lost is not None:
                    self.on_power_lost()
                raise PowerLost(f"at {operation} of {path!r}")
            self._changes_left -= operation in CHANGES
        self.counts[operation] += 1
        for fault in self._faults:
            if fault.operation == operation and fnmatchcase(path, fault.path_pattern):
                fault.times_left -= 1
                if fault.times_left == 0:
                    self._faults.remove(fault)
                if fault.error is None:
                    return True
                raise _error(fault.error, path)
        return False

    def random(self) -> Random:
        """Return the generator of the next event; it depends on the seed and the event's number."""
        self._draws += 1
        return Random(f"{self._seed}/{self._draws}")

    def _slot(self, path: str) -> tuple[Folder, str]:
        return self._folder(folder_of(path)), path.rpartition("/")[2]

    def _file(self, path: str) -> File:
        node = self._tree.find(path)
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        return node

    def _folder(self, path: str) -> Folder:
        node = self._tree.find(path)
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _empty(self, folder: Folder) -> None:
        for name, node in builtins.list(folder.names.items()):
            if isinstance(node, Folder):
                self._empty(node)
            self._tree.change(Entry(folder, name, None))

    def _used_bytes(self) -> int:
        return sum(file.now.size for file in self._tree.root.files())


class SimulatedFile:
    """A file of a SimulatedDisk. See `DiskFile` for the promises."""

    def __init__(self, disk: SimulatedDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self._failed_sync: int | None = None

    @property
    def path(self) -> str:
        return path_of(self._file)

    @property
    def size(self) -> int:
        return self._file.now.size

    def append(self, data: Buffer) -> None:
        with self._disk.mutex:
            self._begin("append")
            written = bytes(data)
            room = self._disk.free_bytes()
            if len(written) <= room:
                self._file.append(written)
                return
            size = self.size
            self._file.append(written[:room])
            try:
                self._disk.begin("truncate", self.path)
            except OSError as error:
                raise OSError(
                    errno.ENOSPC,
                    f"{os.strerror(errno.ENOSPC)} ({room} of {len(written)} bytes were written "
                    f"and cannot be cut off again: {error.strerror})",
                    self.path,
                ) from error
            self._file.truncate(size)
            raise _error(errno.ENOSPC, self.path)

    def read(self, position: int, count: int) -> bytes:
        with self._disk.mutex:
            self._begin("read")
            self._file.warm(position, count)
            return self._file.now.read(position, count)

    def read_cached(self, position: int, count: int) -> Buffer | None:
        with self._disk.mutex:
            self._begin("read_cached")
            if not self._file.is_warm(position, min(count, max(0, self.size - position))):
                return None
            return bytearray(self._file.now.read(position, count))

    def truncate(self, size: int) -> None:
        with self._disk.mutex:
            self._begin("truncate")
            self._file.truncate(size)

    def sync(self) -> None:
        with self._disk.mutex:
            self._check_present()
            if self._failed_sync is not None:
                reason = f"{os.strerror(self._failed_sync)} (an earlier sync of this file failed)"
                raise OSError(self._failed_sync, reason, self.path)
            try:
                is_lost = self._disk.begin("sync", self.path)
            except OSError as error:
                self._failed_sync = error.errno
                self._file.fail_to_sync(self._disk.random())
                raise
            if not is_lost:
                self._file.sync()

    def map(self) -> memoryview:
        with self._disk.mutex:
            self._begin("map")
            self._file.warm(0, self.size)
            return memoryview(self._file.now.read(0, self.size))

    def close(self) -> None:
        """Do nothing."""

    def _begin(self, operation: Operation) -> None:
        self._check_present()
        self._disk.begin(operation, self.path)

    def _check_present(self) -> None:
        if self._file.is_gone:
            raise FileNotFoundError(
                errno.ENOENT, "the file was removed, replaced, or open in a crash", self.path
            )


@dataclass
class _Fault:
    """An operation that will fail: with an error, or silently if None."""

    operation: Operation
    path_pattern: str
    error: int | None
    times_left: int


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
