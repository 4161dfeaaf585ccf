"""A folder as an object store, for one machine or for nodes that share a file system.

obstore's own folders are atomic and not durable: nothing is synced (seen in its system calls,
0.12). Here a body is written to `.headrace/uploads/<id>/<key>`, synced, renamed, and the folder is
synced. A crash leaves an unfinished upload, never part of an object.

All calls to the file system are in threads of the store's own.
"""

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from headrace.remote.folder_threads import FolderThreads
from headrace.remote.layout import OWN_PREFIX
from headrace.remote.store import (
    Body,
    NoSuchObject,
    StoreCounts,
    StoredObject,
    StoreError,
    StoreRefused,
    UnfinishedUpload,
)
from headrace.remote.store_options import StoreOptions
from headrace.surroundings import new_uuid
from headrace.wire.schema import Buffer

T = TypeVar("T")

logger = logging.getLogger(__name__)

UPLOADS: Final = OWN_PREFIX + "uploads"
PAGE_OBJECTS: Final = 1000
CLOSE_SECONDS_MAX: Final = 5.0
"""How long it is waited for what is under way when the store is closed."""
RENAME_ATTEMPTS: Final = 5
"""Another node may remove an empty folder between its making and the rename into it."""

_FOR_GOOD: Final = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


class FolderStore:
    """An `ObjectStore` in a folder, which the first put creates."""

    def __init__(self, folder: str, options: StoreOptions | None = None) -> None:
        self.counts = StoreCounts()
        self._root = Path(folder)
        self._mark = _Mark(self._root)
        self._threads = FolderThreads((options or StoreOptions()).threads)

    def __repr__(self) -> str:
        return f"FolderStore({self.url})"

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    async def put(self, key: str, body: Body, size_bytes: int) -> None:
        self.counts.puts += 1
        async with self._staging(key) as staged:
            await self._write(key, staged, body, size_bytes)
            await self._run(f"cannot write {key}", staged.publish)
        self.counts.put_bytes += size_bytes

    async def create(self, key: str, data: Buffer) -> bool:
        self.counts.puts += 1
        async with self._staging(key) as staged:
            await self._write(key, staged, data, len(data))
            is_new = await self._run(f"cannot create {key}", staged.publish_new)
        self.counts.put_bytes += len(data) if is_new else 0
        return is_new

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> Buffer:
        path = self._path(key)

        def read() -> bytes:
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:
                self._mark.check()
                raise
            with file:
                size = os.fstat(file.fileno()).st_size
                file.seek(begin)
                return file.read(max(0, min(size, size if end is None else end) - begin))

        self.counts.gets += 1
        data = await self._run(f"cannot read {key}", read, is_read=True)
        self.counts.get_bytes += len(data)
        return data

    async def delete(self, keys: Iterable[str]) -> None:
        paths = [self._path(key) for key in keys]
        if paths:
            self.counts.deletes += 1
            await self._run("cannot delete objects", lambda: self._delete(paths))

    async def list_objects(self, prefix: str = "") -> AsyncIterator[list[StoredObject]]:
        found = self._walk(prefix)
        while page := await self._run(
            f"cannot list {prefix}*", lambda: list(islice(found, PAGE_OBJECTS))
        ):
            self.counts.lists += 1
            yield page

    async def list_uploads(self) -> list[UnfinishedUpload]:
        self.counts.lists += 1
        return await self._run("cannot list uploads", self._uploads)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        folder = self._path(f"{UPLOADS}/{upload.upload_id}")

        def remove() -> None:
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

        self.counts.deletes += 1
        await self._run(f"cannot drop the upload of {upload.key}", remove)

    async def hold(self, key: str, data: Buffer) -> None:
        await self._run("cannot hold the folder", lambda: self._mark.hold(self._path(key), data))

    async def close(self) -> None:
        """Wait a while for what is under way: a file system may be dead, and never respond."""
        if unfinished := [asyncio.wrap_future(each) for each in self._threads.unfinished()]:
            _, stuck = await asyncio.wait(unfinished, timeout=CLOSE_SECONDS_MAX)
            if stuck:
                logger.warning("%s does not respond: %d calls are given up", self.url, len(stuck))
        self._threads.shutdown()

    async def _run(self, doing: str, work: Callable[[], T], *, is_read: bool = False) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            reason = f"{doing} in {self.url}: {error.strerror or error}"
            if error.errno == errno.ENOENT and is_read:
                raise NoSuchObject(reason) from None
            self.counts.errors += 1
            refused = StoreRefused if error.errno in _FOR_GOOD else StoreError
            raise refused(reason) from None

    async def _write(self, key: str, staged: "_Staged", body: Body, size_bytes: int) -> None:
        doing = f"cannot write {key}"
        if isinstance(body, Buffer):
            await self._run(doing, lambda: staged.write(body))
        else:
            await self._run(doing, lambda: staged.write(b""))
            async for part in body:
                await self._run(doing, lambda part=part: staged.write(part))  # type: ignore[misc]
        if staged.size_bytes != size_bytes:
            self.counts.errors += 1
            raise StoreError(
                f"{key} was not written: {size_bytes} bytes were said, {staged.size_bytes} came"
            )

    @asynccontextmanager
    async def _staging(self, key: str) -> AsyncIterator["_Staged"]:
        """Begin an upload, and remove what is left of it in the end."""
        staged = _Staged(self._root, self._path(key), self._mark)
        try:
            yield staged
        except asyncio.CancelledError:
            self._threads.submit(staged.discard)  # whoever is cancelled does not wait for a disk
            raise
        except BaseException:
            await self._run("", staged.discard)
            raise
        await self._run("", staged.discard)

    def _path(self, key: str) -> Path:
        if any(step in ("", ".", "..") for step in key.split("/")) or "\0" in key:
            raise StoreRefused(f"{key!r} cannot be the name of an object")
        return self._root / key

    def _delete(self, paths: list[Path]) -> None:
        self._mark.check()
        for path in paths:
            with suppress(FileNotFoundError):
                path.unlink()
        for folder in {path.parent for path in paths}:
            with suppress(FileNotFoundError):
                _sync_folder(folder)
            with suppress(OSError):  # it is not empty, or gone
                if folder != self._root:
                    folder.rmdir()

    def _walk(self, prefix: str) -> Iterator[StoredObject]:
        """Yield what is below the folder of a prefix and begins with it."""
        self._mark.check()
        above = prefix.rpartition("/")[0]
        folders = [above]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(self._root / folder))
            except FileNotFoundError:
                continue  # nothing was ever put there, or it was removed meanwhile
            for entry in entries:
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if key != UPLOADS:
                        folders.append(key)
                elif key.startswith(prefix):
                    with suppress(FileNotFoundError):
                        stat = entry.stat()
                        yield StoredObject(_text(key), stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _uploads(self) -> list[UnfinishedUpload]:
        self._mark.check()
        found = []
        top = self._root / UPLOADS
        for folder, _, names in os.walk(top):
            for name in names:
                path = Path(folder) / name
                upload_id, *steps = path.relative_to(top).parts
                with suppress(FileNotFoundError):  # it was finished meanwhile
                    began_ms = path.stat().st_mtime_ns // 1_000_000
                    found.append(UnfinishedUpload(_text("/".join(steps)), upload_id, began_ms))
        return found


class _Staged:
    """An object that is being written. Its calls come from threads, one after another."""

    def __init__(self, root: Path, path: Path, mark: "_Mark") -> None:
        self.size_bytes = 0
        self._mark = mark
        self._root = root
        self._path = path
        self._folder = root / UPLOADS / new_uuid().hex
        self._staged = self._folder / path.relative_to(root)
        self._file: int | None = None
        self._is_done = False
        self._mutex = Lock()
        """A cancelled caller discards while a thread may still write."""

    def write(self, data: Buffer) -> None:
        with self._mutex:
            if self._is_done:
                return
            if self._file is None:
                self._mark.check()
                self._staged.parent.mkdir(parents=True)
                self._file = os.open(self._staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
            self.size_bytes += len(data)

    def publish(self) -> None:
        """Make the object durable, then visible, then make that durable."""
        with self._mutex:
            if not self._is_done:
                self._sync()
                self._link(os.replace)

    def publish_new(self) -> bool:
        """Do so unless there is one of that name, and return whether that was so."""
        with self._mutex:
            if self._is_done:
                return False
            self._sync()
            try:
                self._link(os.link)
            except FileExistsError:
                return False
            return True

    def discard(self) -> None:
        """Remove what is left of the upload."""
        with self._mutex:
            self._is_done = True
            self._close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _link(self, move: Callable[[Path, Path], None]) -> None:
        for attempts_left in reversed(range(RENAME_ATTEMPTS)):
            self._mark.check()
            _make_folder(self._path.parent)
            try:
                move(self._staged, self._path)
                _sync_folder(self._path.parent)
                return
            except FileNotFoundError:
                if not attempts_left:
                    raise


class _Mark:
    """A file by which a folder is known: where something is to be mounted, another one may be.

    A folder with another identity is looked at again, so that it may be mounted anew.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: tuple[Path, bytes] | None = None
        self._identity: tuple[int, int] | None = None

    def hold(self, path: Path, data: Buffer) -> None:
        """Do nothing from now on unless a file has these bytes."""
        self._held, self._identity = (path, bytes(data)), None
        self.check()

    def check(self) -> None:
        """Raise OSError if the folder is not the one that is held."""
        if self._held is None:
            return
        path, data = self._held
        identity = None
        with suppress(FileNotFoundError):
            stat = self._root.stat()
            identity = stat.st_dev, stat.st_ino
            if identity == self._identity or path.read_bytes() == data:
                self._identity = identity
                return
        raise OSError(
            errno.ESTALE,
            f"{path.relative_to(self._root)} is not there, or another one: is the folder mounted?",
        )


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if folder.exists() and not folder.is_dir():  # it may be gone again, with its last object
            raise
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _text(key: str) -> str:
    """Return a key that can be printed, whatever bytes the name of a file has."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
