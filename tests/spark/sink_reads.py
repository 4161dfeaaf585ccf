"""What is in a topic for those who read committed records: by our client and by confluent-kafka."""

import asyncio

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from headrace.client import Consumer, Start
from headrace.client.cluster import Cluster
from headrace.client.fetched import ConsumedRecord
from headrace.client.transactions import list_transactions

POLL_SECONDS_MAX = 30


def committed_records(bootstrap: str, topic: str) -> list[ConsumedRecord]:
    """Read a topic to where it is stable, which is its end unless a transaction is open."""
    return _records(bootstrap, topic, read_committed=True)


def written_records(bootstrap: str, topic: str) -> list[ConsumedRecord]:
    """Read everything that was ever written to a topic, aborted or not."""
    return _records(bootstrap, topic, read_committed=False)


def _records(bootstrap: str, topic: str, *, read_committed: bool) -> list[ConsumedRecord]:
    async def read() -> list[ConsumedRecord]:
        async with Consumer(bootstrap, read_committed=read_committed) as consumer:
            await consumer.assign(topic, Start.BEGINNING, until_end=True)
            return [record async for record in consumer]

    records = asyncio.run(read())
    return sorted(records, key=lambda record: (record.partition, record.offset))


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for record in committed_records(bootstrap, topic))


def values_by_confluent(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read with librdkafka until there are so many records, and a little further."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",  # it must have one, and uses none
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, POLL_SECONDS_MAX).topics[topic].partitions
    consumer.assign([ConfluentPartition(topic, index, 0) for index in partitions])
    values: list[bytes] = []
    at_end = 0
    while at_end < len(partitions):
        message = consumer.poll(POLL_SECONDS_MAX)
        assert message is not None, f"{len(values)} of {count} records came"
        if message.error() is None:
            values.append(message.value())
        else:
            at_end += 1
    consumer.close()
    assert len(values) == count
    return sorted(values)


def open_transactions(bootstrap: str) -> list[str]:
    """Name the transactional ids with a transaction that is not ended."""
    return _ids_in(bootstrap, ["Ongoing"])


def transactional_ids(bootstrap: str) -> set[str]:
    """Name all transactional ids that the cluster knows."""
    return set(_ids_in(bootstrap, []))


def _ids_in(bootstrap: str, states: list[str]) -> list[str]:
    async def ask() -> list[str]:
        async with Cluster(bootstrap) as cluster:
            found = await list_transactions(cluster, states)
        return [row.transactional_id for row in found]

    return asyncio.run(ask())
