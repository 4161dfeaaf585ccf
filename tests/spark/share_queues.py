"""Queues for tests of the share source, and readers of them as Spark makes them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headrace.client import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.share.options import share_options, share_schema
from headrace.spark.share.rejections import send_rejections
from headrace.spark.share.streaming import ShareStreamReader
from headrace.testing.broker import TestBroker

ALL = ReadAllAvailable()
LOCK_MS = 1500
QUICK = {
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "6000",
}
SESSION = {"share.session.timeout.ms": "6000"}
"""For a group that is to miss members soon: Spark kills the process of a query that stops."""
Offset = dict[str, Any]
Row = dict[str, Any]
_NUMBERS = count()


def make_queue(broker: TestBroker, partitions: int = 1, **configs: str) -> tuple[str, str]:
    """Make a topic and a group that reads it from its beginning; give their names."""
    number = next(_NUMBERS)
    topic, group = f"queue-{number}", f"group-{number}"
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    broker.run(create_queue(broker.bootstrap, topic, group, partitions, **wanted))
    return topic, group


async def create_queue(
    bootstrap: str, topic: str, group: str, partitions: int, **configs: str
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions)
        await admin.alter_configs(
            Resource(ResourceType.GROUP, group),
            set={"share.auto.offset.reset": "earliest", **configs},
        )


def reject_offsets(
    broker: TestBroker, group: str, topic: str, *ranges: tuple[int, int], partition: int = 0
) -> None:
    """Have offsets of the topic that has this name now rejected."""

    async def send() -> None:
        async with Admin(broker.bootstrap) as admin:
            topic_id = (await admin.describe_topic(topic)).topic_id
            shared = SharedPartition(TopicId(topic_id), topic, partition)
            await send_rejections(admin.cluster, group, {shared: ranges})

    broker.run(send())


def recreate_topic(broker: TestBroker, topic: str, partitions: int = 1) -> None:
    """Delete a topic and create one of the same name."""

    async def create() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topics([topic])
            await admin.create_topic(topic, partitions)

    broker.run(create())


def options_of(broker: TestBroker, topic: str, group: str, **more: object) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.retry.backoff.ms": "10",
        "subscribe": topic,
        "kafka.group.id": group,
        **{name: str(value) for name, value in more.items()},
    }


@contextmanager
def share_reader(
    broker: TestBroker, topic: str, group: str, **more: object
) -> Iterator[ShareStreamReader]:
    """A reader that is stopped at the end, as by Spark."""
    given = options_of(broker, topic, group, **more)
    reader = ShareStreamReader(share_options(given), share_schema(given))
    try:
        yield reader
    finally:
        reader.stop()


def stored(offset: Offset) -> Offset:
    """An offset as it comes back from Spark's checkpoint."""
    return dict(json.loads(json.dumps(offset)))


def step(
    reader: ShareStreamReader, start: Offset, limit: ReadLimit = ALL
) -> tuple[Offset, list[Row]]:
    """Have the batch before acknowledged; give the end of the next one, and what it read."""
    end = stored(reader.latestOffset(start, limit))
    return end, read(reader, start, end)


def read(reader: ShareStreamReader, start: Offset, end: Offset) -> list[Row]:
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def values(rows: list[Row]) -> list[bytes]:
    return [row["value"] for row in rows]


def lag(broker: TestBroker, group: str) -> int | None:
    """How many records the group is not done with; None if that is not known of all partitions."""

    async def ask() -> int | None:
        async with Admin(broker.bootstrap) as admin:
            found = await describe_share_offsets(admin.cluster, group)
        total = 0
        for each in found.values():
            if not isinstance(each, ShareStart) or each.lag is None:
                return None
            total += each.lag
        return total

    return broker.run(ask())
