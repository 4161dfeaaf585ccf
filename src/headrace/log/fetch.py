"""Reading file bytes by offset, without a Python object per record.

A read starts with the whole batch that holds its offset (the client drops what comes before) and
ends where its bytes do, which may be within a batch, as in Kafka; the first batch is whole
however large it is, or a consumer would never move.
"""

from struct import Struct as Layout
from typing import Final

from headrace.log.errors import CorruptLog
from headrace.log.segment import Segment
from headrace.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES

_BASE_AND_LENGTH: Final = Layout(">qi")
_LAST_OFFSET_DELTA: Final = Layout(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_EMPTY: Final = memoryview(b"")


def read_segment(
    segment: Segment,
    offset: int,
    end_position: int,
    *,
    bytes_max: int,
    is_first_whole: bool,
    may_block: bool,
) -> memoryview | None:
    """Read batches from the one with `offset`, or the first beyond, up to `end_position`.

    Empty if there is none; None if the page cache does not have it all and it may not block.
    """
    begin, latest_start = segment.locate(offset)
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


def _skip_to(segment: Segment, view: memoryview, begin: int, offset: int) -> tuple[int, int]:
    """Pass over batches that end before `offset`.

    Gives where the next one starts in the view and its size, or a size of 0 if that start lies
    too far behind for its header to be in the view.
    """
    start = 0
    while start + HEADER_BYTES <= len(view):
        base_offset, length = _BASE_AND_LENGTH.unpack_from(view, start)
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(view, start + _LAST_OFFSET_DELTA_AT)
        batch_bytes = length + LENGTH_PREFIX_BYTES
        if batch_bytes < HEADER_BYTES:
            raise CorruptLog(segment.path(".log"), begin + start, f"a batch length of {length}")
        if base_offset + delta >= offset:
            return start, batch_bytes
        start += batch_bytes
    return start, 0
