"""A chunk of record batches, as a fetch returns it, straight to Arrow columns.

Two walks over the records, both in `scan`: the first checks them and adds them up, the second
fills buffers of exactly that size. Per batch there is a little Python here, per record none.
The only module of the package that needs pyarrow.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, Literal

import pyarrow as pa

from headrace.config import INFLATED_BATCH_MAX_BYTES, INT32_MAX, INT64_MAX
from headrace.records import scan
from headrace.records.compression import ReadableBuffer
from headrace.records.control import ControlType, read_control
from headrace.records.errors import CorruptBatch, InflatedTooLarge
from headrace.records.header import (
    CONTROL_BIT,
    BatchHeader,
    check_crc,
    read_headers,
)
from headrace.records.reader import find_records

HEADER_FIELDS: Final[list["pa.Field[Any]"]] = [
    pa.field("key", pa.string(), nullable=False),
    pa.field("value", pa.binary()),
]
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", pa.struct(HEADER_FIELDS), nullable=False))),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        # As wide as in Spark's Kafka source, so that nothing is converted on the way there.
        pa.field("timestamp_type", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
    ]
)

# Not from a list of Python's: pyarrow would import pandas, where it is, to look at that.
_NO_RECORDS: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA
)


def to_arrow(
    chunk: ReadableBuffer,
    *,
    aborted: Sequence[tuple[int, int]] = (),
    start_offset: int = 0,
    stop_offset: int = INT64_MAX,
    check_crcs: bool = False,
    inflated_bytes_max: int = INFLATED_BATCH_MAX_BYTES.default,
) -> pa.RecordBatch:
    """Return the records of a chunk from `start_offset` up to, not including, `stop_offset`.

    Control batches are omitted, and so are the records of the transactions in `aborted`: pairs
    of producer id and first offset, as a fetch response lists them. A last batch that is cut off
    is ignored. With log append time every record has its batch's timestamp. A record without
    headers has an empty list. The chunk must not change during the call.

    `inflated_bytes_max` bounds what the compressed batches of the chunk take together. Raises
    CorruptBatch, UnsupportedBatch or InflatedTooLarge.
    """
    transactions = _AbortedTransactions(aborted) if aborted else None
    segments: list[scan.Segment] = []
    bytes_left = inflated_bytes_max
    next_offset = 0
    for position, header in read_headers(chunk):
        if not next_offset <= header.base_offset <= header.next_offset:
            raise CorruptBatch(
                f"batch with offsets {header.base_offset} to {header.last_offset} "
                f"where {next_offset} or a later one is next"
            )
        next_offset = header.next_offset
        if check_crcs:
            check_crc(memoryview(chunk)[position : position + header.size_bytes], header)
        if transactions is not None and transactions.cover(chunk, position, header, bytes_left):
            continue
        if header.attributes & CONTROL_BIT:
            continue
        if next_offset <= start_offset or header.base_offset >= stop_offset:
            continue
        segment = find_records(chunk, position, header, bytes_left)
        if segment[0] is not chunk:
            bytes_left -= len(segment[0])
        segments.append(segment)
    if next_offset > INT64_MAX:
        raise CorruptBatch(f"offset {next_offset} is beyond 64 bits")
    tally = scan.measure(segments, False)
    if tally.rows == 0:
        return _NO_RECORDS
    return _build(segments, tally, start_offset, stop_offset)


class _AbortedTransactions:
    """Which batches belong to aborted transactions, asked batch by batch in offset order."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=_first_offset, reverse=True)
        self._open_producer_ids: set[int] = set()

    def cover(
        self, chunk: ReadableBuffer, position: int, header: BatchHeader, inflated_bytes_max: int
    ) -> bool:
        pending = self._pending
        while pending and pending[-1][1] <= header.last_offset:
            self._open_producer_ids.add(pending.pop()[0])
        if header.producer_id not in self._open_producer_ids:
            return False
        if header.is_control:
            batch = memoryview(chunk)[position : position + header.size_bytes]
            control = read_control(batch, header, inflated_bytes_max=inflated_bytes_max)
            if control.control_type == ControlType.ABORT:
                self._open_producer_ids.remove(header.producer_id)
        return header.is_transactional


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]


