"""What happens to the segments of a partition next: which is copied, which are deleted. Pure.

The leader of a partition asks. It knows its log (local segments, leader epochs, offsets), what the
tier has of it in every state, and the retention of the topic. The answer depends on nothing else,
so whoever leads next goes on where the last one stopped, whatever step it died at.

What is decided by leader epochs rests on two facts. An epoch has one leader, so epoch and offset
name a record. And two logs that have the same record are the same before it, so what a copy shares
with the log is a prefix of the copy.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

import msgspec

from headrace.log.epochs import EpochStart
from headrace.remote.lineage import Claim, claims_of
from headrace.remote.segments import RemoteSegment, SegmentId, SegmentState

Find: TypeAlias = Callable[[int, int], RemoteSegment | None]
"""Returns the finished segment that answers for an offset of an epoch."""


class LocalSegment(NamedTuple):
    """A finished segment of the log on this disk."""

    base_offset: int
    next_offset: int
    """Where the next one begins."""
    size_bytes: int


class Lineage:
    """The leader epochs of a log, and the offsets of each."""

    def __init__(self, epochs: Sequence[EpochStart], end_offset: int) -> None:
        self._entries = epochs
        ends = [entry.start_offset for entry in epochs[1:]] + [end_offset]
        self._ranges = {
            entry.epoch: Claim(entry.start_offset, end - 1)
            for entry, end in zip(epochs, ends, strict=bool(epochs))
        }

    @property
    def first_offset(self) -> int | None:
        """The first offset whose epoch is known."""
        return self._entries[0].start_offset if self._entries else None

    def shared(self, segment: RemoteSegment) -> list[tuple[int, Claim]]:
        """Return the epochs of a segment and the offsets that the log has of each as well."""
        found = []
        for epoch, claim in claims_of(segment):
            own = self._ranges.get(epoch)
            if own is not None and (both := _overlap(own, claim)):
                found.append((epoch, both))
        return found

    def has(self, offset: int, find: Find) -> bool:
        """Return whether the tier has the record of this log at an offset."""
        for epoch, own in self._ranges.items():
            if own.start <= offset <= own.end:
                return find(epoch, offset) is not None
        return False

    def copied_up_to(self, offset: int, find: Find, count_max: int | None = None) -> int:
        """Return the end of what the tier has from an offset on without a gap.

        Of so many segments at most: then it is to be called again, until it gets no further.
        """
        count = 0
        for entry in self._entries:
            own = self._ranges[entry.epoch]
            while own.start <= offset <= own.end:
                segment = find(entry.epoch, offset) if count != count_max else None
                if segment is None:
                    return offset
                count += 1
                claim = dict(claims_of(segment))[entry.epoch]
                offset = min(claim.end, own.end) + 1
        return offset

    def highest_copied(self, highest_of: Callable[[int], int | None]) -> int | None:
        """Return the offset after the last one in the tier, None if there is none."""
        for entry in reversed(self._entries):
            highest, own = highest_of(entry.epoch), self._ranges[entry.epoch]
            if highest is not None and own.start <= min(highest, own.end):
                return min(highest, own.end) + 1
        return None


def find_remote_end(
    lineage: Lineage,
    local_start: int,
    find: Find,
    highest_of: Callable[[int], int | None],
    *,
    proved: int = 0,
) -> int:
    """Return up to where records need not be on the local disk: the tier has them.

    0 if the tier has nothing. `proved` is an earlier result, from which on it is looked if the
    tier has not lost that: gaps within it are not noticed.
    """
    begin = local_start
    if proved > local_start and lineage.has(local_start, find) and lineage.has(proved - 1, find):
        begin = proved
    end = lineage.copied_up_to(begin, find)
    if end > local_start:
        return end
    return min(lineage.highest_copied(highest_of) or 0, local_start)


def choose_copy(
    segments: Iterable[LocalSegment], *, remote_end: int, start_offset: int, stable_offset: int
) -> LocalSegment | None:
    """Return the segment to copy next, of finished ones in order.

    `stable_offset` bounds it: below, every record is committed, decided and on this disk for sure.
    """
    for segment in segments:
        if segment.next_offset > stable_offset:
            return None
        if segment.size_bytes and segment.next_offset > max(remote_end, start_offset):
            return segment
    return None


class Reason(Enum):
    """Why a segment is deleted from the tier."""

    TOO_OLD = "retention.ms"
    TOO_MUCH = "retention.bytes"
    BELOW_START = "it ends before the log's start"
    UNREFERENCED = "nothing of it is read: newer copies or another lineage replaced it"
    DANGLING = "its copy was never finished"
    UNFINISHED = "its deletion was begun"
    NOT_TIERED = "its topic left the tier"


class Deletion(NamedTuple):
    segment: RemoteSegment
    reason: Reason


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the segments of a partition in the tier."""

    lineage: Lineage
    leader_epoch: int
    start_offset: int
    local_start_offset: int
    uncopied_bytes: int
    """What only the local disk has."""
    retention_ms: int
    """-1 for no limit."""
    retention_bytes: int
    is_tiered: bool
    """If not, all goes."""
    now_ms: int
    is_copying: Callable[[SegmentId], bool]
    """Whether this node is writing a copy."""
    find: Find


