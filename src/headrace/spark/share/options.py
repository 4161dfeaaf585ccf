"""The options of a stream of a queue, and the columns that it has."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.spark.options import (
    CLIENT_NAMES,
    IDLE_CLIENT_NAMES,
    Connecting,
    InvalidOption,
    Options,
    connecting,
)
from headrace.spark.read_options import COLUMNS, FetchLimits, columns_of, fetch_limits
from headrace.spark.schema import check_fixed, topic_schema

DELIVERY_COUNT: Final = "deliveryCount"
SHARE_COLUMNS: Final = (*COLUMNS[:-1], DELIVERY_COUNT, COLUMNS[-1])
TRIGGER_RECORDS: Final = 100_000
"""How many records a batch has at most, unless the user says so. Brokers bound it as well, by the
locks that a partition may have."""
NAMES: Final = (
    *CLIENT_NAMES,
    *IDLE_CLIENT_NAMES,
    "columns",
    "failOnDataLoss",
    "includeHeaders",
    "kafka.check.crcs",
    "kafka.group.id",
    "kafka.max.partition.fetch.bytes",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerTrigger",
    "minPartitions",
    "subscribe",
)
_STARTS: Final = (
    "a share group knows where it is; for a new one, set its config share.auto.offset.reset, to "
    "move one use `headrace share`"
)
_ALL: Final = "a share group reads all partitions of its topics: name these with 'subscribe'"
REFUSED: Final = {
    "assign": _ALL,
    "subscribePattern": _ALL,
    "groupIdPrefix": "name the share group with 'kafka.group.id'",
    "kafka.isolation.level": "it is the share group's config share.isolation.level",
    "maxOffsetsPerTrigger": "a queue has records, not offsets: 'maxRecordsPerTrigger'",
    "path": "load() takes no path; 'subscribe' names topics",
    **dict.fromkeys(
        (
            "startingOffsets",
            "startingOffsetsByTimestamp",
            "startingTimestamp",
            "kafka.auto.offset.reset",
        ),
        _STARTS,
    ),
    **dict.fromkeys(
        ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
        "a queue has no end; stop the query, or use Trigger.AvailableNow",
    ),
}


class ShareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue, and how much of it at once."""

    connecting: Connecting
    topics: tuple[str, ...]
    group: str
    columns: tuple[str, ...]
    limits: FetchLimits
    trigger_records_max: int | None
    partitions_min: int | None


def share_options(given: Mapping[str, str]) -> ShareOptions:
    """Check the options of a stream."""
    options = _known(given)
    topics = options.names("subscribe")
    if not topics:
        raise InvalidOption("a queue needs the option 'subscribe': a topic, or several with commas")
    return ShareOptions(
        connecting=connecting(options),
        topics=topics,
        group=options.required("kafka.group.id", "the share group whose member the query is"),
        columns=columns_of(options, SHARE_COLUMNS),
        # The group decided what may be delivered; what was leased is read whatever it is.
        limits=fetch_limits(options, is_committed=False),
        trigger_records_max=options.number("maxRecordsPerTrigger", least=1),
        partitions_min=options.number("minPartitions", least=1),
    )


def share_schema(given: Mapping[str, str]) -> StructType:
    """Return the columns of a stream with these options."""
    return schema_of(columns_of(_known(given), SHARE_COLUMNS))


def schema_of(columns: Sequence[str]) -> StructType:
    """Return Spark's schema of columns: those of a topic, and the delivery count."""
    types = {each.name: each for each in topic_schema(COLUMNS).fields}
    types[DELIVERY_COUNT] = StructField(DELIVERY_COUNT, IntegerType())
    return StructType([types[name] for name in columns])


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Refuse a schema of the user's own: records have the one they have."""
    check_fixed(schema, schema_of(columns), "queues")


def _known(given: Mapping[str, str]) -> Options:
    return Options(given, NAMES, "a queue", REFUSED)
