"""What goes in and out of the core beside messages: what a disk had, and what is to be done."""

from typing import Final

import msgspec

from headrace.raft.entries import Entry, HardState, Snapshot
from headrace.raft.messages import Message


class Stored(msgspec.Struct, frozen=True):
    """What a node's disk had when it was opened."""

    snapshot: Snapshot
    hard_state: HardState = HardState()
    base_index: int = 0
    base_term: int = 0
    entries: list[Entry] = []


COMMITTED_AT_ONCE_MAX: Final = 1000
"""How many entries one Ready has to be applied: others on the loop want a turn, too."""


class Ready(msgspec.Struct, frozen=True):
    """What the core wants done, in the order of the fields."""

    early_messages: list[Message]
    """What may go at once, as it promises nothing that is not on this node's disk already."""
    snapshot: Snapshot | None
    """In place of the whole log and of the applied state."""
    hard_state: HardState | None
    """None if it is as before."""
    entries: list[Entry]
    """To be stored in place of whatever the log had from the first one's index on."""
    messages: list[Message]
    """What may go only when the three above are durable."""
    committed: list[Entry]
    """To be applied; they are durable already."""
    reads: list[tuple[int, int]]
    """Reads and the index up to which this node must have applied to serve them."""
    dropped_reads: list[int]
    wants_snapshot: bool = False
    """Whether a member needs the snapshot: read it from the disk for `offer_snapshot`."""

    @property
    def must_persist(self) -> bool:
        return bool(self.entries or self.hard_state is not None or self.snapshot is not None)


class Proposed(msgspec.Struct, frozen=True):
    """Where a proposal is in the log, unless a leader of a later term puts something else there."""

    index: int
    term: int