class Expiry(NamedTuple):
    """What is to be done, in this order."""

    start_offset: int | None
    """Where the log is to start first, None if that stays."""
    lost: Claim | None
    """Offsets that the log should have and nobody has; the start passes over them if it can."""
    deletions: tuple[Deletion, ...]
    kept_count: int
    """How many finished segments are left then, and how many bytes."""
    kept_bytes: int
    due_ms: int | None
    """When the next segment gets too old, if nothing changes."""
    due_bytes: int | None
    """At which size of the log the next segment is too much."""
    is_foreign: bool = False
    """Whether the tier has records, and none of them is this log's: nothing is done about them."""


NOTHING = Expiry(None, None, (), 0, 0, None, None)


class ExpiryPlan:
    """Decides about all segments of a partition, which are shown to it by start offset.

    It may be shown them in several turns of a loop: what changes in between is seen next time.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        first = terms.lineage.first_offset
        self._knows_lineage = first is not None and first <= terms.start_offset
        self._deletions: list[Deletion] = []
        self._unread: list[Deletion] = []
        self._kept: list[RemoteSegment] = []
        self._kept_bytes = 0
        self._is_deleting = False
        self._is_deposed = False

    def look_at(self, segment: RemoteSegment) -> None:
        """Take a segment into account; they come by start offset."""
        terms = self._terms
        if segment.epochs[-1].epoch > terms.leader_epoch:
            self._is_deposed = True
        if segment.state == SegmentState.DELETE_STARTED:
            self._is_deleting = True
            self._delete(segment, Reason.UNFINISHED)
        elif segment.state == SegmentState.COPY_STARTED:
            if not terms.is_copying(segment.id):
                self._delete(segment, Reason.DANGLING)
        elif not terms.is_tiered:
            self._delete(segment, Reason.NOT_TIERED)
        elif segment.end_offset < terms.start_offset:
            self._delete(segment, Reason.BELOW_START)
        elif self._knows_lineage and not self._is_read(segment):
            self._unread.append(Deletion(segment, Reason.UNREFERENCED))
        else:
            self._kept.append(segment)
            self._kept_bytes += segment.size_bytes

    def finish(self) -> Expiry:
        """Return what is to be done."""
        if self._is_deposed:  # another node leads, and knows better
            return NOTHING
        terms = self._terms
        if not terms.is_tiered:
            is_later = terms.local_start_offset > terms.start_offset
            start = terms.local_start_offset if is_later else None
            return NOTHING._replace(start_offset=start, deletions=tuple(self._deletions))
        # A log that shares nothing with the tier may have lost its disk, and a producer was
        # faster than whoever wanted to take over what the tier has: then that is all there is.
        is_foreign = bool(self._unread) and not self._kept
        if not is_foreign:
            self._deletions += self._unread
        expired, due_ms = self._find_expired()
        kept = self._kept[len(expired) :]
        start = max([terms.start_offset, *(each.segment.next_offset for each in expired)])
        gap = self._find_gap(start, kept)
        is_explained = self._kept or self._is_deleting or not self._knows_lineage
        if gap is not None and is_explained and not is_foreign:
            start = gap.end + 1
        passed = [
            Deletion(segment, Reason.BELOW_START) for segment in kept if segment.end_offset < start
        ]
        return Expiry(
            start_offset=start if start > terms.start_offset else None,
            lost=gap,
            deletions=(*expired, *passed, *self._deletions),
            kept_count=len(kept) - len(passed),
            kept_bytes=self._kept_bytes
            - sum(each.segment.size_bytes for each in (*expired, *passed)),
            due_ms=due_ms,
            due_bytes=terms.retention_bytes + kept[0].size_bytes
            if kept and terms.retention_bytes >= 0
            else None,
            is_foreign=is_foreign,
        )

    def _delete(self, segment: RemoteSegment, reason: Reason) -> None:
        self._deletions.append(Deletion(segment, reason))

    def _is_read(self, segment: RemoteSegment) -> bool:
        """Return whether a segment answers for any offset of the log."""
        for epoch, claim in self._terms.lineage.shared(segment):
            offset = claim.start
            while offset <= claim.end:
                found = self._terms.find(epoch, offset)
                if found is None or found.id == segment.id:
                    return True
                # A newer copy answers for all that both have.
                offset = dict(claims_of(found))[epoch].end + 1
        return False

    def _find_expired(self) -> tuple[list[Deletion], int | None]:
        """Return the oldest segments that retention does not keep, and when the next one goes."""
        terms = self._terms
        excess_bytes = 0
        if terms.retention_bytes >= 0:
            excess_bytes = self._kept_bytes + terms.uncopied_bytes - terms.retention_bytes
        found: list[Deletion] = []
        for segment in self._kept:
            due_ms = (
                _age_from(segment) + terms.retention_ms + 1 if terms.retention_ms >= 0 else None
            )
            if due_ms is not None and due_ms <= terms.now_ms:
                found.append(Deletion(segment, Reason.TOO_OLD))
            elif terms.retention_bytes >= 0 and excess_bytes >= segment.size_bytes:
                found.append(Deletion(segment, Reason.TOO_MUCH))
            else:
                return found, due_ms
            excess_bytes -= segment.size_bytes
        return found, None

    def _find_gap(self, start: int, kept: Sequence[RemoteSegment]) -> Claim | None:
        """Return offsets from the log's start on that neither the tier nor this disk has.

        A crash may have moved the start back. Where the log's own epochs begin later, they began
        at its start once: that agrees with a tier that has nothing before, and both may be passed
        over. Where only the tier has nothing at all, it may be the tier that has forgotten.
        """
        terms = self._terms
        if start >= terms.local_start_offset:
            return None
        first = min((segment.start_offset for segment in kept), default=terms.local_start_offset)
        end = min(first, terms.local_start_offset)
        known_from = terms.lineage.first_offset
        if not self._knows_lineage and known_from is not None:
            end = min(end, known_from)
        return Claim(start, end - 1) if end > start else None


def _age_from(segment: RemoteSegment) -> int:
    """Return the time from which on a segment gets older.

    Where no record has a timestamp Kafka takes the file's time. Here it is that of the last event,
    which is a little later: without it, nothing behind the segment would ever expire.
    """
    if segment.max_timestamp_ms >= 0:
        return segment.max_timestamp_ms
    return segment.event_timestamp_ms


def _overlap(one: Claim, other: Claim) -> Claim | None:
    start, end = max(one.start, other.start), min(one.end, other.end)
    return Claim(start, end) if start <= end else None
