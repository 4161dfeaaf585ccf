"""The columns of a topic: Spark's types, Arrow's, and how records take their form.

The schema is that of Spark's Kafka connector. Spark takes Arrow data only if its schema is exactly
the one that Spark would make, down to the names inside of lists.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark.options import InvalidOption
from headrace.spark.read_options import chosen_columns

_SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
_HEADER_FIELDS: Final[list["pa.Field[Any]"]] = [
    pa.field("key", pa.string()),
    pa.field("value", pa.binary()),
]
_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS))),
}
_TIME_MS_MAX: Final = (2**63 - 1) // 1000
_RENAMED: Final = {"timestampType": "timestamp_type"}


def spark_schema(given: Mapping[str, str]) -> StructType:
    """Return the schema of a read with these options."""
    return topic_schema(chosen_columns(given))


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Refuse a schema of the user's own: records have the one they have."""
    check_fixed(schema, topic_schema(columns), "topics")


def check_fixed(schema: StructType, fixed: StructType, what: str) -> None:
    """Refuse a schema that is not the one it has to be."""
    if schema != fixed:
        raise InvalidOption(
            f"{what} have a fixed schema; leave .schema(...) out, and name the columns that you "
            "want with the option 'columns'"
        )


def topic_schema(columns: Sequence[str]) -> StructType:
    """Return Spark's schema of columns of a topic."""
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in columns])


class RowShape:
    """Gives records of one partition the form that Spark takes."""

    def __init__(self, columns: Sequence[str], topic: str, partition: int) -> None:
        self._columns = tuple(columns)
        self._schema = pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])
        self._constants: dict[str, Any] = {
            "topic": pa.scalar(topic, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
        }
        self._repeated: dict[str, pa.Array[Any]] = {}

    def rows(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected columns of a result of `records.columns.to_arrow`."""
        arrays = [self._column(name, records) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, records: pa.RecordBatch) -> "pa.Array[Any]":
        if name in self._constants:
            return self._constant(name, records.num_rows)
        column: pa.Array[Any] = records.column(_RENAMED.get(name, name))
        if name == "timestamp":
            return _times(column)
        return _headers(column) if name == "headers" else column

    def _constant(self, name: str, rows: int) -> "pa.Array[Any]":
        """Return a slice of a cached array, which is rebuilt only if it is too short."""
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(self._constants[name], rows + rows // 4)
        return known.slice(0, rows)


def _times(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return times in Spark's type; one that it cannot have is the last one that it can.

    Producers write what they like, and one record must not end a query for good.
    """
    kind = _ARROW_TYPES["timestamp"]
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        functions: Any = pc
        times = functions.max_element_wise(column.cast(pa.int64()), -_TIME_MS_MAX)
        bounded: pa.Array[Any] = functions.min_element_wise(times, _TIME_MS_MAX)
        return bounded.cast(column.type).cast(kind)


def _headers(column: Any) -> "pa.Array[Any]":
    """Return headers in Spark's type; a record without headers has null, not an empty list.

    The connector does the same.
    """
    values: Any = column.values
    pairs = pa.StructArray.from_arrays([values.field(0), values.field(1)], fields=_HEADER_FIELDS)
    has_any = pc.not_equal(column.value_lengths(), pa.scalar(0, pa.int32()))
    # Computed anew, so that it begins at the first byte of its buffer.
    ends = pc.add(column.offsets, pa.scalar(0, pa.int32()))
    return pa.Array.from_buffers(
        _ARROW_TYPES["headers"],
        len(column),
        [has_any.buffers()[1], ends.buffers()[1]],
        children=[pairs],
    )
