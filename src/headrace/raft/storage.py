"""A node's log, hard state and snapshot on a disk: what the core is told is durable.

    <folder>/00000000000000000001.raft   frames (see `frames`), appended and synced one by one
    <folder>/snapshot                    the last one, replaced atomically

A file of frames begins with one that has the hard state and where the log goes on, so older files
can go as soon as a snapshot holds their entries. Entries that a new leader replaced are not cut
off; the later frame counts. An OSError leaves the storage unusable: what it was to store is not
promised, and only opening it again tells what the disk has.

One call at a time, from any thread; only `read_snapshot`, and `store_snapshot` of the node's own
snapshot, may run beside the others.
"""

from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from headrace.log.disk import TEMPORARY_SUFFIX, Disk, DiskFile, folder_of
from headrace.raft.entries import Entry, HardState, Snapshot
from headrace.raft.errors import CorruptRaftLog
from headrace.raft.frames import Frame, FrameWalk, encode_frame
from headrace.raft.membership import Membership
from headrace.raft.ready import Ready, Stored

SUFFIX: Final = ".raft"
SNAPSHOT_FILE: Final = "snapshot"
SNAPSHOT_MAGIC: Final = b"HRs1"

_snapshots: Final = msgspec.msgpack.Decoder(Snapshot)


class LogFile(NamedTuple):
    """A file that is no longer written to."""

    number: int
    last_index: int
    """No entry in it is behind this one."""


