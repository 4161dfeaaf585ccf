"""Headrace's own Kafka client: asyncio, typed, for Headrace and any other Kafka cluster.

    async with Producer("127.0.0.1:9092") as producer:
        placed = await producer.deliver("orders", b"one", key=b"customer-7")

    async with Consumer("127.0.0.1:9092", group="billing", reset=Start.BEGINNING) as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.offset, record.value)

    async with ShareConsumer("127.0.0.1:9092", "billing", ["orders"]) as queue:
        async for record in queue:
            print(record.delivery_count, record.value)

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=3)

    async with Producer("127.0.0.1:9092", transactional_id="orders-1") as producer:
        async with producer.transaction():
            await producer.send("orders", b"all of these")
            await producer.send("bills", b"or none")

    security = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ann", "sasl.password": password, "ssl.ca.location": "ca.pem"}
    async with Consumer("kafka.example:9093", group="billing", security=security) as consumer:
        ...

A request that the cluster refuses raises `KafkaError` with its code; a cluster that cannot be
reached raises `NotReachable` with host and port. Unreadable records raise `UnreadableBatch`, which
says how to continue after them. All clients use a `Cluster`: several of them can share one, which
then has one connection per node. A share consumer does not share: brokers bind its locks to its
connections. Names load on first use, so that an admin program does not import compression
libraries.

This package knows nothing of a broker's internals: only `wire` and `records`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.client.acls import AccessRule, AclOperation, AclResource
    from headrace.client.addresses import Address
    from headrace.client.admin import Admin
    from headrace.client.batches import Delivery, Placed
    from headrace.client.cluster import Cluster
    from headrace.client.configs import (
        Config,
        ConfigSource,
        ConfigType,
        Resource,
        ResourceType,
        Synonym,
    )
    from headrace.client.connection import Connection
    from headrace.client.consumer import Consumer
    from headrace.client.delegation_tokens import DelegationToken
    from headrace.client.errors import (
        AuthenticationFailed,
        ClientError,
        InvalidAddress,
        InvalidSecurity,
        NotReachable,
        ProducerFenced,
        TlsFailed,
        TransactionAborted,
        UnsupportedApi,
    )
    from headrace.client.features import Feature
    from headrace.client.fetched import ConsumedRecord, UnreadableBatch
    from headrace.client.group.offsets import CommitFailed
    from headrace.client.group_members import GroupDescription, GroupMember
    from headrace.client.groups import CommittedOffset, GroupMetadata, ListedGroup
    from headrace.client.metadata import Node, Partition, Topic
    from headrace.client.nodes import (
        ActiveProducer,
        ClusterDescription,
        LogDir,
        QuorumDescription,
        QuorumMember,
        ReplicaOnDisk,
    )
    from headrace.client.offsets import FoundOffset, Start
    from headrace.client.outcomes import Outcomes, values_of
    from headrace.client.producer import Producer
    from headrace.client.quotas import QuotaEntity
    from headrace.client.reassignments import Reassignment
    from headrace.client.security.settings import ClientSecurity
    from headrace.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
    from headrace.client.share.acknowledgements import Acknowledged, AcknowledgeType
    from headrace.client.share.acquired import ShareRecord
    from headrace.client.share.blocking import BlockingShareConsumer
    from headrace.client.share.consumer import AcknowledgementMode, ShareConsumer
    from headrace.client.share.handling import RetryPolicy, is_retriable
    from headrace.client.share.offsets import ShareStart
    from headrace.client.share.terms import ShareSettings
    from headrace.client.share.worker import Retry, ShareWorker, share_worker
    from headrace.client.topics import CreatedTopic, NewTopic, TopicPartition
    from headrace.client.transactional.states import InvalidTransactionStep
    from headrace.client.transactional.transaction import Transaction
    from headrace.client.transactions import ListedTransaction, TransactionDescription
    from headrace.errors import ErrorCode, HeadraceError, KafkaError
    from headrace.wire.share_types import AcquireMode

__all__ = [
    "AccessRule",
    "AcknowledgeType",
    "Acknowledged",
    "AcknowledgementMode",
    "AclOperation",
    "AclResource",
    "AcquireMode",
    "ActiveProducer",
    "Address",
    "Admin",
    "AuthenticationFailed",
    "BlockingShareConsumer",
    "ClientError",
    "ClientSecurity",
    "ClientSettings",
    "Cluster",
    "ClusterDescription",
    "CommitFailed",
    "CommittedOffset",
    "Config",
    "ConfigSource",
    "ConfigType",
    "Connection",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "CreatedTopic",
    "DelegationToken",
    "Delivery",
    "ErrorCode",
    "Feature",
    "FoundOffset",
    "GroupDescription",
    "GroupMember",
    "GroupMetadata",
    "HeadraceError",
    "InvalidAddress",
    "InvalidSecurity",
    "InvalidTransactionStep",
    "KafkaError",
    "ListedGroup",
    "ListedTransaction",
    "LogDir",
    "NewTopic",
    "Node",
    "NotReachable",
    "Outcomes",
    "Partition",
    "Placed",
    "Producer",
    "ProducerFenced",
    "ProducerSettings",
    "QuorumDescription",
    "QuorumMember",
    "QuotaEntity",
    "Reassignment",
    "ReplicaOnDisk",
    "Resource",
    "ResourceType",
    "Retry",
    "RetryPolicy",
    "ShareConsumer",
    "ShareRecord",
    "ShareSettings",
    "ShareStart",
    "ShareWorker",
    "Start",
    "Synonym",
    "TlsFailed",
    "Topic",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionDescription",
    "UnreadableBatch",
    "UnsupportedApi",
    "is_retriable",
    "share_worker",
    "values_of",
]

_HOMES: Final = {
    "AccessRule": "acls",
    "AcknowledgeType": "share.acknowledgements",
    "Acknowledged": "share.acknowledgements",
    "AcknowledgementMode": "share.consumer",
    "AclOperation": "acls",
    "AclResource": "acls",
    "AcquireMode": "share.terms",
    "ActiveProducer": "nodes",
    "Address": "addresses",
    "Admin": "admin",
    "AuthenticationFailed": "errors",
    "BlockingShareConsumer": "share.blocking",
    "ClientError": "errors",
    "ClientSecurity": "security.settings",
    "ClientSettings": "settings",
    "Cluster": "cluster",
    "ClusterDescription": "nodes",
    "CommitFailed": "group.offsets",
    "CommittedOffset": "groups",
    "Config": "configs",
    "ConfigSource": "configs",
    "ConfigType": "configs",
    "Connection": "connection",
    "ConsumedRecord": "fetched",
    "Consumer": "consumer",
    "ConsumerSettings": "settings",
    "CreatedTopic": "topics",
    "DelegationToken": "delegation_tokens",
    "Delivery": "batches",
    "ErrorCode": "errors",
    "Feature": "features",
    "FoundOffset": "offsets",
    "GroupDescription": "group_members",
    "GroupMember": "group_members",
    "GroupMetadata": "groups",
    "HeadraceError": "errors",
    "InvalidAddress": "errors",
    "InvalidSecurity": "errors",
    "InvalidTransactionStep": "transactional.states",
    "KafkaError": "errors",
    "ListedGroup": "groups",
    "ListedTransaction": "transactions",
    "LogDir": "nodes",
    "NewTopic": "topics",
    "Node": "metadata",
    "NotReachable": "errors",
    "Outcomes": "outcomes",
    "Partition": "metadata",
    "Placed": "batches",
    "Producer": "producer",
    "ProducerFenced": "errors",
    "ProducerSettings": "settings",
    "QuorumDescription": "nodes",
    "QuorumMember": "nodes",
    "QuotaEntity": "quotas",
    "Reassignment": "reassignments",
    "ReplicaOnDisk": "nodes",
    "Resource": "configs",
    "ResourceType": "configs",
    "Retry": "share.worker",
    "RetryPolicy": "share.handling",
    "ShareConsumer": "share.consumer",
    "ShareRecord": "share.acquired",
    "ShareSettings": "share.terms",
    "ShareStart": "share.offsets",
    "ShareWorker": "share.worker",
    "Start": "offsets",
    "Synonym": "configs",
    "TlsFailed": "errors",
    "Topic": "metadata",
    "TopicPartition": "topics",
    "Transaction": "transactional.transaction",
    "TransactionAborted": "errors",
    "TransactionDescription": "transactions",
    "UnreadableBatch": "fetched",
    "UnsupportedApi": "errors",
    "is_retriable": "share.handling",
    "share_worker": "share.worker",
    "values_of": "outcomes",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
