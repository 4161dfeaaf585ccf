"""The durable state of a share partition."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

UNKNOWN_COUNT: Final = -1
NO_LEADER_EPOCH: Final = -1
"""The leader epoch of a reader that is not the leader of the share partition."""


class DeliveryState(IntEnum):
    """Delivery states of a record, with Kafka's codes."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Leased to a member; never persisted."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Given up, waiting for its dead letter (KIP-1191)."""
    ARCHIVED = 4


TRANSITIONS: Final[Mapping[DeliveryState, Mapping[DeliveryState, str]]] = {
    DeliveryState.AVAILABLE: {
        DeliveryState.ACQUIRED: "a member fetches it",
        DeliveryState.ARCHIVED: "not a record any more, or unreadable",
    },
    DeliveryState.ACQUIRED: {
        DeliveryState.AVAILABLE: "released, lock timeout, or the member left",
        DeliveryState.ACKNOWLEDGED: "accepted",
        DeliveryState.ARCHIVING: "rejected or delivered too often, with dead letters",
        DeliveryState.ARCHIVED: "rejected, a gap, or delivered too often",
    },
    DeliveryState.ARCHIVING: {DeliveryState.ARCHIVED: "its dead letter is written"},
    DeliveryState.ACKNOWLEDGED: {},
    DeliveryState.ARCHIVED: {},
}
"""The transitions from each state, and why. All end when the log's start passes the record."""


class StateBatch(NamedTuple):
    """A range of offsets in one state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class DurableState(NamedTuple):
    """A share partition as last persisted."""

    state_epoch: int
    """Grows when a group's offsets are reset, which invalidates earlier state."""
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """How many records from the start on are acknowledged or archived."""
    batches: tuple[StateBatch, ...] = ()


class StateSummary(NamedTuple):
    """The base of a group's offsets and lag."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class StateWrite(NamedTuple):
    """A change of a share partition, to be merged into the stored state."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """UNKNOWN_OFFSET keeps the stored one."""
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
