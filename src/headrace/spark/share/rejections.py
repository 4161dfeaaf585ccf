"""Rejections of records, from the user's code to the reader.

The code of a `foreachBatch` and the reader of the stream run in different processes, so rejections
go through a topic of the cluster. Each record has the ranges of one call and one partition; when a
batch is durable, the reader rejects these ranges instead of accepting them, and removes them from
the record. Unused rejections expire after a week.
"""

import asyncio
import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final
from zlib import crc32

import msgspec
from pyspark.sql import DataFrame

from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.fetched import ConsumedRecord
from headrace.client.producer import Producer
from headrace.client.security.settings import SecurityLike
from headrace.client.share.session import SharedPartition
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import TopicId, parse_topic_id, topic_id_text
from headrace.spark.loss import LOG
from headrace.spark.share.intervals import Interval, merged, outside
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


def reject(
    rows: DataFrame, *, bootstrap: str, group: str, security: SecurityLike | None = None
) -> int:
    """Reject records, instead of accepting them, when the micro-batch that read them is durable.

        def work(batch, batch_id):
            bad = batch.where("get_json_object(cast(value as string), '$.id') is null")
            headrace.spark.reject(bad, bootstrap="127.0.0.1:9092", group="billing")

    For `foreachBatch` of a stream of `format("headrace-share")`: the rows need its columns topic,
    partition and offset. Returns the number of rows. A rejected record is not delivered again; if
    the group has a dead-letter topic, it goes there. Records stay rejected if the batch fails
    afterwards and runs again. `security` is that of every client: Kafka's names and values.
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
        asyncio.run(_send_by_name(Cluster(bootstrap, security=security), group, ranges))
    return sum(map(len, offsets.values()))


async def _send_by_name(
    cluster: Cluster, group: str, ranges: Mapping[TopicPartition, Sequence[Interval]]
) -> None:
    """Write rejections of the topics that have these names now; one that is gone needs none."""
    async with cluster:
        named: dict[SharedPartition, Sequence[Interval]] = {}
        for (topic, partition), each in ranges.items():
            try:
                topic_id = (await cluster.topic(topic)).topic_id
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                LOG.warning("topic %r does not exist any more: nothing of it is rejected", topic)
                continue
            named[SharedPartition(TopicId(topic_id), topic, partition)] = each
        await send_rejections(cluster, group, named)


async def send_rejections(
    bootstrap: str | Cluster, group: str, ranges: Mapping[SharedPartition, Sequence[Interval]]
) -> None:
    """Write rejections where the readers of a group find them."""
    async with Admin(bootstrap) as admin:
        try:
            await admin.create_topic(TOPIC, 1, configs=CONFIGS)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        async with Producer(admin.cluster, compression="zstd") as producer:
            for shared, each in ranges.items():
                for at in range(0, len(each), RUNS_A_RECORD_MAX):
                    part = msgspec.json.encode(each[at : at + RUNS_A_RECORD_MAX])
                    # The same ranges make the same record, others one beside it.
                    key = f"{_prefix(group, shared)}{crc32(part):08x}"
                    await producer.send(TOPIC, part, key, 0)


class Rejections:
    """The rejections of a group, as a reader sees them. Belongs to one loop."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._known: dict[tuple[TopicId, int], dict[str, list[Interval]]] = {}
        """The ranges of each record, by partition and key."""
        self._tail = TopicTail(cluster, TopicPartition(TOPIC, 0), self._take, self._known.clear)

    async def read(self) -> None:
        """Read everything that was written before the call, if anything was."""
        try:
            await self._tail.read()
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    def of(self, shared: SharedPartition) -> list[Interval]:
        """Return which offsets of a partition are rejected, ascending, none twice."""
        records = self._known.get((shared.topic_id, shared.partition_index), {})
        return merged(each for ranges in records.values() for each in ranges)

    async def erase(self, done: Mapping[SharedPartition, Sequence[Interval]]) -> None:
        """Forget the rejections of ranges that are acknowledged, and no others."""
        changed: dict[str, list[Interval]] = {}
        for shared, intervals in done.items():
            records = self._known.get((shared.topic_id, shared.partition_index), {})
            for key, ranges in list(records.items()):
                left = outside(ranges, _between(intervals, ranges[0][0], ranges[-1][1]))
                if left == ranges:
                    continue
                changed[key] = left
                if left:
                    records[key] = left
                else:
                    del records[key]
            await asyncio.sleep(0)  # leases are renewed meanwhile
        if not changed:
            return
        # They would be asked for in vain: what is left over goes by retention.
        with contextlib.suppress(HeadraceError):
            async with Producer(self._cluster, compression="zstd") as producer:
                for key, left in changed.items():
                    value = msgspec.json.encode(left) if left else None
                    await producer.send(TOPIC, value, key, 0)

    def _take(self, record: ConsumedRecord) -> None:
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(f"{self._group}/"):
            return
        try:
            group, _, topic_id, partition, _ = key.rsplit("/", 4)
            where = parse_topic_id(topic_id), int(partition)
        except ValueError:
            return  # of a version that did not tell a topic from the next one of its name
        if group != self._group:
            return
        ranges = msgspec.json.decode(record.value or b"[]", type=list[tuple[int, int]])
        if ranges:
            self._known.setdefault(where, {})[key] = ranges
        else:
            self._known.get(where, {}).pop(key, None)


def _prefix(group: str, shared: SharedPartition) -> str:
    """Return how the keys of a group's rejections of a partition begin.

    By the id of the topic: a topic of the same name that is created later has other records.
    """
    topic_id = topic_id_text(shared.topic_id)
    return f"{group}/{shared.topic}/{topic_id}/{shared.partition_index}/"


def _between(ranges: Sequence[Interval], first: int, last: int) -> Sequence[Interval]:
    """Return those of ascending ranges that touch a span."""
    begin = bisect_left(ranges, first, key=itemgetter(1))
    return ranges[begin : bisect_right(ranges, last, key=itemgetter(0))]
