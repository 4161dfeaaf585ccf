"""Going from batch header to batch header in bytes of a segment from the store. Pure.

The store may have been tampered with and indexes may be wrong, so a header is believed only if it
fits its segment: magic, length, offsets. What is served is checked against the checksum of each
batch as well, once: many clients do not.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.records.header import CHECKSUMMED_FROM, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from headrace.remote.indexes import DamagedSegment
from headrace.remote.segments import RemoteSegment
from headrace.wire.schema import Buffer

_FIELDS: Final = Layout(">qi4xb6xi8xq")
"""Fields of a header: base offset, length, magic, last offset delta, largest timestamp."""
_CHECKED_FIELDS: Final = Layout(">qi4xbI2xi")
"""Fields of a header: base offset, length, magic, checksum, last offset delta."""
HELD_BYTES_MAX: Final = 128 * 1024
"""After so many bytes the interpreter's lock is let go for the next checksum.

To let it go for each batch has threads wait for each other more than they would for a chunk; to
keep it has the loop wait for several chunks, of which each takes a millisecond and more.
"""
ANY_TIMESTAMP: Final = -(2**63)


class Batch(NamedTuple):
    """What a reader wants to know of a batch."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class Wanted(NamedTuple):
    """The batch that a walk ends with: the first one that reaches both."""

    offset: int
    timestamp: int = ANY_TIMESTAMP


class Walk:
    """A walk over the headers of a segment."""

    __slots__ = ("_first_offset_max", "_next_offset", "_segment", "_wanted", "position")

    def __init__(
        self,
        segment: RemoteSegment,
        position: int,
        wanted: Wanted,
        *,
        first_offset_max: int,
    ) -> None:
        """Begin at a position, where a batch with at most some base offset begins."""
        self._segment = segment
        self._wanted = wanted
        self._next_offset = segment.start_offset
        self.position = position
        """Where the next batch begins."""
        self._first_offset_max: int | None = first_offset_max

    @property
    def is_over(self) -> bool:
        """Whether there is no header left."""
        return self.position >= self._segment.size_bytes

    def step(self, view: Buffer, begin: int, count_max: int) -> Batch | None:
        """Go on in bytes of the segment that begin at a position, over so many batches at most.

        Return the batch that is wanted as soon as its header is there; it may end beyond the
        bytes. Raise DamagedSegment at a header that cannot be.
        """
        segment, position, next_offset = self._segment, self.position, self._next_offset
        offset, timestamp = self._wanted
        size_bytes = segment.size_bytes
        end = begin + len(view) - HEADER_BYTES
        for _ in range(count_max):
            if position > end:
                break
            base_offset, length, magic, delta, max_timestamp = _FIELDS.unpack_from(
                view, position - begin
            )
            batch_bytes = length + LENGTH_PREFIX_BYTES
            last_offset = base_offset + delta
            if (
                magic != MAGIC
                or batch_bytes < HEADER_BYTES
                or position + batch_bytes > size_bytes
                or delta < 0
                or base_offset < next_offset
                or last_offset > segment.end_offset
            ):
                raise DamagedSegment(
                    segment,
                    f"at {position} is no batch that follows offset {next_offset - 1}: magic "
                    f"{magic}, {batch_bytes} bytes, offsets {base_offset} to {last_offset}",
                )
            if self._first_offset_max is not None:
                if base_offset > self._first_offset_max:
                    raise DamagedSegment(
                        segment,
                        f"at {position} begins offset {base_offset}, where an index has "
                        f"{self._first_offset_max}",
                    )
                self._first_offset_max = None
            if last_offset >= offset and max_timestamp >= timestamp:
                self.position, self._next_offset = position, next_offset
                return Batch(position, batch_bytes, base_offset, last_offset)
            next_offset = last_offset + 1
            position += batch_bytes
        self.position, self._next_offset = position, next_offset
        if size_bytes - HEADER_BYTES < position < size_bytes:
            raise DamagedSegment(segment, f"it ends within the batch that begins at {position}")
        return None

    def skip(self, batch: Batch) -> None:
        """Go on after a batch that was returned."""
        self.position, self._next_offset = batch.position + batch.size_bytes, batch.last_offset + 1


class SoundBatches:
    """A check of the whole batches at the start of some bytes of a segment: offsets, checksums."""

    __slots__ = (
        "_begin",
        "_segment",
        "_view",
        "crc32c",
        "is_disordered",
        "problem",
        "sound_bytes",
    )

    def __init__(self, segment: RemoteSegment, view: memoryview, begin: int) -> None:
        """`begin` is where the bytes begin in the segment, with a batch."""
        self._segment = segment
        self._view = view
        self._begin = begin
        self.sound_bytes = 0
        """How many bytes are sound: batches that are whole."""
        self.problem: DamagedSegment | None = None
        """What is wrong behind them; None if it is nothing, or part of a batch."""
        self.crc32c: int | None = None
        """The checksum of all the bytes, if they are a whole log and it is known."""
        self.is_disordered = False
        """Whether batches are out of place: then none of them is sound."""

    def run(self) -> None:
        """Check them all. Of large batches a thread may do so while others go on."""
        segment, view, at = self._segment, self._view, 0
        next_offset, end_offset = segment.start_offset, segment.end_offset
        view_bytes, size_bytes = len(view), segment.size_bytes - self._begin
        read_fields, last_header_at = _CHECKED_FIELDS.unpack_from, view_bytes - HEADER_BYTES
        held_bytes = 0
        while at <= last_header_at:
            base_offset, length, magic, crc, delta = read_fields(view, at)
            following = at + length + LENGTH_PREFIX_BYTES
            last_offset = base_offset + delta
            if (
                magic != MAGIC
                or length < HEADER_BYTES - LENGTH_PREFIX_BYTES
                or following > size_bytes
                or delta < 0
                or base_offset < next_offset
                or last_offset > end_offset
            ):
                self._fail(at, f"no batch that follows offset {next_offset - 1}")
                at, self.is_disordered = 0, True
                break
            if following > view_bytes:
                break
            held_bytes += length
            lets_go = held_bytes >= HELD_BYTES_MAX
            if lets_go:
                held_bytes = 0
            if crc32c(view[at + CHECKSUMMED_FROM : following], 0, lets_go) != crc:
                self._fail(at, f"a batch of offset {base_offset} without its checksum")
                break
            at, next_offset = following, last_offset + 1
        if self.problem is None and self.crc32c is not None and crc32c(view) != self.crc32c:
            self._fail(0, "not the log that was written: its checksum differs")
            at, self.is_disordered = 0, True
        self.sound_bytes = at

    def _fail(self, at: int, what: str) -> None:
        self.problem = DamagedSegment(self._segment, f"at {self._begin + at} is {what}")
