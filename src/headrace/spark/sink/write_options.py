"""The options of writes, and the columns that they need: those of the Kafka connector's sink."""

from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from headrace.client.producer import parse_compression
from headrace.client.settings import ProducerSettings
from headrace.errors import HeadraceError
from headrace.records.compression import Compression
from headrace.spark.options import (
    CLIENT_NAMES,
    IDLE_CLIENT_NAMES,
    Connecting,
    InvalidOption,
    Options,
    connecting,
)

NAMES: Final = (
    "topic",
    "includeHeaders",
    "failOnDataLoss",
    "checkpointLocation",
    "queryName",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.compression.type",
    "kafka.compression.gzip.level",
    "kafka.compression.lz4.level",
    "kafka.compression.zstd.level",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.max.request.size",
    "kafka.transaction.timeout.ms",
)
IDLE_NAMES: Final = (
    "kafka.buffer.memory",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.metadata.max.idle.ms",
    "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms",
    "kafka.retries",
)
"""Kafka's names that are taken and change nothing here."""
REFUSED: Final = {
    "kafka.key.serializer": "keys are string or binary columns; convert them in Spark",
    "kafka.value.serializer": "values are string or binary columns; convert them in Spark",
    "kafka.transactional.id": "the sink names its transactions after the query",
    "kafka.interceptor.classes": "there is no JVM to run them",
    "kafka.partitioner.class": "there is no JVM to run it; give a column 'partition' instead",
    "kafka.partitioner.ignore.keys": "give a column 'partition', or leave the key out",
}
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


class InvalidColumns(HeadraceError, ValueError):
    """A DataFrame that cannot be written as it is."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to write, and where to."""

    connecting: Connecting
    topic: str | None
    """Where everything goes, whatever the column says."""
    has_headers: bool
    compression: Compression
    compression_level: int | None
    batch_bytes: int
    request_bytes: int
    delivery_timeout_ms: int
    transaction_timeout_ms: int | None
    fails_on_loss: bool


def write_options(given: Mapping[str, str], schema: StructType, purpose: str) -> WriteOptions:
    """Read the options of a write and check the columns against them."""
    known = (*CLIENT_NAMES, *IDLE_CLIENT_NAMES, *NAMES, *IDLE_NAMES)
    options = Options(given, known, purpose, REFUSED)
    if (options.text("kafka.acks") or "all") not in ("all", "-1"):
        raise InvalidOption("option 'kafka.acks': a transaction needs all")
    if not options.truth("kafka.enable.idempotence", True):
        raise InvalidOption("option 'kafka.enable.idempotence': a transaction needs true")
    compression = _compression(options)
    defaults = ProducerSettings()
    topic = options.text("topic")
    return WriteOptions(
        connecting=connecting(options),
        topic=topic,
        has_headers=_check_columns(schema, topic) and options.truth("includeHeaders", True),
        compression=compression,
        compression_level=options.number(
            f"kafka.compression.{compression.name.lower()}.level", least=-(2**17)
        ),
        batch_bytes=options.whole("kafka.batch.size", defaults.batch_bytes, least=1),
        request_bytes=options.whole("kafka.max.request.size", defaults.request_bytes_max, least=1),
        delivery_timeout_ms=options.whole(
            "kafka.delivery.timeout.ms", defaults.delivery_timeout_ms, least=1
        ),
        transaction_timeout_ms=options.number("kafka.transaction.timeout.ms", least=1),
        fails_on_loss=options.truth("failOnDataLoss", True),
    )


def _compression(options: Options) -> Compression:
    name = (options.text("kafka.compression.type") or "none").lower()
    try:
        return parse_compression(name)
    except ValueError as error:
        raise InvalidOption(f"option 'kafka.compression.type': {error}") from None


def _check_columns(schema: StructType, topic: str | None) -> bool:
    """Return whether there are headers; raise InvalidColumns for a missing or wrong column."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise InvalidColumns(
            f"a column 'value' is needed, there are {', '.join(types) or 'none'}; "
            "rename one, or make one with to_json(struct(...))"
        )
    if topic is None and "topic" not in types:
        raise InvalidColumns("where to? Give the option 'topic' or a column 'topic'")
    for name in ("key", "value"):
        if name in types and not isinstance(types[name], StringType | BinaryType):
            raise _wrong(name, types[name], "string or binary", f"cast({name} as string)")
    if topic is None and not isinstance(types["topic"], StringType):
        raise _wrong("topic", types["topic"], "string", "cast(topic as string)")
    if "partition" in types and not isinstance(types["partition"], IntegerType):
        raise _wrong("partition", types["partition"], "int", "cast(partition as int)")
    if "headers" in types and not _are_headers(types["headers"]):
        example = "array(struct('name' as key, cast('text' as binary) as value))"
        raise _wrong("headers", types["headers"], _HEADERS_TYPE, example)
    return "headers" in types


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _wrong(name: str, kind: DataType, wanted: str, example: str) -> InvalidColumns:
    return InvalidColumns(
        f"column {name!r} is {kind.simpleString()}, it must be {wanted}; for instance {example}"
    )
