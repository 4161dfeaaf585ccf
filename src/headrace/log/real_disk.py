"""The `Disk` of a running node: real files, below one folder.

A node may have many more files than file descriptors, so files share a bounded number of them
(`_Descriptors`), and an idle file loses its own. The victim is chosen by the second-chance
algorithm: use sets a flag, and a file that needs a descriptor walks round, clears flags and takes
that of the first file whose flag is clear. So a hit costs a few attributes and no list.
"""

import builtins
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headrace.config import INDEX_MAPS_MAX, OPEN_FILES_MAX
from headrace.errors import HeadraceError
from headrace.log.disk import replace_by_rename
from headrace.log.maps import Maps
from headrace.log.open_files import OpenFiles
from headrace.wire.schema import Buffer

LOCK_FILE: Final = ".lock"
"""Kafka's name for it; the lock is not of the JVM's kind, so the two do not exclude each other."""
OPEN_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
FILE_MODE: Final = 0o644
PRIVATE_MODE: Final = 0o600
NO_DESCRIPTOR: Final = -1
NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)

_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_syncfs: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""Linux alone has it."""

# bytearray(count) would write zeros first, a quarter of the time that a cached read of 1 MB takes.
_uninitialized = ctypes.pythonapi.PyByteArray_FromStringAndSize
_uninitialized.restype = ctypes.py_object
_uninitialized.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)


class FolderInUse(HeadraceError):
    """Another process, or another disk of this one, has the lock of a folder."""


class RealDisk:
    """Files below `root`, which is made if it does not exist. See `Disk` for the promises."""

    def __init__(
        self,
        root: Path,
        *,
        open_files_max: int = OPEN_FILES_MAX.default,
        index_maps_max: int = INDEX_MAPS_MAX.default,
    ) -> None:
        self.maps = Maps(index_maps_max)
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._descriptors = _Descriptors(root, open_files_max)
        self._files: OpenFiles[RealFile] = OpenFiles()
        self._lock_descriptor = NO_DESCRIPTOR

    def lock(self) -> None:
        """Lock the folder for this disk until `close`, or raise FolderInUse with its owner.

        The kernel releases the lock when the process ends, however it ends.
        """
        descriptor = os.open(self._root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise FolderInUse(
                f"{self._root} is in use by process {holder or '(not known)'}, which holds "
                f"{LOCK_FILE} there: stop that process or use another folder"
            ) from None
        # Always as many bytes: a restart on a disk that is full must not need another block.
        os.pwrite(descriptor, f"{os.getpid():<20}\n".encode(), 0)
        self._lock_descriptor = descriptor

    def close(self) -> None:
        """Release every descriptor and the lock."""
        self._descriptors.close_all()
        if self._lock_descriptor != NO_DESCRIPTOR:
            os.close(self._lock_descriptor)
            self._lock_descriptor = NO_DESCRIPTOR

    def open(self, path: str, *, create: bool = False, is_private: bool = False) -> "RealFile":
        file = RealFile(path, self._descriptors)
        flags = os.O_CREAT | os.O_EXCL if create else 0
        mode = PRIVATE_MODE if is_private else FILE_MODE
        with self._descriptors.lock:
            descriptor = self._descriptors.take(file, flags, mode)
            file.size = os.fstat(descriptor).st_size
            self._files.add(file)
        return file

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def replace(self, path: str, data: Buffer, *, is_private: bool = False) -> None:
        replace_by_rename(self, path, data, is_private=is_private)

    def rename(self, old: str, new: str) -> None:
        with self._descriptors.lock:
            (self._root / old).replace(self._root / new)
            self._forget(new, self._files.at(new))
            self._files.rename(old, new)

    def remove(self, path: str) -> None:
        with self._descriptors.lock:
            self._forget(path, self._files.at(path))
        (self._root / path).unlink()  # not under the lock: the kernel frees the blocks in here

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def list(self, folder: str) -> dict[str, int]:
        with os.scandir(self._root / folder) as entries:
            return dict(sorted((e.name, e.stat().st_size) for e in entries if e.is_file()))

    def list_folders(self, folder: str) -> builtins.list[str]:
        with os.scandir(self._root / folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def make_folder(self, path: str) -> None:
        (self._root / path).mkdir(parents=True, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        with self._descriptors.lock:
            self._forget(path, self._files.below(path))
        shutil.rmtree(self._root / path)

    def sync_folder(self, path: str) -> None:
        folder = str(self._root / path)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = folder
            raise
        finally:
            os.close(descriptor)

    def sync_all(self) -> None:
        # A descriptor that was open before anything was written hears of every failed write, also
        # of one that another process was told of already.
        held = self._lock_descriptor
        descriptor = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC) if held < 0 else held
        try:
            if _syncfs is None:
                os.sync()
            elif _syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(self._root))
        finally:
            if held < 0:
                os.close(descriptor)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self._root).free

    def total_bytes(self) -> int:
        return shutil.disk_usage(self._root).total

    def _forget(self, path: str, files: "builtins.list[RealFile]") -> None:
        """Prevent an old DiskFile from reaching another file of the same name."""
        for file in files:
            file.is_gone = True
            self._descriptors.give_back(file)
        self._files.discard(path)


class RealFile:
    """A file of a RealDisk. See `DiskFile` for the promises."""

    __slots__ = (
        "__weakref__",
        "_descriptors",
        "_failed_sync",
        "_sync_lock",
        "descriptor",
        "is_busy",
        "is_gone",
        "is_used",
        "path",
        "size",
    )

    def __init__(self, path: str, descriptors: "_Descriptors") -> None:
        self.path = path
        self.size = 0
        self.descriptor = NO_DESCRIPTOR
        self.is_used = False
        """Whether it was used since the last walk over the descriptors."""
        self.is_busy = False
        """Whether its owner is using `descriptor` right now, so that it must not be closed."""
        self.is_gone = False
        """Whether it was removed or replaced."""
        self._descriptors = descriptors
        self._failed_sync: int | None = None
        """The error number of the sync that failed."""
        self._sync_lock = threading.Lock()

    def append(self, data: Buffer) -> None:
        self.is_busy = True
        try:
            if (descriptor := self.descriptor) < 0:
                descriptor = self._descriptors.take(self)
            written = os.write(descriptor, data)
            if written != len(data):
                written = self._append_rest(descriptor, data, written)
            self.size += written
        except OSError as error:
            error.filename = self._descriptors.full_path(self)
            raise
        finally:
            self.is_used = True
            self.is_busy = False

    def _append_rest(self, descriptor: int, data: Buffer, written: int) -> int:
        """Write what a first write left over: the disk is nearly full, or `data` is very large."""
        view = memoryview(data).cast("B")
        try:
            while written < len(view):
                written += os.write(descriptor, view[written:])
        except OSError as error:
            try:
                os.ftruncate(descriptor, self.size)
            except OSError as second:
                self.size = os.fstat(descriptor).st_size
                raise _explained(
                    error.errno,
                    f"{written} of {len(view)} bytes were written and cannot be cut off again: "
                    f"{second.strerror}",
                ) from second
            raise
        return written

    def read(self, position: int, count: int) -> bytes:
        with self._descriptors.borrow(self) as descriptor:
            data = os.pread(descriptor, count, position)
            while len(data) < count:
                more = os.pread(descriptor, count - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data

    def read_cached(self, position: int, count: int) -> Buffer | None:
        if NO_WAIT is None or not self._descriptors.is_no_wait_supported:
            return self.read(position, count)
        count = max(0, min(count, self.size - position))
        buffer: bytearray = _uninitialized(None, count)
        self.is_busy = True
        try:
            if (descriptor := self.descriptor) < 0:
                descriptor = self._descriptors.take(self)
            if os.preadv(descriptor, (buffer,), position, NO_WAIT) == count:
                return buffer
            return None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                error.filename = self._descriptors.full_path(self)
                raise
            self._descriptors.is_no_wait_supported = False
        finally:
            self.is_used = True
            self.is_busy = False
        return self.read(position, count)

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self.size:
            raise ValueError(f"{self.path} has {self.size} bytes, not the {size} to keep")
        with self._descriptors.borrow(self) as descriptor:
            os.ftruncate(descriptor, size)
            self.size = size

    def sync(self) -> None:
        # One at a time: the kernel reports a failure once, to whichever of two calls comes first.
        with self._sync_lock, self._descriptors.borrow(self) as descriptor:
            if self._failed_sync is not None:
                raise _explained(self._failed_sync, "an earlier sync of this file failed")
            try:
                _sync_data(descriptor)
            except OSError as error:
                self._failed_sync = error.errno
                _drop_from_cache(descriptor)
                raise

    def map(self) -> memoryview:
        size = self.size
        if size == 0:
            return memoryview(b"")
        with self._descriptors.borrow(self) as descriptor:
            if sys.version_info >= (3, 13):
                # Otherwise every mapping keeps a descriptor of its own for as long as it lives.
                return memoryview(
                    mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)
                )
            return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        with self._descriptors.lock:
            self._descriptors.give_back(self)


class _Descriptors:
    """At most `maximum` descriptors for any number of files.

    A descriptor is closed only while no system call uses it. Calls from threads use a duplicate.
    The owner of a file does not, for speed; it sets `is_busy` and then reads `descriptor`, while
    the code that takes a descriptor away clears it and then reads `is_busy`: in any order, one of
    the two sees the other.
    """

    def __init__(self, root: Path, maximum: int) -> None:
        self.lock = threading.RLock()
        self.is_no_wait_supported = True
        """Whether the file system supports RWF_NOWAIT, as far as tried."""
        self._root = str(root)
        self._maximum = maximum
        self._held: OrderedDict[RealFile, None] = OrderedDict()

    def full_path(self, file: RealFile) -> str:
        return f"{self._root}/{file.path}"

    def take(self, file: RealFile, flags: int = 0, mode: int = FILE_MODE) -> int:
        """Return the file's descriptor, opening the file if it has none."""
        with self.lock:
            if file.descriptor < 0:
                if file.is_gone:
                    raise FileNotFoundError(
                        errno.ENOENT, "the file was removed or replaced", self.full_path(file)
                    )
                self._make_room()
                descriptor = os.open(self.full_path(file), OPEN_FLAGS | flags, mode)
                file.descriptor = descriptor
                self._held[file] = None
            return file.descriptor

    @contextmanager
    def borrow(self, file: RealFile) -> Iterator[int]:
        """Return a descriptor that is not closed in the meantime; errors name the file."""
        try:
            with self.lock:
                descriptor = os.dup(self.take(file))
                file.is_used = True
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            error.filename = self.full_path(file)
            raise

    def give_back(self, file: RealFile) -> bool:
        """Close the file's descriptor, if it has one, unless its owner is using it."""
        descriptor, file.descriptor = file.descriptor, NO_DESCRIPTOR
        if descriptor < 0:
            return True
        if file.is_busy:
            file.descriptor = descriptor
            return False
        del self._held[file]
        os.close(descriptor)
        return True

    def close_all(self) -> None:
        with self.lock:
            for file in list(self._held):
                self.give_back(file)

    def __del__(self) -> None:
        """Close the descriptors of a disk that was not closed, as Python's own files do."""
        for file in self._held:
            os.close(file.descriptor)

    def _make_room(self) -> None:
        """Take a descriptor away if the maximum is reached.

        Two rounds find one: the first clears flags. Only if all are busy in other threads is there
        one too many for a while.
        """
        for _ in range(2 * len(self._held)):
            if len(self._held) < self._maximum:
                return
            file = next(iter(self._held))
            if file.is_used or not self.give_back(file):
                file.is_used = False
                self._held.move_to_end(file)


def _explained(number: int | None, explanation: str) -> OSError:
    """Return an OSError with a clearer message; the caller adds the file."""
    return OSError(number, f"{os.strerror(number or 0)} ({explanation})")


def _drop_from_cache(descriptor: int) -> None:
    """Make later reads see the disk's contents, as far as the kernel cooperates.

    It keeps pages that it failed to write, marked as clean; a recovery that found them intact
    would trust them.
    """
    with suppress(OSError, AttributeError):  # not every platform and file system can
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