def _build(
    segments: list[scan.Segment], tally: scan.Tally, start_offset: int, stop_offset: int
) -> pa.RecordBatch:
    rows = tally.rows
    key = _Binary(rows, tally.key_bytes, tally.null_keys)
    value = _Binary(rows, tally.value_bytes, tally.null_values)
    header_key = _Binary(tally.headers, tally.header_key_bytes, 0)
    header_value = _Binary(tally.headers, tally.header_value_bytes, tally.null_header_values)
    header_ends, header_ends_view = _allocate(rows + 1, "i")
    header_ends_view[0] = 0
    offset, offset_view = _allocate(rows, "q")
    timestamp, timestamp_view = _allocate(rows, "q")
    timestamp_type, timestamp_type_view = _allocate(rows, "i")
    leader_epoch, leader_epoch_view = _allocate(rows, "i")
    scan.fill(
        segments,
        scan.Columns(
            key=key.target,
            value=value.target,
            header_key=header_key.target,
            header_value=header_value.target,
            header_ends=header_ends_view,
            offset=offset_view,
            timestamp=timestamp_view,
            timestamp_type=timestamp_type_view,
            leader_epoch=leader_epoch_view,
        ),
    )
    header_keys = header_key.array(pa.string())
    if tally.headers:
        header_keys = _as_utf8(header_keys)
    header_pairs = pa.StructArray.from_arrays(
        [header_keys, header_value.array(pa.binary())], fields=HEADER_FIELDS
    )
    types = SCHEMA.types
    arrays = [
        key.array(types[0]),
        value.array(types[1]),
        pa.Array.from_buffers(types[2], rows, [None, header_ends], 0, children=[header_pairs]),
        pa.Array.from_buffers(types[3], rows, [None, timestamp], 0),
        pa.Array.from_buffers(types[4], rows, [None, timestamp_type], 0),
        pa.Array.from_buffers(types[5], rows, [None, offset], 0),
        pa.Array.from_buffers(types[6], rows, [None, leader_epoch], 0),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    first = bisect_left(offset_view, start_offset)
    return batch.slice(first, max(0, bisect_left(offset_view, stop_offset) - first))


class _Binary:
    """The buffers of one binary or string array: `scan` fills the target, then take the array."""

    def __init__(self, rows: int, data_bytes: int, nulls: int) -> None:
        if data_bytes > INT32_MAX:
            raise InflatedTooLarge(f"{data_bytes} bytes are more than one Arrow array can hold")
        self._rows = rows
        self._nulls = nulls
        self._validity = bytearray(b"\xff") * ((rows + 7) // 8 if nulls else 0)
        self._offsets, offsets_view = _allocate(rows + 1, "i")
        self._data, data_view = _allocate(data_bytes, "B")
        self.target = scan.BinaryColumn(offsets_view, memoryview(self._validity), data_view)

    def array(self, kind: pa.DataType) -> "pa.Array[Any]":
        validity = pa.py_buffer(self._validity) if self._nulls else None
        return pa.Array.from_buffers(
            kind, self._rows, [validity, self._offsets, self._data], self._nulls
        )


def _allocate(count: int, item_format: Literal["B", "i", "q"]) -> tuple[pa.Buffer, memoryview]:
    """A buffer of Arrow's own, which it does not clear first, and a view to fill it through."""
    buffer = pa.allocate_buffer(count * _ITEM_BYTES[item_format])
    return buffer, memoryview(buffer).cast("B").cast(item_format)


_ITEM_BYTES: Final = {"B": 1, "i": 4, "q": 8}


def _as_utf8(keys: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return header keys as the UTF-8 that Arrow's strings must be, U+FFFD for what is not."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raw_keys = keys.cast(pa.binary())
        return pa.array([raw.as_py().decode(errors="replace") for raw in raw_keys], pa.string())
    return keys
