"""What an operator asks of nodes: the cluster, its quorum, their disks, their producers."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.client.addresses import Address
from headrace.client.cluster import ANY_NODE, Cluster
from headrace.client.errors import raise_for, refusal
from headrace.client.leaders import ask_leaders, by_topic
from headrace.client.metadata import Node
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.ids import TopicId, topic_id_text
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.describe_producers_response import DescribeProducersResponse
from headrace.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from headrace.wire.messages.describe_quorum_response import DescribeQuorumResponse, ReplicaState

METADATA_TOPIC: Final = "__cluster_metadata"


class ClusterDescription(msgspec.Struct, frozen=True):
    """A cluster and its nodes, sorted by id."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]
    features: dict[str, int]
    """Finalized features and their levels."""


class QuorumMember(msgspec.Struct, frozen=True):
    """One voter or observer of the metadata log. Times are -1 if unknown."""

    node_id: int
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    directory_id: str = ""
    """As Kafka's tools write it."""


class QuorumDescription(msgspec.Struct, frozen=True):
    """The members of the metadata quorum, and their progress."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...]


class ReplicaOnDisk(msgspec.Struct, frozen=True):
    """What one replica takes on a node's disk."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(msgspec.Struct, frozen=True):
    """A data directory of a node. Sizes are -1 where the broker does not say."""

    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaOnDisk, ...]


class ActiveProducer(msgspec.Struct, frozen=True):
    """A producer that a partition knows; `transaction_start_offset` is -1 outside of one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Return the cluster's id, nodes and features, as a node says them now."""
    answer = await cluster.ask(
        DescribeClusterRequest(), DescribeClusterResponse, code_of=lambda answer: answer.error_code
    )
    raise_for(answer.error_code, answer.error_message, "the cluster")
    nodes = (Node(row.broker_id, Address(row.host, row.port), row.rack) for row in answer.brokers)
    connection = await cluster.connection(ANY_NODE)
    return ClusterDescription(
        answer.cluster_id,
        answer.controller_id,
        tuple(sorted(nodes, key=lambda node: node.node_id)),
        dict(sorted(connection.features.items())),
    )


async def describe_quorum(cluster: Cluster) -> QuorumDescription:
    """Return the state of the metadata log."""
    body = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])]
    )
    answer = await cluster.ask(
        body, DescribeQuorumResponse, code_of=lambda answer: answer.error_code
    )
    raise_for(answer.error_code, answer.error_message, "the metadata quorum")
    row = answer.topics[0].partitions[0]
    raise_for(row.error_code, row.error_message, "the metadata quorum")
    return QuorumDescription(
        row.leader_id,
        row.leader_epoch,
        row.high_watermark,
        tuple(map(_member, row.current_voters)),
        tuple(map(_member, row.observers)),
    )


async def describe_log_dirs(
    cluster: Cluster,
    node_ids: Iterable[int] | None = None,
    topics: Iterable[TopicPartition] | None = None,
) -> dict[int, list[LogDir]]:
    """Return the data directories of nodes (all of them) and the replicas there (all of them)."""
    wanted = sorted(cluster.view.nodes if node_ids is None else node_ids)
    groups = None if topics is None else by_topic(topics)
    body = DescribeLogDirsRequest(
        topics=None
        if groups is None
        else [
            DescribableLogDirTopic(topic=topic, partitions=indexes)
            for topic, indexes in groups.items()
        ]
    )
    answers = await asyncio.gather(
        *(cluster.ask(body, DescribeLogDirsResponse, node_id=node_id) for node_id in wanted)
    )
    for node_id, answer in zip(wanted, answers, strict=True):
        raise_for(answer.error_code, None, f"the directories of node {node_id}")
    return {node_id: _log_dirs(answer) for node_id, answer in zip(wanted, answers, strict=True)}


async def describe_producers(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> Outcomes[TopicPartition, list[ActiveProducer]]:
    """Return the producers that the leader of each partition knows."""

    async def ask(
        node_id: int, group: list[TopicPartition]
    ) -> Outcomes[TopicPartition, list[ActiveProducer]]:
        body = DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(group).items()
            ]
        )
        connection = await cluster.connection(node_id)
        answer = await connection.request(body, DescribeProducersResponse)
        return {
            TopicPartition(topic.name, row.partition_index): refusal(
                row.error_code, row.error_message, f"partition {topic.name}-{row.partition_index}"
            )
            if row.error_code
            else [
                ActiveProducer(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                )
                for producer in row.active_producers
            ]
            for topic in answer.topics
            for row in topic.partitions
        }

    return await ask_leaders(cluster, partitions, ask)


def _member(row: ReplicaState) -> QuorumMember:
    return QuorumMember(
        row.replica_id,
        row.log_end_offset,
        row.last_fetch_timestamp,
        row.last_caught_up_timestamp,
        topic_id_text(TopicId(row.replica_directory_id)),
    )


def _log_dirs(answer: DescribeLogDirsResponse) -> list[LogDir]:
    return [
        LogDir(
            row.log_dir,
            refusal(row.error_code, None, row.log_dir) if row.error_code else None,
            row.total_bytes,
            row.usable_bytes,
            tuple(
                ReplicaOnDisk(
                    TopicPartition(topic.name, replica.partition_index),
                    replica.partition_size,
                    replica.offset_lag,
                    replica.is_future_key,
                )
                for topic in row.topics
                for replica in topic.partitions
            ),
        )
        for row in answer.results
    ]
