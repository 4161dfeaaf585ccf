"""Arrow batches as Spark hands them over, to rows with a topic and a partition each.

Buffers are passed on as they are; `records.encode` reads them.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import encode
from headrace.spark.sink.write_options import InvalidColumns

_INT32_BYTES: Final = 4
_NOTHING: Final = memoryview(b"")
Column = "pa.Array[Any]"


class Placed(msgspec.Struct):
    """Rows of one topic, sorted by partition: those of partition p are
    `order[starts[p]:starts[p + 1]]`.
    """

    rows: encode.Rows
    order: memoryview
    starts: memoryview


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic: all of them if one is given, else by the column."""
    if topic is not None:
        yield topic, batch
        return
    column = batch.column("topic")
    if column.null_count:
        raise InvalidColumns(
            "a row has no topic: its column 'topic' is null. Fill it, or give the option 'topic'"
        )
    names: list[str] = pc.unique(column).to_pylist()  # type: ignore[assignment]
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, pa.scalar(name)))


def by_partition(
    batch: pa.RecordBatch,
    topic: str,
    partition_count: int,
    *,
    keyless: int,
    has_headers: bool,
) -> Placed:
    """Choose partitions: the column's, else the key's, else `keyless`; sort the rows by them."""
    names = batch.schema.names
    key = _bytes_column(batch.column("key")) if "key" in names else None
    value = _bytes_column(batch.column("value"))
    headers = _headers_column(batch.column("headers")) if has_headers else None
    if "partition" in names:
        partitions = _given_partitions(batch.column("partition"), topic, partition_count)
    else:
        partitions = bytearray(b"\xff") * (batch.num_rows * _INT32_BYTES)
    chosen = memoryview(partitions).cast("i")
    encode.spread(key, partition_count, keyless, chosen)
    order = memoryview(bytearray(batch.num_rows * _INT32_BYTES)).cast("i")
    starts = memoryview(bytearray((partition_count + 1) * _INT32_BYTES)).cast("i")
    encode.group(chosen, starts, order)
    return Placed(encode.Rows(key, value, headers), order, starts)


def _given_partitions(column: Any, topic: str, partition_count: int) -> bytearray:
    bounds: Any = pc.min_max(column).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < partition_count:
        wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
        raise InvalidColumns(
            f"column 'partition' has {wrong}; topic {topic!r} has partitions 0 to "
            f"{partition_count - 1}"
        )
    filled = pc.fill_null(column, encode.NO_PARTITION).cast(pa.int32())
    buffer = filled.buffers()[1]
    first = filled.offset * _INT32_BYTES
    return bytearray(memoryview(buffer)[first : first + len(filled) * _INT32_BYTES])


def _bytes_column(column: Any) -> encode.BytesColumn:
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary() if pa.types.is_large_binary(column.type) else pa.string())
    validity, offsets, data = column.buffers()
    return encode.BytesColumn(
        memoryview(offsets).cast("B").cast("i"),
        _view(data),
        _view(validity) if column.null_count else _NOTHING,
        column.offset,
    )


def _headers_column(column: Any) -> encode.HeadersColumn:
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    pairs = column.values
    keys, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or keys.null_count:
        raise InvalidColumns("column 'headers' has a header without a key; Kafka has none such")
    validity, ends = column.buffers()[:2]
    return encode.HeadersColumn(
        memoryview(ends).cast("B").cast("i"),
        _view(validity) if column.null_count else _NOTHING,
        column.offset,
        _bytes_column(keys) if len(keys) else _EMPTY,
        _bytes_column(values) if len(values) else _EMPTY,
    )


def _view(buffer: Any) -> memoryview:
    return _NOTHING if buffer is None else memoryview(buffer).cast("B")


_EMPTY: Final = encode.BytesColumn(
    memoryview(bytearray(_INT32_BYTES)).cast("i"), _NOTHING, _NOTHING, 0
)
