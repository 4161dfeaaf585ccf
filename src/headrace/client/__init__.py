"""Headrace's own Kafka client: asyncio, typed, for Headrace and any other Kafka cluster.

    async with Producer("127.0.0.1:9092") as producer:
        placed = await producer.deliver("orders", b"one", key=b"customer-7")

    async with Consumer("127.0.0.1:9092") as consumer:
        await consumer.assign("orders", Start.BEGINNING, until_end=True)
        async for record in consumer:
            print(record.offset, record.value)

    async with ShareConsumer("127.0.0.1:9092", "billing", ["orders"]) as queue:
        async for record in queue:
            print(record.delivery_count, record.value)

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=3)

What a cluster refuses is a `KafkaError` with its code; a cluster that cannot be reached is a
`NotReachable` that names host and port. Records that nobody can read are an `UnreadableBatch`,
which says how to go on behind them. `Cluster` is what they stand on: several of them can
share one, which then has one connection a node. A share consumer shares with nobody: brokers bind
its locks to its connections. Names load on first use, so that an admin's program does not wait for
compression libraries.

Nothing of a broker's inside is known here: only `wire` and `records`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.cluster import Cluster
    from headrace.client.connection import Connection
    from headrace.client.consumer import Consumer
    from headrace.client.errors import ClientError, NotReachable
    from headrace.client.fetched import UnreadableBatch
    from headrace.client.offsets import Start
    from headrace.client.producer import Producer
    from headrace.client.settings import ClientSettings
    from headrace.client.share.acknowledgements import Acknowledged, AcknowledgeType
    from headrace.client.share.acquired import ShareRecord
    from headrace.client.share.blocking import BlockingShareConsumer
    from headrace.client.share.consumer import AcknowledgementMode, ShareConsumer
    from headrace.client.share.terms import AcquireMode, ShareSettings
    from headrace.client.share.worker import Retry, share_worker
    from headrace.client.topics import NewTopic, TopicPartition

__all__ = [
    "AcknowledgeType",
    "Acknowledged",
    "AcknowledgementMode",
    "AcquireMode",
    "Admin",
    "BlockingShareConsumer",
    "ClientError",
    "ClientSettings",
    "Cluster",
    "Connection",
    "Consumer",
    "NewTopic",
    "NotReachable",
    "Producer",
    "Retry",
    "ShareConsumer",
    "ShareRecord",
    "ShareSettings",
    "Start",
    "TopicPartition",
    "UnreadableBatch",
    "share_worker",
]

_HOMES: Final = {
    "AcknowledgeType": "share.acknowledgements",
    "Acknowledged": "share.acknowledgements",
    "AcknowledgementMode": "share.consumer",
    "AcquireMode": "share.terms",
    "Admin": "admin",
    "BlockingShareConsumer": "share.blocking",
    "ClientError": "errors",
    "ClientSettings": "settings",
    "Cluster": "cluster",
    "Connection": "connection",
    "Consumer": "consumer",
    "NewTopic": "topics",
    "NotReachable": "errors",
    "Producer": "producer",
    "Retry": "share.worker",
    "ShareConsumer": "share.consumer",
    "ShareRecord": "share.acquired",
    "ShareSettings": "share.terms",
    "Start": "offsets",
    "TopicPartition": "topics",
    "UnreadableBatch": "fetched",
    "share_worker": "share.worker",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
