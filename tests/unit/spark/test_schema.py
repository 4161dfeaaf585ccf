from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.records.builder import BatchBuilder
from headrace.records.columns import to_arrow
from headrace.spark.options import InvalidOption
from headrace.spark.read_options import COLUMNS
from headrace.spark.schema import RowShape, check_schema, spark_schema

ALL = {"includeHeaders": "true"}


def records(start_offset: int = 0) -> pa.RecordBatch:
    builder = BatchBuilder()
    builder.append(1_000, b"k", b"v", (("a", b"1"), ("b", None)))
    builder.append(1_001, None, b"w", ())
    builder.append(1_002, b"", None, (("c", b""),))
    return to_arrow(bytes(builder.build(base_offset=5)), start_offset=start_offset)


def test_rows_have_exactly_the_schema_that_spark_makes() -> None:
    rows = RowShape(COLUMNS, "orders", 3).rows(records())
    assert rows.schema.equals(to_arrow_schema(spark_schema(ALL), timezone="UTC"))
    rows.validate(full=True)


def test_rows_are_what_the_records_were() -> None:
    rows = RowShape(COLUMNS, "orders", 3).rows(records()).to_pylist()
    assert [row["key"] for row in rows] == [b"k", None, b""]
    assert [row["value"] for row in rows] == [b"v", b"w", None]
    assert [row["offset"] for row in rows] == [5, 6, 7]
    assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 3)}
    assert [row["timestamp"].timestamp() for row in rows] == [1.0, 1.001, 1.002]
    assert rows[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert rows[1]["headers"] is None
    assert rows[2]["headers"] == [{"key": "c", "value": b""}]


def test_headers_of_a_part_of_a_batch_are_its_own() -> None:
    rows = RowShape(["headers", "offset"], "t", 0).rows(records(start_offset=6)).to_pylist()
    assert rows == [
        {"headers": None, "offset": 6},
        {"headers": [{"key": "c", "value": b""}], "offset": 7},
    ]


def test_constants_fit_chunks_of_any_size() -> None:
    shape = RowShape(["topic"], "t", 0)
    assert shape.rows(records(start_offset=7)).num_rows == 1
    assert shape.rows(records()).column(0).to_pylist() == ["t"] * 3


def test_a_schema_of_ones_own_is_refused() -> None:
    with pytest.raises(InvalidOption, match="fixed schema"):
        check_schema(StructType().add("value", "string"), ["value"])


def test_a_time_that_spark_cannot_have_is_the_last_one_that_it_can() -> None:
    last = (2**63 - 1) // 1000
    times = [0, last, last + 1, 2**63 - 1, -(2**63), -last - 1, -last]
    column = pa.array(times, pa.timestamp("ms", tz="UTC"))
    rows = RowShape(["timestamp"], "orders", 0).rows(
        pa.RecordBatch.from_arrays([column], names=["timestamp"])
    )
    found: pa.Array[Any] = rows.column("timestamp").cast(pa.int64())
    ends = [last * 1000] * 3 + [-last * 1000] * 3
    assert found.to_pylist() == [0, *ends]
