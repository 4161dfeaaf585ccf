"""Durable data: entries, the hard state, snapshots and the membership."""

from enum import IntEnum
from functools import cached_property
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.ids import BrokerId as NodeId
from headrace.raft.membership import Membership

ENTRY_OVERHEAD_BYTES: Final = 32
"""What an entry counts for in every limit, beyond its data."""


class EntryKind(IntEnum):
    DATA = 0
    """A proposal; only these are applied."""
    NOOP = 1
    """What a new leader writes first, to commit what it found."""
    MEMBERSHIP = 2
    """The members from this entry on."""


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One place of the log."""

    index: int
    term: int
    kind: EntryKind
    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data) + ENTRY_OVERHEAD_BYTES


class HardState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a node must not forget: its term, its vote in it, and its last promise."""

    term: int = 0
    vote: NodeId | None = None
    hold_ms: int = 0
    """The longest time after a heartbeat for which it promised not to help elect another leader."""


class SnapshotMark(msgspec.Struct, frozen=True):
    """Where a snapshot is in the log; its bytes are on the disk."""

    index: int
    term: int
    membership: Membership


class Snapshot(msgspec.Struct, array_like=True, frozen=True, dict=True):
    """The applied state as of an index, replacing the entries up to there.

    One at index 0 has no data and only lists the first members.
    """

    index: int
    term: int
    membership: Membership
    data: bytes

    def mark(self) -> SnapshotMark:
        return SnapshotMark(self.index, self.term, self.membership)

    @cached_property
    def checksum(self) -> int:
        """CRC32C of the data; takes a while at first."""
        return crc32c(self.data)
