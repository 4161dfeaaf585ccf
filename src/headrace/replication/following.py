"""A follower of one partition (KIP-101, KIP-279, KIP-595): what it asks, what a response means.

    place = follower.ask(log)                   # goes into a fetch request
    step = follower.on_row(row, log)            # Append, Truncate, Restart, AskLatest, Pause, ...

Pure: it looks at the log's offsets and epochs and says what to do; `fetchers` does it. A response
counts only if it is the one to what was asked last, in the leader epoch that still holds, and if
the log still ends there. Whatever else comes is dropped.

Logs are cut by leader epoch, never at the high watermark: what a new leader lacks may be above it
or below, and two followers that cut at their own high watermarks would differ for ever.
"""

from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from headrace.errors import ErrorCode
from headrace.log.epochs import EpochEnd, LeaderEpochs

FIRST_PAUSE_MS: Final = 20
"""How long a partition rests after a first error; doubled with each one that follows."""
DOUBLINGS_MAX: Final = 20


class LogView(Protocol):
    """What a follower looks at."""

    @property
    def start_offset(self) -> int: ...
    @property
    def local_start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def epochs(self) -> LeaderEpochs: ...


class Place(NamedTuple):
    """Where a follower is, as it tells the leader."""

    leader_epoch: int
    offset: int
    last_epoch: int
    """The epoch of its last record, -1 without one."""
    start_offset: int


class Row(NamedTuple):
    """What a leader says about a partition."""

    error_code: int
    has_records: bool
    diverging: EpochEnd | None
    """The largest epoch up to the follower's last one, and its end, if their logs differ."""


class Append(NamedTuple):
    """Append the records, then take the high watermark and the start of the log."""


class Follow(NamedTuple):
    """Take the high watermark and the start of the log; there are no records."""


class Truncate(NamedTuple):
    """Cut the log at an offset and ask again."""

    offset: int


class Restart(NamedTuple):
    """Empty the log, begin at an offset and ask again."""

    offset: int


class AskLatest(NamedTuple):
    """Ask where the leader's log ends: the offset is out of its range."""


class AskEarliest(NamedTuple):
    """Ask where the leader's log starts: its end is not before ours."""


class AskLocalStart(NamedTuple):
    """Ask where the leader's disk starts: what we lack before that is in the tier."""


class Rebuild(NamedTuple):
    """Empty the log and begin at an offset, with the history of what is before it in the tier."""

    offset: int
    start_offset: int
    """Where the log starts, tier included."""


class Pause(NamedTuple):
    """Leave the partition alone for a while, then ask again."""

    code: int
    reason: str


class Drop(NamedTuple):
    """Ignore what came: it answers another question."""


Step: TypeAlias = (
    Append
    | Follow
    | Truncate
    | Restart
    | AskLatest
    | AskEarliest
    | AskLocalStart
    | Rebuild
    | Pause
    | Drop
)

APPEND: Final = Append()
FOLLOW: Final = Follow()
ASK_LATEST: Final = AskLatest()
ASK_EARLIEST: Final = AskEarliest()
ASK_LOCAL_START: Final = AskLocalStart()
DROP: Final = Drop()


class Phase(Enum):
    """What a follower is doing."""

    FETCHING = "fetching"
    WORKING = "working"
    """Its log is being cut, or the leader is asked for its range: nothing is appended."""
    PAUSED = "paused"


