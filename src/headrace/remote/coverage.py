"""Which segments of a partition are its log, and which offsets each of them answers for. Pure.

A leader epoch is one leader's time, so its records are the same wherever they are. Where a higher
epoch begins, what lower epochs wrote from there on is not the log: an unclean election left it
behind. A segment may have records of both kinds: then its first ones are the log, and brokers read
them there. Segments within the lineage may still overlap, as a new leader cuts its log elsewhere;
then both have the same records, and one of them answers.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from headrace.remote.segments import RemoteSegment, SegmentEpoch

Lineage: TypeAlias = tuple[SegmentEpoch, ...]
"""Epochs and where they begin, both in increasing order."""


class Extent(NamedTuple):
    """The offsets, from `start` up to, not including, `stop`, that a segment answers for."""

    segment: RemoteSegment
    start: int
    stop: int


class Gap(NamedTuple):
    """Offsets, both ends included, that no segment has."""

    first: int
    last: int


class Coverage(NamedTuple):
    """Segments of one lineage, in the order of their offsets."""

    extents: list[Extent]
    superseded: list[RemoteSegment]
    """Those that are not needed: others have all of their offsets."""
    gaps: list[Gap]


def lineage_of(segments: Iterable[RemoteSegment], known: Iterable[SegmentEpoch] = ()) -> Lineage:
    """Return the lineage that the epochs of segments, and others that are known, lead to.

    The highest epoch is the newest leader's. A lower one belongs to the log as far as it begins
    before all higher ones.
    """
    starts: dict[int, int] = {}
    for each in (*known, *(epoch for segment in segments for epoch in segment.epochs)):
        start = starts.get(each.epoch)
        if start is None or each.start_offset < start:
            starts[each.epoch] = each.start_offset
    kept: list[SegmentEpoch] = []
    for epoch in sorted(starts, reverse=True):
        if not kept or starts[epoch] < kept[-1].start_offset:
            kept.append(SegmentEpoch(epoch, starts[epoch]))
    return tuple(reversed(kept))


class LineageCheck:
    """Which segments are within a lineage."""

    def __init__(self, lineage: Sequence[SegmentEpoch]) -> None:
        self._starts = {each.epoch: each.start_offset for each in lineage}
        self._stops = {each.epoch: following.start_offset for each, following in pairwise(lineage)}

    def holds(self, segment: RemoteSegment) -> bool:
        """Return whether every record of a segment is in the log of the lineage."""
        return self.own_stop(segment) == segment.next_offset

    def own_stop(self, segment: RemoteSegment) -> int:
        """Return up to where a segment's records are in that log: its start if none is."""
        own, own_stop = segment.epochs, segment.start_offset
        for number, (epoch, start) in enumerate(own, 1):
            end = own[number].start_offset if number < len(own) else segment.next_offset
            known = self._starts.get(epoch)
            if known is None or start < known:
                return own_stop
            stop = self._stops.get(epoch)
            if stop is not None and end > stop:
                return max(own_stop, stop)
            own_stop = end
        return own_stop


def cover_log(segments: Iterable[RemoteSegment], known: Iterable[SegmentEpoch] = ()) -> Coverage:
    """Return what is left of finished segments without what is of other lineages."""
    segments = list(segments)
    check = LineageCheck(lineage_of(segments, known))
    own = (each for each in segments if check.own_stop(each) > each.start_offset)
    return cover(own, check.own_stop)


def whole(segment: RemoteSegment) -> int:
    """Return the stop of a segment all of whose records are the log."""
    return segment.next_offset


def cover(
    segments: Iterable[RemoteSegment], stop_of: Callable[[RemoteSegment], int] = whole
) -> Coverage:
    """Choose the segment for each offset among those of one lineage.

    At every place the one that reaches furthest is taken: so the fewest are read, and those that
    are never taken can go. Of two that are the same, the newer one is. `stop_of` says up to where
    the records of one are the log.
    """
    waiting = sorted(
        segments,
        key=lambda each: (each.start_offset, -stop_of(each), -each.event_timestamp_ms, each.id),
    )
    extents: list[Extent] = []
    superseded: list[RemoteSegment] = []
    gaps: list[Gap] = []
    at = 0
    position = waiting[0].start_offset if waiting else 0
    while at < len(waiting):
        if waiting[at].start_offset > position:
            gaps.append(Gap(position, waiting[at].start_offset - 1))
            position = waiting[at].start_offset
        best: RemoteSegment | None = None
        while at < len(waiting) and waiting[at].start_offset <= position:
            each = waiting[at]
            at += 1
            if stop_of(each) <= position or (best and stop_of(each) <= stop_of(best)):
                superseded.append(each)
                continue
            if best is not None:
                superseded.append(best)
            best = each
        if best is None:
            continue
        # One that begins within it and reaches further may follow: the next round finds it.
        extents.append(Extent(best, position, stop_of(best)))
        position = stop_of(best)
    return Coverage(extents, superseded, gaps)
