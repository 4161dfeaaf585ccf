"""A node's durable log, hard state and snapshot.

    <folder>/00000000000000000001.raft   frames (see `frames`), appended and synced one by one
    <folder>/snapshot                    the last one, replaced atomically

A file of frames starts with one that has the hard state and the position in the log, so older files
can be removed as soon as a snapshot covers their entries. Entries that a new leader replaced are
not truncated; the later frame counts. OutOfSpace changes nothing, so the write can be retried once
there is room. Any other OSError leaves the storage unusable: the write is not promised, and only
reopening shows what the disk has.

One call at a time, from any thread; only `read_snapshot`, and `store_snapshot` of the node's own
snapshot, may run concurrently with others.
"""

import logging
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from headrace.log.disk import Disk, DiskFile
from headrace.raft.entries import Entry, HardState, Snapshot
from headrace.raft.errors import CorruptRaftLog
from headrace.raft.frames import Frame, encode_frame
from headrace.raft.full_disk import OutOfSpace, naming_lack_of_space
from headrace.raft.ready import Ready, Stored

SUFFIX: Final = ".raft"
SNAPSHOT_FILE: Final = "snapshot"
SNAPSHOT_MAGIC: Final = b"HRs1"

logger = logging.getLogger(__name__)

_snapshots: Final = msgspec.msgpack.Decoder(Snapshot)


