"""Reading file bytes by offset, without a Python object per record.

A read starts with the whole batch that holds its offset (the client drops what comes before) and
ends where its bytes do, which may be within a batch, as in Kafka; the first batch is whole
however large it is, or a consumer would never move.
"""

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct as Layout
from typing import Final

from headrace.log.errors import CorruptLog
from headrace.log.segment import Segment
from headrace.log.transactions import FirstLook
from headrace.records.header import HEADER_BYTES, LAST_OFFSET_DELTA_AT, LENGTH_PREFIX_BYTES

_BASE_AND_LENGTH: Final = Layout(">qi")
_LAST_OFFSET_DELTA: Final = Layout(">i")
_EMPTY: Final = memoryview(b"")


def read_segment(
    segment: Segment,
    offset: int,
    end_position: int,
    *,
    bytes_max: int,
    is_first_whole: bool,
    may_block: bool,
    located: tuple[int, int] | None = None,
) -> memoryview | None:
    """Read batches from the one with `offset`, or the first beyond, up to `end_position`.

    Empty if there is none; None if the page cache does not have it all and it may not block.
    `located` is what `Segment.locate` returned, for a thread that may not look it up.
    """
    begin, latest_start = located or segment.locate(offset)
    read = segment.file.read if may_block else segment.file.read_cached
    while begin + HEADER_BYTES <= end_position:
        count = min(latest_start - begin + max(bytes_max, HEADER_BYTES), end_position - begin)
        data = read(begin, count)
        if data is None:
            return None
        view = memoryview(data)
        start, batch_bytes = _skip_to(segment, view, begin, offset)
        begin += start
        latest_start = begin
        if batch_bytes and is_first_whole and batch_bytes > bytes_max:
            bytes_max = batch_bytes
            if begin + batch_bytes <= end_position and start + batch_bytes > len(view):
                continue
        if batch_bytes:
            return view[start : start + bytes_max]
    return _EMPTY


class ColdRead:
    """One read that waits for the disk. Call `run` in any thread, all else on the loop.

    The state of the log is looked up on creation; only the file is used later.
    """

    __slots__ = ("_arguments", "_cuts", "_data", "_error", "_looks", "bytes_max", "offset")

    def __init__(
        self,
        segment: Segment,
        offset: int,
        end_position: int,
        bytes_max: int,
        *,
        is_first_whole: bool,
        cuts: int,
        looks: Sequence[FirstLook] = (),
    ) -> None:
        """`cuts` is how often the end of the log was cut off so far, `looks` is done with it."""
        located = segment.locate(offset)
        self._arguments = (segment, offset, end_position, is_first_whole, located)
        self._cuts = cuts
        self._looks = looks
        self._data = _EMPTY
        self._error: OSError | CorruptLog | None = None
        self.offset = offset
        self.bytes_max = max(min(bytes_max, end_position - located[0]), 0)
        """No more than this is read, unless the first batch is larger."""

    def run(self) -> None:
        segment, offset, end_position, is_first_whole, located = self._arguments
        try:
            found = read_segment(
                segment,
                offset,
                end_position,
                bytes_max=self.bytes_max,
                is_first_whole=is_first_whole,
                may_block=True,
                located=located,
            )
        except (OSError, CorruptLog) as error:
            self._error = error
        else:
            assert found is not None
            self._data = found
        with suppress(OSError):  # who asks for aborted transactions finds out again
            for look in self._looks:
                look.run()

    def result(self, cuts: int) -> memoryview | None:
        """Return what was read; None if the log was cut off since, OSError or CorruptLog if so."""
        if cuts != self._cuts:
            return None
        if self._error is not None:
            raise self._error
        return self._data


def _skip_to(segment: Segment, view: memoryview, begin: int, offset: int) -> tuple[int, int]:
    """Skip batches that end before `offset`.

    Returns where the next one starts in the view and its size, or a size of 0 if its header is
    beyond the view.
    """
    start = 0
    while start + HEADER_BYTES <= len(view):
        base_offset, length = _BASE_AND_LENGTH.unpack_from(view, start)
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(view, start + LAST_OFFSET_DELTA_AT)
        batch_bytes = length + LENGTH_PREFIX_BYTES
        if batch_bytes < HEADER_BYTES:
            raise CorruptLog(segment.path(".log"), begin + start, f"a batch length of {length}")
        if base_offset + delta >= offset:
            return start, batch_bytes
        start += batch_bytes
    return start, 0