class Follower:
    """The follower of one partition, from one change of its leader to the next."""

    __slots__ = ("asked", "failures", "leader_epoch", "phase")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.phase = Phase.FETCHING
        self.asked: Place | None = None
        """What the leader was told last; None if that does not hold any more."""
        self.failures = 0
        """How many errors there were since a response was taken."""

    def ask(self, log: LogView) -> Place:
        """Return where to fetch from, which the next response is compared with."""
        assert self.phase is Phase.FETCHING, self.phase
        end_offset = log.end_offset
        place = Place(
            self.leader_epoch, end_offset, log.epochs.last_epoch(end_offset), log.start_offset
        )
        self.asked = place
        return place

    def is_moved(self, log: LogView) -> bool:
        """Return whether the leader is to be told of a place other than the last one."""
        asked = self.asked
        return (
            asked is None
            or asked.offset != log.end_offset
            or asked.start_offset != log.start_offset
        )

    def expects(self, place: Place | None, end_offset: int) -> bool:
        """Return whether a response to `place` still counts, for a log that ends at an offset."""
        return place is not None and place is self.asked and place.offset == end_offset

    def on_row(self, row: Row, log: LogView) -> Step:
        """Decide what the response to a fetch means."""
        asked = self.asked
        if self.phase is not Phase.FETCHING or asked is None or asked.offset != log.end_offset:
            return DROP
        if row.error_code == ErrorCode.NONE:
            if row.diverging is not None:
                return self._cut(row.diverging, log)
            return APPEND if row.has_records else FOLLOW
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return ASK_LATEST
        if row.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return ASK_LOCAL_START
        return Pause(row.error_code, "the leader refuses it")

    def on_latest(self, leader_end: int, log: LogView) -> Step:
        """Decide what the end of the leader's log means, whose range our offset is not in.

        A leader that was elected although it lacked records ends before us: what it lacks is lost.
        Otherwise its start decides. Nothing is removed before both are known (KAFKA-2143).
        """
        if leader_end < log.end_offset:
            return _cut_at(leader_end, log)
        return ASK_EARLIEST

    def on_earliest(self, leader_start: int, log: LogView) -> Step:
        """Decide what the start of the leader's log means, which ends at or after ours.

        If all that we have was deleted there, begin where it begins. If not, the leader has moved
        since: fetch again.
        """
        if leader_start > log.end_offset:
            return Restart(leader_start)
        return Pause(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader's range has changed meanwhile")

    def on_local_start(self, leader_local_start: int, leader_start: int, log: LogView) -> Step:
        """Decide what the start of the leader's disk means: we lack records that are before it.

        What it has in the tier is not copied: this log goes on where the disk of the leader starts.
        """
        if leader_local_start > log.end_offset:
            return Rebuild(leader_local_start, min(leader_start, leader_local_start))
        return Pause(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "the leader's range has changed meanwhile"
        )

    def pause_ms(self, pause_ms_max: int) -> int:
        """Count an error; return how long to leave the partition alone."""
        self.asked = None
        self.phase = Phase.PAUSED
        pause_ms = FIRST_PAUSE_MS << min(self.failures, DOUBLINGS_MAX)
        self.failures += 1
        return min(pause_ms, pause_ms_max)

    def work(self) -> None:
        """Stop fetching until `fetch`."""
        self.asked = None
        self.phase = Phase.WORKING

    def fetch(self) -> None:
        """Fetch again, from where the log ends now."""
        self.asked = None
        self.phase = Phase.FETCHING

    def _cut(self, leaders: EpochEnd, log: LogView) -> Step:
        """Decide where to cut a log that differs from the leader's."""
        offset = log.epochs.truncation_offset(leaders, log.end_offset)
        if offset >= log.end_offset:
            # Every cut makes progress if the leader means what it says; do not ask without end.
            return Pause(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"it diverges from epoch {leaders.epoch}, which ended at {leaders.end_offset} "
                f"there, but nothing here is to be cut",
            )
        return _cut_at(offset, log)


def _cut_at(offset: int, log: LogView) -> Truncate | Restart:
    """Decide how to end a log at an offset.

    A log whose earlier records are in the tier does not go on in the middle of them. It would have
    to know their epochs and producers, and copies there may be of what is cut. It begins empty
    where it starts, and the leader then says where its own disk begins (`on_local_start`).
    """
    if offset >= log.local_start_offset:
        return Truncate(offset)
    return Restart(max(min(offset, log.start_offset), 0))
