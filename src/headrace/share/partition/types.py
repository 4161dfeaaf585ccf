"""What goes into the machine of a share partition, and what comes out."""

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from headrace.wire.share_types import AcquireMode


class AckType(IntEnum):
    """What a member says of a record, by Kafka's numbers."""

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
    BEHIND_LOG_START = "behind the start of the log"
    GONE = "no longer in the log"
    """Compacted away, or never a record: an offset that is not there to be delivered."""


class Limits(NamedTuple):
    """A group's settings, as they are now."""

    lock_duration_ms: int
    delivery_count_limit: int
    in_flight_max: int
    """How many offsets the window has, from its start to its end."""
    is_renew_allowed: bool = True
    has_dead_letters: bool = False
    """Whether records that are given up go to a topic first."""
    release_backoff_ms: int = 0
    """How long a record rests after its first release, and twice as long after each more; 0 if not
    at all."""
    release_backoff_max_ms: int = 0


class FetchedBatch(NamedTuple):
    """A batch of the log, as its header says."""

    first_offset: int
    last_offset: int
    is_deliverable: bool = True
    """False for control batches, those of aborted transactions and those that nobody can read."""
    is_control: bool = False
    """Tells them apart, for those who ask why an offset was never delivered."""
    is_readable: bool = True


class Wanted(NamedTuple):
    """What a member asks for."""

    max_records: int
    batch_size: int
    """How many offsets a range of the answer has, about: a fresh one ends where a batch does."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """Offsets that a member has now."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """What a member says of some offsets: one type for all of them, or one each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class DeadLetter(NamedTuple):
    """Offsets that are to be copied to the dead letters before they are archived."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class GivenUp(NamedTuple):
    """Offsets that are archived, for those who look."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause


class InFlight(NamedTuple):
    """A run of offsets in the window, for those who look."""

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
