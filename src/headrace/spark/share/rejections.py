"""Records that a job does not want to see again: from the user's code to the reader.

The code of a `foreachBatch` and the reader of the stream are in different processes, so rejections
go through a topic of the cluster. A record of it has the ranges of one call and one partition; the
reader looks there when a batch is durable, rejects these ranges instead of accepting them, and
erases the record. What nobody asks for any more is gone after a week.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec
from pyspark.sql import DataFrame

from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.fetched import ConsumedRecord
from headrace.client.producer import Producer
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.spark.share.intervals import Interval, merged, overlaps
from headrace.spark.topic_tail import TopicTail

TOPIC: Final = "__headrace_spark_rejections"
CONFIGS: Final = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 60 * 60 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
}
RUNS_A_RECORD_MAX: Final = 10_000
"""How many ranges a record of the topic has: above that there are several."""
_COLUMNS: Final = ("topic", "partition", "offset")


class InvalidRejection(HeadraceError, ValueError):
    """Rows that do not say which records they are."""


class _Rejection(NamedTuple):
    partition: TopicPartition
    ranges: list[Interval]


def reject(rows: DataFrame, *, bootstrap: str, group: str) -> int:
    """Have records rejected, not accepted, when the micro-batch that read them is durable.

        def work(batch, batch_id):
            bad = batch.where("get_json_object(cast(value as string), '$.id') is null")
            headrace.spark.reject(bad, bootstrap="127.0.0.1:9092", group="billing")

    For `foreachBatch` of a stream of `format("headrace-share")`: the rows need its columns topic,
    partition and offset. Gives how many there are. A rejected record is not delivered again; where
    the group has a dead-letter topic, it goes there. What was rejected stays so if the batch fails
    afterwards and is run again.
    """
    missing = [name for name in _COLUMNS if name not in rows.columns]
    if missing:
        raise InvalidRejection(
            f"the rows to reject have no column {missing[0]!r}; topic, partition and offset say "
            "which records they are: keep them"
        )
    offsets: dict[TopicPartition, set[int]] = {}
    for topic, partition, offset in rows.select(*_COLUMNS).collect():
        offsets.setdefault(TopicPartition(topic, partition), set()).add(offset)
    if offsets:
        ranges = {
            partition: merged((offset, offset) for offset in each)
            for partition, each in offsets.items()
        }
        asyncio.run(send_rejections(bootstrap, group, ranges))
    return sum(map(len, offsets.values()))


async def send_rejections(
    bootstrap: str | Cluster, group: str, ranges: Mapping[TopicPartition, Sequence[Interval]]
) -> None:
    """Write rejections where the readers of a group find them."""
    async with Admin(bootstrap) as admin:
        try:
            await admin.create_topic(TOPIC, 1, configs=CONFIGS)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        async with Producer(admin.cluster, compression="zstd") as producer:
            for (topic, partition), each in ranges.items():
                for at in range(0, len(each), RUNS_A_RECORD_MAX):
                    part = msgspec.json.encode(each[at : at + RUNS_A_RECORD_MAX])
                    # The same ranges make the same record, others one beside it.
                    key = f"{group}/{topic}/{partition}/{crc32(part):08x}"
                    await producer.send(TOPIC, part, key, 0)


class Rejections:
    """The rejections of a group, as a reader sees them. Belongs to one loop."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._known: dict[str, _Rejection] = {}
        self._tail = TopicTail(cluster, TopicPartition(TOPIC, 0), self._take, self._known.clear)

    async def read(self) -> None:
        """Take in everything that was written before the call; nothing if nobody ever did."""
        try:
            await self._tail.read()
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    def of(self, partition: TopicPartition, first: int, last: int) -> list[Interval]:
        """Give which offsets of a range are rejected, ascending, none twice."""
        found: set[Interval] = set()
        for rejection in self._known.values():
            if rejection.partition == partition:
                found.update(overlaps(first, last, rejection.ranges))
        return merged(found)

    async def erase(self, done: Iterable[tuple[TopicPartition, Interval]]) -> None:
        """Forget rejections of ranges that are acknowledged."""
        intervals = list(done)
        keys = [
            key
            for key, (partition, ranges) in self._known.items()
            if any(
                overlaps(first, last, ranges)
                for where, (first, last) in intervals
                if where == partition
            )
        ]
        if not keys:
            return
        # They would be asked for in vain: what is left over goes by retention.
        with contextlib.suppress(HeadraceError):
            async with Producer(self._cluster) as producer:
                for key in keys:
                    await producer.send(TOPIC, None, key, 0)
        for key in keys:
            self._known.pop(key, None)

    def _take(self, record: ConsumedRecord) -> None:
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(f"{self._group}/"):
            return
        group, topic, partition, _ = key.rsplit("/", 3)
        if group != self._group:
            return
        if record.value is None:
            self._known.pop(key, None)
        else:
            ranges = msgspec.json.decode(record.value, type=list[tuple[int, int]])
            self._known[key] = _Rejection(TopicPartition(topic, int(partition)), ranges)
