"""Opening a node's files: their contents, and a storage that continues after them.

A tail that was never confirmed is truncated. Any other fault is damage, which is reported, and the
files are not changed. Read next: `storage`, `frames`.
"""

from headrace.log.disk import TEMPORARY_SUFFIX, Disk, folder_of
from headrace.raft.entries import Entry, HardState, Snapshot
from headrace.raft.errors import CorruptRaftLog
from headrace.raft.frames import Frame, FrameWalk
from headrace.raft.membership import Membership
from headrace.raft.ready import Stored
from headrace.raft.storage import (
    SNAPSHOT_FILE,
    SUFFIX,
    LogFile,
    RaftStorage,
    file_name,
    load_snapshot,
)


def open_storage(
    disk: Disk, folder: str, *, bootstrap: Membership, segment_bytes: int
) -> tuple[RaftStorage, Stored]:
    """Open or create a node's files, and return their contents.

    `bootstrap` is the membership if there are no files yet: the same on every first voter, and
    empty on a node that is to be added. A tail that was never confirmed is truncated; other damage
    raises CorruptRaftLog without a change. A node that lost its files must not come back under its
    id with an empty folder as a voter: it could vote twice.
    """
    disk.make_folder(folder)
    above = folder
    while above:
        above = folder_of(above)
        disk.sync_folder(above)
    opening = _Opening(disk, folder)
    snapshot = opening.read_snapshot()
    stored = opening.read_log(snapshot, bootstrap)
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
        """The last file, if its first frame was never confirmed."""
        self._good_bytes = 0
        self._hard_state = HardState()
        self._base = (0, 0)
        self._entries: list[Entry] = []
        self._has_start = False
        self._must_start = False

    def read_snapshot(self) -> Snapshot | None:
        path = self._prefix + SNAPSHOT_FILE
        return load_snapshot(self._disk, path) if self._disk.exists(path) else None

    def read_log(self, snapshot: Snapshot | None, bootstrap: Membership) -> Stored:
        names = sorted(name for name in self._disk.list(self._folder) if _is_log_file(name))
        if names and not self._is_begun(names[-1]):
            self._empty.append(self._prefix + names.pop())
        for position, name in enumerate(names):
            self._read_file(name, is_last=position == len(names) - 1)
        if snapshot is None and self._files:
            path = self._prefix + SNAPSHOT_FILE  # it is made before the log is
            raise CorruptRaftLog(path, 0, "it is missing, but there is a log")
        return self._fit(snapshot or Snapshot(0, 0, bootstrap, b""))

    def _is_begun(self, name: str) -> bool:
        """Return whether a file has its first frame, or had one that was confirmed.

        Without room for that frame, the log continued in the previous file. So a file without a
        first frame does not prove that the previous one is complete.
        """
        walk = FrameWalk(self._disk.read(self._prefix + name), _number_of(name))
        is_empty = next(iter(walk), None) is None
        return not is_empty or _proof(walk) is not None

    def _read_file(self, name: str, *, is_last: bool) -> None:
        path = self._prefix + name
        number = _number_of(name)
        if self._files and number != self._files[-1].number + 1:
            raise CorruptRaftLog(path, 0, f"file {self._files[-1].number + 1} is missing before it")
        walk = FrameWalk(self._disk.read(path), number)
        highest_index = 0
        for frame in walk:
            self._take(frame, path, walk.position)
            highest_index = max(highest_index, self._base[0] + len(self._entries))
        if walk.fault is not None:
            proof = _proof(walk) or (None if is_last else "a later file follows")
            if proof is not None:
                raise CorruptRaftLog(path, walk.position, f"{walk.fault.reason}, but {proof}")
        if walk.position == 0:
            raise CorruptRaftLog(path, 0, "an empty file, but a later file follows")
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
        """Join log and snapshot: the log continues from it, or restarted after it."""
        base_index, base_term = self._base
        last_index = base_index + len(self._entries)
        if base_index > snapshot.index:
            path = self._prefix + SNAPSHOT_FILE
            raise CorruptRaftLog(
                path, 0, f"it ends at {snapshot.index}, but the log begins behind {base_index}"
            )
        if snapshot.term > self._hard_state.term:
            raise CorruptRaftLog(
                self._prefix + SNAPSHOT_FILE,
                0,
                f"it is of term {snapshot.term}, but the log knows no term beyond "
                f"{self._hard_state.term}",
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
        """Clean up, and return a storage that continues where the files end."""
        for path in self._empty:
            self._disk.remove(path)
        temporary = self._prefix + SNAPSHOT_FILE + TEMPORARY_SUFFIX
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        if self._files:
            current = self._files.pop()
            path = f"{self._prefix}{file_name(current.number)}"
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


def _proof(walk: FrameWalk) -> str | None:
    """Return the proof that a faulty part of a file was once promised; None if there is none."""
    if walk.fault is not None and walk.fault.is_whole:
        return "its checksum is right: newer software may have written it"
    behind = walk.good_frame_behind() if walk.fault is not None else None
    return None if behind is None else f"a good frame follows at {behind}"


def _number_of(name: str) -> int:
    return int(name.removesuffix(SUFFIX))


def _is_log_file(name: str) -> bool:
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdecimal()
