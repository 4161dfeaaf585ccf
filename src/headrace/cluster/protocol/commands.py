"""The metadata commands that ProposeMetadata carries; `cluster.command_entries` says what they do.

The tag of a class is its number on the wire. Seed 002 has 0 to 13. Its successor (0.0.22) added a
field to UpdatePartitionIsr and a variant 14 without another version; neither is read here.
"""

from typing import TypeAlias

from msgspec import field

from headrace.cluster.protocol.consumer_groups import ConsumerGroup
from headrace.cluster.protocol.names import NodeId, PartitionName
from headrace.cluster.protocol.nodes import NodeInfo
from headrace.cluster.protocol.postcard import U16, U32, U64, Form
from headrace.ids import TopicName


class TopicConfig(Form, frozen=True):
    name: TopicName
    partitions: U32
    replication_factor: U16
    retention_ms: U64 = 7 * 24 * 60 * 60 * 1000
    segment_bytes: U64 = 1024 * 1024 * 1024
    min_isr: U16 = 1
    config: dict[str, str] = field(default_factory=dict)


class CreateTopic(Form, frozen=True, tag=0):
    config: TopicConfig
    partition_assignments: tuple[tuple[NodeId, ...], ...]


class DeleteTopic(Form, frozen=True, tag=1):
    name: TopicName


class UpdateTopicConfig(Form, frozen=True, tag=2):
    name: TopicName
    config: dict[str, str]


class AddPartitions(Form, frozen=True, tag=3):
    topic: TopicName
    new_assignments: tuple[tuple[NodeId, ...], ...]


class UpdatePartitionLeader(Form, frozen=True, tag=4):
    partition: PartitionName
    leader: NodeId
    epoch: U64


class UpdatePartitionIsr(Form, frozen=True, tag=5):
    """Carries no leader epoch, so nothing in it tells a former leader's from the present one's."""

    partition: PartitionName
    isr: tuple[NodeId, ...]


class ReassignPartition(Form, frozen=True, tag=6):
    partition: PartitionName
    replicas: tuple[NodeId, ...]


class RegisterNode(Form, frozen=True, tag=7):
    info: NodeInfo


class DeregisterNode(Form, frozen=True, tag=8):
    node_id: NodeId


class UpdateNode(Form, frozen=True, tag=9):
    node_id: NodeId
    info: NodeInfo


class UpdateClusterConfig(Form, frozen=True, tag=10):
    config: dict[str, str]


class UpdateConsumerGroup(Form, frozen=True, tag=11):
    group: ConsumerGroup


class DeleteConsumerGroup(Form, frozen=True, tag=12):
    group_id: str


class Noop(Form, frozen=True, tag=13):
    """Changes nothing; a leader proposes it to learn whether it still leads."""


MetadataCommand: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | UpdateTopicConfig
    | AddPartitions
    | UpdatePartitionLeader
    | UpdatePartitionIsr
    | ReassignPartition
    | RegisterNode
    | DeregisterNode
    | UpdateNode
    | UpdateClusterConfig
    | UpdateConsumerGroup
    | DeleteConsumerGroup
    | Noop
)