class LogFile(NamedTuple):
    """A file that is no longer written to."""

    number: int
    last_index: int
    """No entry in it is after this one."""


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
        self._may_be_torn = False
        """Whether an append failed and may have left bytes after the synced part."""
        self._is_roll_late = False
        self._installed: Snapshot | None = None
        """A leader's snapshot that is stored, but not the frame that restarts the log after it."""
        self._last_index = stored.base_index + len(stored.entries)
        self._last_term = stored.entries[-1].term if stored.entries else stored.base_term
        self._highest_index = self._last_index
        """The highest that any frame of the file has; replaced entries count."""
        self._terms = _Terms(stored)

    def store(self, ready: Ready) -> None:
        """Make what a Ready has to be stored durable, with one sync if there is no snapshot.

        With a snapshot the hard state goes first: the snapshot may be of a term that this node
        heard of in the same Ready, and a node must not find itself in an earlier one.
        """
        if ready.snapshot is not None and ready.snapshot is not self._installed:
            self._store_hard_state(ready.hard_state or self.hard_state)
            self.store_snapshot(ready.snapshot)
            self._installed = ready.snapshot
        self.write(ready)
        self._installed = None
        self.sync()

    def write(self, ready: Ready) -> None:
        """Hand a Ready's hard state and entries to the kernel: what `store` does before its sync.

        `sync` has to follow before the next write. Does not wait for the disk.
        """
        snapshot, entries = ready.snapshot, ready.entries
        hard_state = ready.hard_state or self.hard_state
        last_index, last_term = self._last_index, self._last_term
        if snapshot is not None:
            last_index, last_term = snapshot.index, snapshot.term
        previous_index, previous_term = last_index, last_term
        if entries and entries[0].index != last_index + 1:
            previous_index = entries[0].index - 1
            previous_term = self._terms.at(previous_index)
        is_start = snapshot is not None
        self._append(Frame(hard_state, previous_index, previous_term, entries, is_start))
        # Only now: if there was no room, the next call has to find everything as it was.
        self.hard_state = hard_state
        if snapshot is not None:
            self._terms.start(last_index, last_term)
        if entries:
            self._terms.replace(entries)
            last_index, last_term = entries[-1].index, entries[-1].term
            self._highest_index = max(self._highest_index, last_index)
        self._last_index, self._last_term = last_index, last_term

    def sync(self) -> None:
        """Make what was written durable."""
        file = self._file
        assert file is not None
        _sync_or_cut(file, self._synced_bytes)
        self._synced_bytes = file.size
        if file.size >= self._segment_bytes:
            self._roll_if_there_is_room()

    def read_snapshot(self) -> Snapshot:
        """Return the stored snapshot; not concurrently with `store_snapshot`."""
        return load_snapshot(self._disk, self._path(SNAPSHOT_FILE))

    def store_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the snapshot; after a crash it is the old or the new one.

        All of it is rewritten each time, so any step, a sync included, may raise OutOfSpace.
        """
        body = msgspec.msgpack.encode(snapshot)
        data = SNAPSHOT_MAGIC + crc32c(body).to_bytes(4, "big") + body
        with naming_lack_of_space():
            self._disk.replace(self._path(SNAPSHOT_FILE), data)

    def compact(self, up_to_index: int) -> None:
        """Remove the files that only have entries up to an index which a snapshot covers."""
        count = len(self._old_files)
        while self._old_files and self._old_files[0].last_index <= up_to_index:
            try:
                with naming_lack_of_space():  # some file systems need room to remove a file
                    self._disk.remove(self._path(file_name(self._old_files[0].number)))
            except OutOfSpace:
                break  # the next compaction tries again
            del self._old_files[0]
        if len(self._old_files) < count:
            # Files that come back in a crash hold nothing that the snapshot does not.
            with suppress(OutOfSpace), naming_lack_of_space():
                self._disk.sync_folder(self._folder)
        self._terms.forget(up_to_index)

    def begin(self) -> None:
        """Make the first file; OutOfSpace if there is no room for it."""
        self._roll()

    def resume(self, old_files: list[LogFile], current: LogFile, file: DiskFile) -> None:
        """Continue after what was read."""
        self._old_files = old_files
        self._number, self._highest_index = current
        self._file = file
        self._synced_bytes = file.size

    def restart_log(self) -> None:
        """Write a frame that restarts the log after the snapshot."""
        self._append(Frame(self.hard_state, self._last_index, self._last_term, [], is_start=True))
        self.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def file_count(self) -> int:
        return len(self._old_files) + 1

    def _store_hard_state(self, hard_state: HardState) -> None:
        """Make a term and a vote durable, and leave the log as it is."""
        if hard_state != self.hard_state:
            self._append(Frame(hard_state, self._last_index, self._last_term, []))
            self.hard_state = hard_state
            self.sync()

    def _append(self, frame: Frame) -> None:
        file = self._file
        assert file is not None
        try:
            if self._may_be_torn:
                self._cut_back(file)
            assert file.size == self._synced_bytes, "the frame before is not known to be durable"
            file.append(encode_frame(frame, number=self._number, position=file.size))
        except OSError:
            self._may_be_torn = True
            with naming_lack_of_space():  # only now, as this is on the way of every proposal
                raise

    def _cut_back(self, file: DiskFile) -> None:
        """Cut off what an append without room has left, if it could not do so itself."""
        if file.size > self._synced_bytes:
            file.truncate(self._synced_bytes)
        self._may_be_torn = False

    def _roll_if_there_is_room(self) -> None:
        """Begin a new file, else let the one that there is get longer."""
        try:
            self._roll()
        except OutOfSpace as error:
            if not self._is_roll_late:
                logger.warning(
                    "the metadata log continues in %s: %s", file_name(self._number), error
                )
            self._is_roll_late = True
        else:
            self._is_roll_late = False

    def _roll(self) -> None:
        """Start a new file. The previous one is synced, so a fault in it is always damage.

        It replaces the previous one when it is durable. Without room for its first frame it does
        not count, and the previous one may be written to again; but not once that frame is whole:
        an opening takes it as the end of the previous file.
        """
        number = self._number + 1
        path = self._path(file_name(number))
        frame = Frame(self.hard_state, self._last_index, self._last_term, [])
        with naming_lack_of_space():
            if self._is_roll_late:
                with suppress(FileNotFoundError):
                    self._disk.remove(path)
            file = self._disk.open(path, create=True)
            try:
                file.append(encode_frame(frame, number=number, position=0))
            except OSError:
                with suppress(OSError):
                    self._disk.remove(path)
                raise
        _sync_or_cut(file, 0)
        self._disk.sync_folder(self._folder)
        if self._file is not None:
            self._old_files.append(LogFile(self._number, self._highest_index))
            self._file.close()
        self._number, self._highest_index = number, self._last_index
        self._file, self._synced_bytes = file, file.size

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


def _sync_or_cut(file: DiskFile, synced_bytes: int) -> None:
    """Make a file durable, or cut off what is not."""
    try:
        file.sync()
    except OSError:
        # It can be read but is not on the disk: whoever opens the files must not find it.
        with suppress(OSError):
            file.truncate(synced_bytes)
        raise


def load_snapshot(disk: Disk, path: str) -> Snapshot:
    data = disk.read(path)
    if data[:4] != SNAPSHOT_MAGIC or crc32c(data[8:]) != int.from_bytes(data[4:8], "big"):
        raise CorruptRaftLog(path, 0, "a snapshot with a wrong checksum")
    try:
        return _snapshots.decode(data[8:])
    except msgspec.MsgspecError as error:
        raise CorruptRaftLog(path, 8, f"a snapshot that cannot be read: {error}") from None


def file_name(number: int) -> str:
    return f"{number:020d}{SUFFIX}"
