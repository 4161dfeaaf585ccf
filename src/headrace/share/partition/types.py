"""Inputs and outputs of the share partition machine."""

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from headrace.wire.share_types import AcquireMode


class AckType(IntEnum):
    """Acknowledgement types, with Kafka's codes."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Cause(Enum):
    """Why a record was given up."""

    REJECTED = "rejected"
    EXHAUSTED = "delivery count exceeded"
    LOCK_TIMED_OUT = "acquisition lock timed out"
    ABORTED = "transaction aborted"
    UNREADABLE = "cannot be read"
    BEHIND_LOG_START = "before the start of the log"
    GONE = "no longer in the log"
    """Compacted away, or never a record: an offset without a record to deliver."""


class Limits(NamedTuple):
    """A group's current settings."""

    lock_duration_ms: int
    delivery_count_limit: int
    in_flight_max: int
    """The most offsets of the window, from its start to its end."""
    is_renew_allowed: bool = True
    has_dead_letters: bool = False
    """Whether given-up records are copied to a dead-letter topic first."""
    release_backoff_ms: int = 0
    """The backoff after a record's first release, doubled with each further one; 0 for none."""
    release_backoff_max_ms: int = 0


class FetchedBatch(NamedTuple):
    """A batch of the log, from its header."""

    first_offset: int
    last_offset: int
    is_deliverable: bool = True
    """False for control batches, aborted transactions and unreadable batches."""
    is_control: bool = False
    """Which of these it is, to explain why an offset was never delivered."""
    is_readable: bool = True


class Wanted(NamedTuple):
    """The limits of a member's fetch."""

    max_records: int
    batch_size: int
    """The approximate size of a range in the response: a fresh one ends with a batch."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """Offsets that a member has acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of some offsets: one type for all of them, or one each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class DeadLetter(NamedTuple):
    """Offsets to copy to the dead-letter topic before they are archived."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class GivenUp(NamedTuple):
    """Archived offsets, for inspection."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class InFlight(NamedTuple):
    """A run of offsets in the window, for inspection."""

    first_offset: int
    last_offset: int
    state: str
    """available, acquired, acknowledged, archiving or archived."""
    delivery_count: int
    member_id: str | None
    lock_left_ms: int | None
    resting_ms: int | None
    """How long until a released record may be acquired again."""
    cause: Cause | None
    """Why it was given up, if it was."""
