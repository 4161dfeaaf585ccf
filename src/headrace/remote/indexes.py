"""Search in the indexes of a segment, given as bytes. Pure.

The bytes are those of Kafka's files: `.index` has, about every `index.interval.bytes`, the last
offset of a batch and where the batch begins; `.timeindex` has the largest timestamp so far and the
last offset of the batch that has it. Offsets are relative to the segment's first one. They come
from a store that others may write to, so what is found is checked against the segment's
description, and the reader checks it against the batch that is there.
"""

from bisect import bisect_left, bisect_right
from struct import Struct as Layout
from typing import Final, NamedTuple

from headrace.remote.segments import RemoteSegment, TierError
from headrace.wire.schema import Buffer

OFFSET_ENTRY: Final = Layout(">II")
TIME_ENTRY: Final = Layout(">qI")
_FIRST_OF_OFFSET_ENTRY: Final = Layout(">I4x")
_POSITION: Final = Layout(">4xI")
_TIMESTAMP: Final = Layout(">q4x")


class DamagedSegment(TierError):
    """An object that is not what the description of its segment says."""

    def __init__(self, segment: RemoteSegment, what: str) -> None:
        super().__init__(f"segment {segment.text}: {what}")
        self.segment = segment
        self.what = what


class Place(NamedTuple):
    """Where to begin to look for a batch."""

    position: int
    offset_max: int
    """The batch that begins there has at most this base offset."""


def beginning_of(segment: RemoteSegment) -> Place:
    """Return the place to begin without an index."""
    return Place(0, segment.end_offset)


def place_of(index: Buffer, segment: RemoteSegment, offset: int) -> Place:
    """Return where to look for the batch with an offset, or the next one, by the offset index."""
    count = _count(index, OFFSET_ENTRY, segment)
    number = _find_offset(index, count, offset - segment.start_offset)
    if number < 0:
        return beginning_of(segment)
    relative, position = _entry(index, number, segment)
    return Place(position, segment.start_offset + relative)


def offset_behind(
    index: Buffer, segment: RemoteSegment, offset: int, byte_count: int
) -> int | None:
    """Return an offset after so many bytes of batches, from the one with `offset` on.

    The next one in the offset index; None if the segment ends before.
    """
    count = _count(index, OFFSET_ENTRY, segment)
    low = _find_offset(index, count, offset - segment.start_offset) + 1
    if low == count:
        return None
    position = _entry(index, low, segment)[1] + byte_count
    number = bisect_left(
        range(count),
        position,
        low,
        key=lambda each: _POSITION.unpack_from(index, each * OFFSET_ENTRY.size)[0],
    )
    return None if number == count else segment.start_offset + _entry(index, number, segment)[0]


def offset_of_time(index: Buffer, segment: RemoteSegment, timestamp: int) -> int:
    """Return an offset before which no record is as late as a timestamp, by the time index."""
    count = _count(index, TIME_ENTRY, segment)
    number = bisect_left(
        range(count),
        timestamp,
        key=lambda each: _TIMESTAMP.unpack_from(index, each * TIME_ENTRY.size)[0],
    )
    if number == 0:
        return segment.start_offset
    offset: int = TIME_ENTRY.unpack_from(index, (number - 1) * TIME_ENTRY.size)[1]
    offset += segment.start_offset
    if offset > segment.end_offset:
        raise DamagedSegment(
            segment,
            f"an index of times has offset {offset}, the segment ends with {segment.end_offset}",
        )
    return offset


def _count(index: Buffer, layout: Layout, segment: RemoteSegment) -> int:
    count, rest = divmod(len(index), layout.size)
    if rest:
        raise DamagedSegment(
            segment, f"an index has {len(index)} bytes, its entries have {layout.size} each"
        )
    return count


def _find_offset(index: Buffer, count: int, relative: int) -> int:
    """Return the number of the last entry that is at most `relative`, or -1."""
    return (
        bisect_right(
            range(count),
            relative,
            key=lambda each: _FIRST_OF_OFFSET_ENTRY.unpack_from(index, each * OFFSET_ENTRY.size)[0],
        )
        - 1
    )


def _entry(index: Buffer, number: int, segment: RemoteSegment) -> tuple[int, int]:
    relative, position = OFFSET_ENTRY.unpack_from(index, number * OFFSET_ENTRY.size)
    if position >= segment.size_bytes or not segment.start_offset + relative <= segment.end_offset:
        raise DamagedSegment(
            segment,
            f"an index has offset {segment.start_offset + relative} at {position}: the segment "
            f"ends with {segment.end_offset} at {segment.size_bytes}",
        )
    return relative, position
