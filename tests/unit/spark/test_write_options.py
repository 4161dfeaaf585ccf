"""Options and columns of writes, and what is said of wrong ones."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from headrace.records.compression import Compression
from headrace.spark.options import InvalidOption
from headrace.spark.sink import batch_writer
from headrace.spark.sink.write_options import InvalidColumns, WriteOptions, write_options

HEADER = StructType().add("key", StringType()).add("value", BinaryType())
Columns = dict[str, DataType]


def schema_of(columns: Columns) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


def options_of(columns: Columns | None = None, /, **given: str) -> WriteOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    everything = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"} | named
    return write_options(everything, schema_of(columns or {"value": StringType()}), "a write")


def test_kafkas_names_of_a_producers_settings_are_taken() -> None:
    options = options_of(
        kafka__compression__type="zstd",
        kafka__compression__zstd__level="7",
        kafka__batch__size="1234",
        kafka__transaction__timeout__ms="60000",
        kafka__linger__ms="5",
        kafka__acks="all",
    )
    assert options.compression is Compression.ZSTD
    assert options.compression_level == 7
    assert options.batch_bytes == 1234
    assert options.transaction_timeout_ms == 60_000


def test_headers_are_written_if_there_is_a_column_unless_told_otherwise() -> None:
    headers: Columns = {"value": StringType(), "headers": ArrayType(HEADER)}
    assert options_of(headers).has_headers
    assert not options_of(headers, includeHeaders="false").has_headers
    assert not options_of().has_headers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka__acks": "1"}, "a transaction needs all"),
        ({"kafka__enable__idempotence": "false"}, "a transaction needs true"),
        ({"kafka__compression__type": "brotli"}, "must be one of none, gzip"),
        ({"kafka__transactional__id": "x"}, "the sink names its transactions"),
        ({"kafka__partitioner__class": "x"}, "give a column 'partition' instead"),
        ({"kafka__batch__sise": "1"}, "did you mean 'kafka.batch.size'"),
        ({"kafka__batch__size": "many"}, "not a whole number"),
    ],
)
def test_options_that_cannot_be_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        options_of(**given)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": StringType()}, "a column 'value' is needed, there are key"),
        (
            {"value": LongType()},
            r"is bigint, it must be string or binary; .*cast\(value as string\)",
        ),
        ({"value": StringType(), "key": IntegerType()}, "column 'key' is int"),
        (
            {"value": StringType(), "partition": LongType()},
            "column 'partition' is bigint, it must be int",
        ),
        (
            {"value": StringType(), "headers": MapType(StringType(), BinaryType())},
            "it must be array<struct<key:string",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: Columns, message: str) -> None:
    with pytest.raises(InvalidColumns, match=message):
        options_of(columns)


def test_the_option_goes_before_the_column_of_topics() -> None:
    assert options_of({"value": StringType(), "topic": IntegerType()}).topic == "t"


def test_a_topic_cannot_be_overwritten() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
    with pytest.raises(InvalidOption, match="cannot be overwritten"):
        batch_writer(given, schema_of({"value": StringType()}), overwrite=True)
