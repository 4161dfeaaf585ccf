"""The finished segments of one leader epoch: which of them answers for an offset. Pure.

Each segment claims the offsets that it has of the epoch. Usually the claims lie side by side. They
overlap if a leader copied what an earlier one had copied, in pieces of another size: then the copy
that was finished last answers for all offsets that it has, and the others for the rest. So each
offset has one answer, and a segment that answers for none may be deleted (KAFKA-16511,
KAFKA-20932). When the newer copy goes, the older one answers again.

Epoch and offset name a record whoever the leader was, so it does not matter which one answers.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from headrace.remote.segments import RemoteSegment, SegmentId

_NO_ID: Final = SegmentId(b"")


class Claim(NamedTuple):
    """Offsets of an epoch that a segment has, the last one included."""

    start: int
    end: int


Claims: TypeAlias = Sequence[tuple[int, Claim]]
"""By epoch, in order."""


def claims_of(segment: RemoteSegment) -> Claims:
    """Return the epochs of a segment that have records in it, and the offsets of each."""
    epochs, first, last = segment.epochs, segment.start_offset, segment.end_offset
    if len(epochs) == 1 and first <= epochs[0].start_offset <= last:  # nearly always
        return [(epochs[0].epoch, Claim(epochs[0].start_offset, last))]
    ends = (*(later.start_offset - 1 for later in epochs[1:]), last)
    claims = [
        (epoch, Claim(max(start, first), min(end, last)))
        for (epoch, start), end in zip(epochs, ends, strict=True)
    ]
    return [row for row in claims if row[1].start <= row[1].end]


def insert(rows: list[tuple[int, SegmentId]], row: tuple[int, SegmentId]) -> None:
    """Put a row in its place; nearly always that is the end."""
    if not rows or row > rows[-1]:
        rows.append(row)
    else:
        insort(rows, row)


class _Finished(NamedTuple):
    claim: Claim
    rank: int
    """The order in which segments finished: later ones rank higher."""
    size_bytes: int
    may_have_aborted: bool


class EpochSegments:
    """The finished segments of one epoch of a partition."""

    __slots__ = (
        "_aborted",
        "_ends",
        "_finished",
        "_ids",
        "_owned",
        "_rank",
        "_starts",
        "size_bytes",
    )

    def __init__(self) -> None:
        # The answers: they do not overlap, and are in the order of their offsets.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._ids: list[SegmentId] = []
        self._finished: dict[SegmentId, _Finished] = {}
        self._owned: dict[SegmentId, int] = {}
        """For how many offsets those answer that do not answer for all that they have."""
        self._aborted: list[tuple[int, SegmentId]] = []
        """The starts of those that may have aborted transactions."""
        self._rank = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._finished)

    def find(self, offset: int) -> SegmentId | None:
        """Return the segment that answers for an offset."""
        at = bisect_right(self._starts, offset) - 1
        return self._ids[at] if at >= 0 and offset <= self._ends[at] else None

    def find_with_aborted(self, offset: int) -> SegmentId | None:
        """Return the first segment from an offset on that may have aborted transactions."""
        found = self.find(offset)
        if found is not None and self._finished[found].may_have_aborted:
            return found
        if self._owned:
            at = bisect_left(self._starts, offset)
            rest = range(at, len(self._ids))
            return next(
                (id_ for id_ in map(self._ids.__getitem__, rest) if self._may_have_aborted(id_)),
                None,
            )
        at = bisect_left(self._aborted, (offset + 1, _NO_ID))
        return self._aborted[at][1] if at < len(self._aborted) else None

    @property
    def highest_offset(self) -> int | None:
        return self._ends[-1] if self._ends else None

    def answers_for(self, id_: SegmentId) -> bool:
        """Return whether a segment answers for any offset of this epoch."""
        return id_ in self._finished and self._owned.get(id_, 1) > 0

    @property
    def overlapped(self) -> Iterator[SegmentId]:
        """The segments that do not answer for all that they have, perhaps for nothing."""
        return iter(self._owned)

    def add(self, segment: RemoteSegment, claim: Claim) -> None:
        """Serve from a segment what it has of the epoch."""
        self._rank += 1
        id_ = segment.id
        may_have_aborted = not segment.is_txn_index_empty
        self._finished[id_] = _Finished(claim, self._rank, segment.size_bytes, may_have_aborted)
        self.size_bytes += segment.size_bytes
        if may_have_aborted:
            insert(self._aborted, (claim.start, id_))
        if not self._ends or claim.start > self._ends[-1]:  # nearly always
            self._starts.append(claim.start)
            self._ends.append(claim.end)
            self._ids.append(id_)
        else:
            self._put(id_, claim)

    def remove(self, id_: SegmentId) -> None:
        """Stop serving from a segment; older ones take over what they have of it."""
        gone = self._finished.pop(id_)
        self._owned.pop(id_, None)
        self.size_bytes -= gone.size_bytes
        if gone.may_have_aborted:
            self._aborted.pop(bisect_left(self._aborted, (gone.claim.start, id_)))
        free = self._take_out(id_, gone.claim)
        heirs = sorted(
            (finished.rank, other)
            for other in self._owned
            if _meet((finished := self._finished[other]).claim, gone.claim)
        )
        for _, heir in heirs:
            has = self._finished[heir].claim
            for start, end in free:
                if start <= has.end and end >= has.start:
                    self._put(heir, Claim(max(start, has.start), min(end, has.end)))

    def _may_have_aborted(self, id_: SegmentId) -> bool:
        return self._finished[id_].may_have_aborted

    def _put(self, id_: SegmentId, claim: Claim) -> None:
        """Put a claim among the answers, in front of those that are there."""
        starts, ends, ids = self._starts, self._ends, self._ids
        start, end = claim
        first = bisect_left(ends, start)
        after = bisect_right(starts, end)
        kept: list[tuple[int, int, SegmentId]] = [(start, end, id_)]
        for at in range(first, after):
            other = ids[at]
            self._own(other, -(min(ends[at], end) - max(starts[at], start) + 1))
            if starts[at] < start:
                kept.insert(0, (starts[at], start - 1, other))
            if ends[at] > end:
                kept.append((end + 1, ends[at], other))
        starts[first:after] = [row[0] for row in kept]
        ends[first:after] = [row[1] for row in kept]
        ids[first:after] = [row[2] for row in kept]
        self._own(id_, end - start + 1)

    def _take_out(self, id_: SegmentId, claim: Claim) -> list[Claim]:
        """Remove the answers of a segment; return the offsets that have none now."""
        starts, ends, ids = self._starts, self._ends, self._ids
        first, after = bisect_left(ends, claim.start), bisect_right(starts, claim.end)
        free = []
        for at in range(after - 1, first - 1, -1):
            if ids[at] == id_:
                free.append(Claim(starts.pop(at), ends.pop(at)))
                ids.pop(at)
        return free

    def _own(self, id_: SegmentId, change: int) -> None:
        start, end = self._finished[id_].claim
        length = end - start + 1
        # A segment that is being added has nothing yet; one without an entry has everything.
        owned = self._owned.pop(id_, 0 if change > 0 else length) + change
        if owned != length:
            self._owned[id_] = owned


def _meet(one: Claim, other: Claim) -> bool:
    return one.start <= other.end and other.start <= one.end


NO_SEGMENTS: Final = EpochSegments()
"""What an epoch has of which nothing is finished; never changed."""
