"""The files of the audit log: JSON lines, rotated by size, written by a thread.

The loop puts lines into a bounded queue and never waits: when the queue is full, or the disk does
not take a line, events are dropped and counted, and the node's log says so.

The file that is written is locked, so that no other node with the same path rotates it away. If
somebody moves or removes it, the next events go to a new one.
"""

import errno
import fcntl
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from headrace.security.audit import AuditEvent

FILE_MODE: Final = 0o600
LINES_AT_ONCE: Final = 1000
COMPLAINT_SECONDS: Final = 60.0
"""How often at most the node's log says that events were dropped."""
STOP_SECONDS_MAX: Final = 5.0
LISTINGS_MAX: Final = 10
"""How often a reader looks for the files again that were rotated while it opened them."""

_ENCODER: Final = msgspec.json.Encoder()

logger = logging.getLogger(__name__)

_Item = tuple[int, AuditEvent]


def rotated(path: Path, number: int) -> Path:
    """Return the name of a file that is not written any more; 1 is the newest of them."""
    return path.with_name(f"{path.name}.{number}")


def files_of(path: Path) -> list[Path]:
    """Return the files of an audit log that there are, the oldest first."""
    found = [
        (int(each.name.rpartition(".")[2]), each)
        for each in path.parent.glob(f"{path.name}.*")
        if each.name.rpartition(".")[2].isdecimal()
    ]
    files = [each for _, each in sorted(found, reverse=True)]
    return [*files, path] if path.exists() else files


def open_files(path: Path) -> list[IO[bytes]]:
    """Open the files of an audit log, the oldest first.

    While they are open a rotation takes none away. One in between is seen: there is a file then
    that is not open yet.
    """
    opened: dict[tuple[int, int], IO[bytes]] = {}
    listed: list[tuple[int, int]] = []
    for _ in range(LISTINGS_MAX):
        count, listed = len(opened), []
        for each in files_of(path):
            try:
                file = each.open("rb")
            except FileNotFoundError:
                continue  # it has another name now, or is gone
            except BaseException:
                _close_all(opened.values())
                raise
            found = os.fstat(file.fileno())
            identity = found.st_dev, found.st_ino
            if opened.setdefault(identity, file) is not file:
                file.close()
            listed.append(identity)
        if len(opened) == count:
            break
    gone = [identity for identity in opened if identity not in listed]
    return [opened[identity] for identity in dict.fromkeys((*gone, *listed))]


def read_events(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events of one file; a line that a crash cut off is passed over."""
    for line in file:
        try:
            event = msgspec.json.decode(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of the file with a name."""
    with path.open("rb") as file:
        yield from read_events(file)


def _close_all(files: Iterable[IO[bytes]]) -> None:
    for file in files:
        file.close()


class AuditFiles:
    """The files of one node, and the thread that writes them."""

    def __init__(
        self,
        path: Path,
        *,
        file_bytes_max: int,
        files_max: int,
        queued_max: int,
        monotonic: Callable[[], float],
    ) -> None:
        """Open the file, so that one that cannot be written is known before the node serves."""
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._queued_max = queued_max
        self._monotonic = monotonic
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._is_abandoned = False
        self._file: IO[bytes] | None = self._open()
        self._complained_at = -COMPLAINT_SECONDS
        self.written = 0
        """How many events are in the files, by the writing thread."""
        self.dropped = 0
        """How many events there was no room for, by the loop."""
        self.lost = 0
        """How many events the disk did not take, by the writing thread."""
        self._thread = threading.Thread(target=self._run, name="headrace-audit", daemon=True)
        self._thread.start()

    def put(self, time_ms: int, event: AuditEvent) -> None:
        """Queue an event, or drop it if the queue is full."""
        if self._queue.qsize() >= self._queued_max:
            self.dropped += 1
            self._complain()
            return
        self._queue.put((time_ms, event))

    def close(self) -> None:
        """Write what is queued, and end the thread. Takes a while: for a thread, not for a loop."""
        self._queue.put(None)
        self._thread.join(STOP_SECONDS_MAX)

    def abandon(self) -> None:
        """Leave the thread to end by itself, and release the file's lock, as if killed."""
        self._is_abandoned = True
        file = self._file
        if file is not None:
            with suppress(OSError, ValueError):  # the thread may close it
                fcntl.flock(file.fileno(), fcntl.LOCK_UN)
        self._queue.put(None)

    # What the thread does

    def _run(self) -> None:
        is_over = False
        while not is_over:
            items = [self._queue.get()]
            while len(items) < LINES_AT_ONCE and not self._queue.empty():
                items.append(self._queue.get())
            lines = []
            for item in items:
                if item is None:
                    is_over = True
                else:
                    lines.append(encode_line(*item))
            before = self.written
            try:
                self._write(lines)
            except OSError as error:
                self.lost += len(lines) - (self.written - before)
                self._forget_file()
                self._complain(error)
        self._forget_file()

    def _forget_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _write(self, lines: list[bytes]) -> None:
        self._look_for_file()
        for line in lines:
            if self._file is None:
                self._file = self._open()
            at = self._file.tell()
            if at and at + len(line) > self._file_bytes_max:
                self._rotate()
            assert self._file is not None
            _append(self._file, line)
            self.written += 1

    def _look_for_file(self) -> None:
        """Forget the file if nobody finds it any more under its name."""
        if self._file is None:
            return
        try:
            found = self._path.stat()
        except FileNotFoundError:
            pass
        else:
            if os.path.samestat(found, os.fstat(self._file.fileno())):
                return
        self._forget_file()
        logger.warning(
            "the audit log %s was moved or removed: it goes on in a new file", self._path
        )

    def _open(self) -> IO[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+b", buffering=0)
        try:
            self._lock(file)
            self._path.chmod(FILE_MODE)
            if size := file.seek(0, os.SEEK_END):
                file.seek(size - 1)
                if file.read(1) != b"\n":  # a crash, or a full disk, cut off the last line
                    _append(file, b"\n")
        except BaseException:
            file.close()
            raise
        return file

    def _lock(self, file: IO[bytes]) -> None:
        """Lock a file for as long as it is open; OSError if another process has done so."""
        if self._is_abandoned:
            return
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EAGAIN, "another node writes it") from None

    def _rotate(self) -> None:
        for number in range(self._files_max, 0, -1):
            older = self._path if number == 1 else rotated(self._path, number - 1)
            if not older.exists():
                continue
            if number >= self._files_max:
                older.unlink()
            else:
                older.replace(rotated(self._path, number))
        # Locked until its successor is.
        before, self._file = self._file, None
        try:
            self._file = self._open()
        finally:
            if before is not None:
                before.close()

    def _complain(self, error: OSError | None = None) -> None:
        now = self._monotonic()
        if now < self._complained_at + COMPLAINT_SECONDS:
            return
        self._complained_at = now
        gone = self.dropped + self.lost
        why = "its queue is full" if error is None else f"{error.strerror or error}"
        logger.error("the audit log %s misses %d events: %s", self._path, gone, why)


def _append(file: IO[bytes], line: bytes) -> None:
    """Write a whole line or nothing; OSError for nothing."""
    taken = file.write(line) or 0
    if taken < len(line):
        with suppress(OSError):
            file.truncate(os.fstat(file.fileno()).st_size - taken)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def encode_line(time_ms: int, event: AuditEvent) -> bytes:
    """Return an event as a line, its time first."""
    time = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return b'{"time":"%s",%s\n' % (
        time.replace("+00:00", "Z").encode(),
        _ENCODER.encode(event)[1:],
    )
