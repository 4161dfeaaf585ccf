"""What is read and written with Spark's Kafka connector and with ours, as data.

Topics are those of `connector_topics`.
"""

from typing import Final

import msgspec


class Read(msgspec.Struct, frozen=True):
    """One read: options of the format, and a filter upon it."""

    options: dict[str, str]
    where: str = "true"


SEVERAL: Final = Read({"subscribe": "plain,codecs,empty", "minPartitions": "7"})
HEADERS: Final = Read({"subscribe": "plain", "includeHeaders": "true"})
CODECS: Final = Read({"subscribe": "codecs"})
PATTERN: Final = Read({"subscribePattern": "(plain|appended)"})
ASSIGNED: Final = Read({"assign": '{"plain": [1]}'})
SMALL_PARTS: Final = Read({"subscribe": "plain", "maxRecordsPerPartition": "11"})
COMPACTED: Final = Read({"subscribe": "compacted", "minPartitions": "3"})
EXPIRED: Final = Read(
    {
        "subscribe": "expired",
        "startingOffsets": '{"expired": {"0": 3}}',
        "failOnDataLoss": "false",
    }
)
LATE: Final = Read(
    {
        "subscribe": "plain",
        "startingOffsetsByTimestamp": '{"plain": {"0": 1700000000010, "1": 1800000000000}}',
        "startingOffsetsByTimestampStrategy": "latest",
    }
)
COMMITTED: Final = Read({"subscribe": "transactional", "kafka.isolation.level": "read_committed"})
UNCOMMITTED: Final = Read(
    {"subscribe": "transactional", "kafka.isolation.level": "read_uncommitted"}
)
READS: Final = {
    "all": Read({"subscribe": "plain"}),
    "headers": HEADERS,
    "codecs": CODECS,
    "append time": Read({"subscribe": "appended"}),
    "several topics": SEVERAL,
    "pattern": PATTERN,
    "assigned": ASSIGNED,
    "offsets": Read(
        {
            "subscribe": "plain",
            "startingOffsets": '{"plain": {"0": 7, "1": -2}}',
            "endingOffsets": '{"plain": {"0": -1, "1": 30}}',
        }
    ),
    "times": Read(
        {
            "subscribe": "plain",
            "startingOffsetsByTimestamp": '{"plain": {"0": 1700000000010, "1": 1700000000020}}',
            "endingTimestamp": "1700000000060",
        }
    ),
    "one time": Read({"subscribe": "plain", "startingTimestamp": "1700000000055"}),
    "late times": LATE,
    "ending times": Read(
        {
            "subscribe": "plain",
            "endingOffsetsByTimestamp": '{"plain": {"0": 1700000000010, "1": 1800000000000}}',
        }
    ),
    "committed": COMMITTED,
    "uncommitted": UNCOMMITTED,
    "small parts": SMALL_PARTS,
    "compacted": COMPACTED,
    "expired": EXPIRED,
    "filtered": Read(
        {"subscribe": "plain"},
        "partition = 1 and offset between 5 and 40 and timestamp >= timestamp_millis(1700000000020)"
        " and (key is null or length(value) > 0)",
    ),
}
STREAMS: Final = {
    "headers": HEADERS,
    "codecs": CODECS,
    "several topics": SEVERAL,
    "pattern": PATTERN,
    "assigned": ASSIGNED,
    "offsets": Read({"subscribe": "plain", "startingOffsets": '{"plain": {"0": 7, "1": -2}}'}),
    "one time": Read({"subscribe": "plain", "startingTimestamp": "1700000000055"}),
    "late times": LATE,
    "committed": COMMITTED,
    "uncommitted": UNCOMMITTED,
    "small parts": SMALL_PARTS,
    "compacted": COMPACTED,
    "expired": EXPIRED,
}
STREAM_DEFAULTS: Final = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
WRITTEN_ROWS: Final = 300
KEYED: Final = (
    "if(id % 50 = 0, '', concat('ключ ', id)) as key",
    "if(id % 10 = 0, null, if(id % 10 = 1, '', repeat(cast(id as string), 20))) as value",
    "if(id % 3 = 0, null, if(id % 3 = 1, array(), array("
    "struct('a' as key, cast(cast(id as string) as binary) as value),"
    " struct('a' as key, cast(null as binary) as value),"
    " struct('' as key, cast('' as binary) as value)))) as headers",
    "timestamp '2001-01-01' as timestamp",
)
WRITES: Final[dict[str, tuple[str, ...]]] = {
    "keys": KEYED,
    "bytes": (
        "unhex(lpad(hex(id * 255), 8, '0')) as key",
        "cast(concat(id, '!') as binary) as value",
    ),
    "partitions": (
        "if(id % 2 = 0, null, cast(id as string)) as key",
        "cast(id as string) as value",
        "if(id % 4 = 1, null, cast(id % 5 as int)) as partition",
    ),
    "topics": (
        "cast(id as string) as key",
        "cast(id as string) as value",
        "concat('{kind}-', if(id % 2 = 0, 'even', 'odd')) as topic",
    ),
}
"""Columns of what is written; rows without a key name their partition, as any may take them."""
COMPARED: Final = (
    *(f"batch {name}" for name in READS),
    *(f"stream {name}" for name in STREAMS),
    *(f"write {name}" for name in WRITES),
    "write stream",
    "stream moved",
)