class RaftStorage:
    """The files of one node; `open_storage` gives one."""

    def __init__(self, disk: Disk, folder: str, stored: Stored, segment_bytes: int) -> None:
        self.hard_state = stored.hard_state
        self._disk = disk
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._old_files: list[LogFile] = []
        self._number = 0
        self._file: DiskFile | None = None
        self._synced_bytes = 0
        self._last_index = stored.base_index + len(stored.entries)
        self._last_term = stored.entries[-1].term if stored.entries else stored.base_term
        self._highest_index = self._last_index
        """The highest that any frame of the file has; replaced entries count."""
        self._terms = _Terms(stored)

    def store(self, ready: Ready) -> None:
        """Make what a Ready has to be stored durable, with one sync if there is no snapshot."""
        if ready.snapshot is not None:
            self.store_snapshot(ready.snapshot)
            self._last_index, self._last_term = ready.snapshot.index, ready.snapshot.term
            self._terms.start(ready.snapshot.index, ready.snapshot.term)
        self.write(ready)
        self.sync()

    def write(self, ready: Ready) -> None:
        """Hand a Ready's hard state and entries to the kernel: what `store` does before its sync.

        `sync` has to follow before the next write. Does not wait for the disk.
        """
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        previous_index, previous_term = self._last_index, self._last_term
        entries = ready.entries
        if entries:
            previous_index = entries[0].index - 1
            previous_term = self._terms.at(previous_index)
            self._terms.replace(entries)
            self._last_index, self._last_term = entries[-1].index, entries[-1].term
            self._highest_index = max(self._highest_index, self._last_index)
        is_start = ready.snapshot is not None
        self._append(Frame(self.hard_state, previous_index, previous_term, entries, is_start))

    def sync(self) -> None:
        """Make what was written durable."""
        file = self._file
        assert file is not None
        try:
            file.sync()
        except OSError:
            # It can be read but is not on the disk: whoever opens the files must not find it.
            with suppress(OSError):
                file.truncate(self._synced_bytes)
            raise
        self._synced_bytes = file.size
        if file.size >= self._segment_bytes:
            self._roll()

    def read_snapshot(self) -> Snapshot:
        """Give the snapshot that is stored; one call at a time with `store_snapshot`."""
        return _read_snapshot(self._disk, self._path(SNAPSHOT_FILE))

    def store_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the snapshot; after a crash it is the old or the new one."""
        body = msgspec.msgpack.encode(snapshot)
        data = SNAPSHOT_MAGIC + crc32c(body).to_bytes(4, "big") + body
        self._disk.replace(self._path(SNAPSHOT_FILE), data)

    def compact(self, up_to_index: int) -> None:
        """Remove the files that only have entries up to an index which a snapshot covers."""
        is_removed = False
        while self._old_files and self._old_files[0].last_index <= up_to_index:
            self._disk.remove(self._path(_name(self._old_files.pop(0).number)))
            is_removed = True
        if is_removed:
            self._disk.sync_folder(self._folder)
        self._terms.forget(up_to_index)

    def begin(self) -> None:
        """Make the first file."""
        self._roll()

    def resume(self, old_files: list[LogFile], current: LogFile, file: DiskFile) -> None:
        """Go on behind what was read."""
        self._old_files = old_files
        self._number, self._highest_index = current
        self._file = file
        self._synced_bytes = file.size

    def restart_log(self) -> None:
        """Say in the log that it begins behind the snapshot."""
        self._append(Frame(self.hard_state, self._last_index, self._last_term, [], is_start=True))
        self.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def file_count(self) -> int:
        return len(self._old_files) + 1

    def _append(self, frame: Frame) -> None:
        file = self._file
        assert file is not None
        assert file.size == self._synced_bytes, "the frame before is not known to be durable"
        file.append(encode_frame(frame, number=self._number, position=file.size))

    def _roll(self) -> None:
        """Begin a new file. The one before is synced, so a fault in it is always damage."""
        if self._file is not None:
            self._old_files.append(LogFile(self._number, self._highest_index))
            self._file.close()
        self._number += 1
        self._highest_index = self._last_index
        self._file = self._disk.open(self._path(_name(self._number)), create=True)
        self._synced_bytes = 0
        self._append(Frame(self.hard_state, self._last_index, self._last_term, []))
        self.sync()
        self._disk.sync_folder(self._folder)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


class _Terms:
    """The terms of the stored entries, which a frame needs for the one before its first."""

    def __init__(self, stored: Stored) -> None:
        self.start(stored.base_index, stored.base_term)
        self._terms += [entry.term for entry in stored.entries]

    def start(self, base_index: int, base_term: int) -> None:
        self._base_index = base_index
        self._terms = [base_term]

    def at(self, index: int) -> int:
        return self._terms[index - self._base_index]

    def replace(self, entries: list[Entry]) -> None:
        del self._terms[entries[0].index - self._base_index :]
        self._terms += [entry.term for entry in entries]

    def forget(self, up_to_index: int) -> None:
        count = up_to_index - self._base_index
        if 0 < count < len(self._terms):
            del self._terms[:count]
            self._base_index = up_to_index


def open_storage(
    disk: Disk, folder: str, *, bootstrap: Membership, segment_bytes: int
) -> tuple[RaftStorage, Stored]:
    """Open a node's files, or make them, and give what they have.

    `bootstrap` is who the members are if there is nothing yet: the same on every first voter,
    and empty on a node that is to be added. A tail that was never confirmed is cut off;
    CorruptRaftLog names other damage, and then nothing is changed. A node that lost its files must
    not come back under its number with an empty folder as a voter: it could vote twice.
    """
    disk.make_folder(folder)
    above = folder
    while above:
        above = folder_of(above)
        disk.sync_folder(above)
    opening = _Opening(disk, folder)
    snapshot = opening.read_snapshot()
    stored = opening.read_log(snapshot or Snapshot(0, 0, bootstrap, b""))
    storage = RaftStorage(disk, folder, stored, segment_bytes)
    if snapshot is None:
        storage.store_snapshot(stored.snapshot)
    opening.hand_over(storage)
    return storage, stored


class _Opening:
    """What is found while files are read; the disk is left alone until all is well."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._prefix = f"{folder}/" if folder else ""
        self._files: list[LogFile] = []
        self._empty: list[str] = []
        self._good_bytes = 0
        self._hard_state = HardState()
        self._base = (0, 0)
        self._entries: list[Entry] = []
        self._has_start = False
        self._must_start = False

    def read_snapshot(self) -> Snapshot | None:
        path = self._prefix + SNAPSHOT_FILE
        return _read_snapshot(self._disk, path) if self._disk.exists(path) else None

    def read_log(self, snapshot: Snapshot) -> Stored:
        names = sorted(name for name in self._disk.list(self._folder) if _is_log_file(name))
        for position, name in enumerate(names):
            self._read_file(name, is_last=position == len(names) - 1)
        return self._fit(snapshot)

    def _read_file(self, name: str, *, is_last: bool) -> None:
        path = self._prefix + name
        number = int(name.removesuffix(SUFFIX))
        if self._files and number != self._files[-1].number + 1:
            raise CorruptRaftLog(path, 0, f"file {self._files[-1].number + 1} is missing before it")
        walk = FrameWalk(self._disk.read(path), number)
        highest_index = 0
        for frame in walk:
            self._take(frame, path, walk.position)
            highest_index = max(highest_index, self._base[0] + len(self._entries))
        if walk.fault is not None:
            behind = walk.good_frame_behind()
            if not is_last or behind is not None:
                proof = f"a good frame follows at {behind}" if behind else "a later file follows"
                raise CorruptRaftLog(path, walk.position, f"{walk.fault}, but {proof}")
        if walk.position == 0:
            if not is_last:
                raise CorruptRaftLog(path, 0, "an empty file, but a later file follows")
            self._empty.append(path)  # its first frame was never confirmed
            return
        self._files.append(LogFile(number, highest_index))
        self._good_bytes = walk.position

    def _take(self, frame: Frame, path: str, position: int) -> None:
        self._hard_state = frame.hard_state
        previous = (frame.previous_index, frame.previous_term)
        base_index = self._base[0]
        is_first = not self._has_start
        if frame.is_start or is_first or frame.previous_index < base_index:
            self._base, self._entries, self._has_start = previous, list(frame.entries), True
            return
        kept = frame.previous_index - base_index
        if kept > len(self._entries):
            raise CorruptRaftLog(
                path,
                position,
                f"entries behind {frame.previous_index}, but the log ends at "
                f"{base_index + len(self._entries)}",
            )
        term = self._entries[kept - 1].term if kept else self._base[1]
        if term != frame.previous_term:
            raise CorruptRaftLog(
                path, position, f"entry {previous[0]} is of term {term}, not {previous[1]}"
            )
        del self._entries[kept:]
        self._entries += frame.entries

    def _fit(self, snapshot: Snapshot) -> Stored:
        """Join log and snapshot: the log goes on from it, or began again behind it."""
        base_index, base_term = self._base
        last_index = base_index + len(self._entries)
        if base_index > snapshot.index:
            path = self._prefix + SNAPSHOT_FILE
            raise CorruptRaftLog(
                path, 0, f"it ends at {snapshot.index}, but the log begins behind {base_index}"
            )
        position = snapshot.index - base_index
        term = base_term if position == 0 else None
        if 0 < position <= len(self._entries):
            term = self._entries[position - 1].term
        if last_index < snapshot.index or term != snapshot.term:
            # A crash between an installed snapshot and the frame that begins the log behind it.
            self._must_start = True
            return Stored(snapshot, self._hard_state, snapshot.index, snapshot.term, [])
        return Stored(snapshot, self._hard_state, base_index, base_term, self._entries)

    def hand_over(self, storage: RaftStorage) -> None:
        """Tidy up, and let the storage go on where the files end."""
        for path in self._empty:
            self._disk.remove(path)
        temporary = self._prefix + SNAPSHOT_FILE + TEMPORARY_SUFFIX
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        if self._files:
            current = self._files.pop()
            path = f"{self._prefix}{_name(current.number)}"
            file = self._disk.open(path)
            if file.size > self._good_bytes:
                file.truncate(self._good_bytes)
            file.sync()  # what was read may be in the page cache only
            storage.resume(self._files, current, file)
        else:
            storage.begin()
        self._disk.sync_folder(self._folder)
        if self._must_start:
            storage.restart_log()


def _read_snapshot(disk: Disk, path: str) -> Snapshot:
    data = disk.read(path)
    if data[:4] != SNAPSHOT_MAGIC or crc32c(data[8:]) != int.from_bytes(data[4:8], "big"):
        raise CorruptRaftLog(path, 0, "a snapshot with a wrong checksum")
    try:
        return _snapshots.decode(data[8:])
    except msgspec.MsgspecError as error:
        raise CorruptRaftLog(path, 8, f"a snapshot that cannot be read: {error}") from None


def _is_log_file(name: str) -> bool:
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdecimal()


def _name(number: int) -> str:
    return f"{number:020d}{SUFFIX}"
