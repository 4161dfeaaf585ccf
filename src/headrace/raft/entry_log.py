"""The core's view of the log: every entry after the last compaction, in memory.

It has three marks: `applied` <= `commit`, and `persisted`, up to which this node's disk has it.
Committed entries are returned only up to `persisted`, so that what is applied here survives here.
The driver compacts by size, which bounds the memory.
"""

from headrace.raft.entries import Entry, EntryKind, Snapshot, SnapshotMark
from headrace.raft.errors import BrokenInvariant
from headrace.raft.membership import Membership, decode_membership


class EntryLog:
    """Entries from `base_index + 1` on, the marks, and the members as of each."""

    def __init__(self, snapshot: SnapshotMark, base: tuple[int, int], entries: list[Entry]) -> None:
        """Start with the stored log: all of it is durable, and committed up to the snapshot."""
        self.snapshot = snapshot
        """The latest; the log may reach back further, for followers that lag a little."""
        self.installing: Snapshot | None = None
        """One from a leader that storage and state machine do not have yet."""
        self.base_index, self.base_term = base
        self.entries: list[Entry] = []
        self.memberships: list[tuple[int, Membership]] = [(snapshot.index, snapshot.membership)]
        self.uncommitted_bytes = 0
        self.commit = self.applied = self.persisted = snapshot.index
        self.append(entries)
        self.persisted = self.last_index

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.base_term

    @property
    def membership(self) -> Membership:
        return self.memberships[-1][1]

    @property
    def membership_index(self) -> int:
        """Where the membership was last changed."""
        return self.memberships[-1][0]

    @property
    def previous_membership(self) -> Membership:
        """The members before the last change, which was only made once they were committed."""
        return self.memberships[-2 if len(self.memberships) > 1 else -1][1]

    def membership_at(self, index: int) -> Membership:
        return next(each for at, each in reversed(self.memberships) if at <= index)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, None if it is not here."""
        position = index - self.base_index
        if position == 0:
            return self.base_term
        return self.entries[position - 1].term if 0 < position <= len(self.entries) else None

    def is_covered_by(self, last_index: int, last_term: int) -> bool:
        """Return whether a log with this end has every committed entry of this one."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def read(self, first: int, bytes_max: int) -> list[Entry]:
        """Return entries from `first` on: at least one if there is one, then up to `bytes_max`."""
        found: list[Entry] = []
        size = 0
        for position in range(first - self.base_index - 1, len(self.entries)):
            entry = self.entries[position]
            size += entry.size_bytes
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def append(self, entries: list[Entry]) -> None:
        """Append entries."""
        last_index = self.last_index
        for entry in entries:
            if entry.index != last_index + 1:
                raise BrokenInvariant(f"entry {entry.index} behind {last_index}")
            last_index = entry.index
            self.entries.append(entry)
            if entry.index > self.commit:
                self.uncommitted_bytes += entry.size_bytes
            if entry.kind is EntryKind.MEMBERSHIP and entry.index > self.snapshot.index:
                self.memberships.append((entry.index, decode_membership(entry.data)))

    def merge(self, entries: list[Entry]) -> None:
        """Merge a leader's entries, the first of which follows one that both have.

        Equal entries stay, even if more follow them: an old message must not undo a later one. The
        first that differs truncates its successors.
        """
        for position, entry in enumerate(entries):
            term = self.term_at(entry.index)
            if term != entry.term:
                if term is not None:
                    self._cut(entry.index)
                self.append(entries[position:])
                return

    def _cut(self, index: int) -> None:
        """Remove the entry at `index` and all later ones."""
        if index <= self.commit:
            raise BrokenInvariant(f"entry {index} is committed (up to {self.commit}), not to cut")
        position = index - self.base_index - 1
        self.uncommitted_bytes -= sum(entry.size_bytes for entry in self.entries[position:])
        del self.entries[position:]
        self.persisted = min(self.persisted, index - 1)
        while self.memberships[-1][0] >= index:
            self.memberships.pop()

    def commit_to(self, index: int) -> bool:
        """Move the commit index up to `index`, never back; say whether it moved."""
        if index <= self.commit:
            return False
        if index > self.last_index:
            raise BrokenInvariant(f"commit of {index}, the log ends at {self.last_index}")
        for position in range(self.commit - self.base_index, index - self.base_index):
            self.uncommitted_bytes -= self.entries[position].size_bytes
        self.commit = index
        return True

    def unpersisted(self) -> list[Entry]:
        return self.entries[self.persisted - self.base_index :]

    def persisted_to(self, index: int, term: int) -> None:
        """Record that the disk has the log up to an entry, unless it was replaced since."""
        if index > self.persisted and self.term_at(index) == term:
            self.persisted = index

    @property
    def has_committed(self) -> bool:
        """Whether `take_committed` has something to return."""
        return self.applied < self.commit and self.applied < self.persisted

    def take_committed(self, count_max: int) -> list[Entry]:
        """Hand out, once, what is committed and durable here; at most so many at a time."""
        end = min(self.commit, self.persisted, self.applied + count_max)
        if end <= self.applied:
            return []
        taken = self.entries[self.applied - self.base_index : end - self.base_index]
        self.applied = end
        return taken

    def install(self, snapshot: Snapshot) -> None:
        """Start over after a leader's snapshot.

        It counts as durable at once: it is in the next Ready, and nothing that depends on it is
        sent before that is stored.
        """
        self.snapshot, self.installing = snapshot.mark(), snapshot
        self.base_index, self.base_term = snapshot.index, snapshot.term
        self.entries.clear()
        self.memberships = [(snapshot.index, snapshot.membership)]
        self.uncommitted_bytes = 0
        self.commit = self.applied = self.persisted = snapshot.index

    def compact(self, snapshot: SnapshotMark, kept_entries: int) -> None:
        """Replace all but the last entries up to our own snapshot."""
        self.snapshot = snapshot
        self.memberships = [
            (snapshot.index, snapshot.membership),
            *(each for each in self.memberships if each[0] > snapshot.index),
        ]
        base = snapshot.index - kept_entries
        if base > self.base_index:
            term = self.term_at(base)
            assert term is not None
            del self.entries[: base - self.base_index]
            self.base_index, self.base_term = base, term
