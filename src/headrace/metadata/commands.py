"""The metadata commands of the node-to-node protocol (seed 002), as values.

Their bytes are `cluster`'s, and what they mean is in `command_entries`. Nodes are named by text.
"""

from msgspec import Struct

from headrace.ids import PartitionIndex, TopicName


class PartitionName(Struct, frozen=True):
    topic: TopicName
    partition: PartitionIndex


class TopicConfig(Struct, frozen=True):
    name: TopicName
    partitions: int
    replication_factor: int
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_bytes: int = 1024 * 1024 * 1024
    min_isr: int = 1
    config: dict[str, str] = {}


class Capabilities(Struct, frozen=True):
    voter: bool = True
    leader_eligible: bool = True
    replica_eligible: bool = True


class NodeInfo(Struct, frozen=True):
    id: str
    client_addr: tuple[str, int]
    cluster_addr: tuple[str, int]
    name: str | None = None
    rack: str | None = None
    capabilities: Capabilities = Capabilities()
    version: str = ""
    tags: dict[str, str] = {}


class CreateTopic(Struct, frozen=True):
    config: TopicConfig
    partition_assignments: tuple[tuple[str, ...], ...]


class DeleteTopic(Struct, frozen=True):
    name: TopicName


class UpdateTopicConfig(Struct, frozen=True):
    name: TopicName
    config: dict[str, str]


class AddPartitions(Struct, frozen=True):
    topic: TopicName
    new_assignments: tuple[tuple[str, ...], ...]


class UpdatePartitionLeader(Struct, frozen=True):
    partition: PartitionName
    leader: str
    epoch: int


class UpdatePartitionIsr(Struct, frozen=True):
    """`leader_epoch` is None from a peer of before 0.0.22."""

    partition: PartitionName
    isr: tuple[str, ...]
    leader_epoch: int | None = None


class ReassignPartition(Struct, frozen=True):
    partition: PartitionName
    replicas: tuple[str, ...]


class RegisterNode(Struct, frozen=True):
    info: NodeInfo


class DeregisterNode(Struct, frozen=True):
    node_id: str


class UpdateNode(Struct, frozen=True):
    node_id: str
    info: NodeInfo


class UpdateClusterConfig(Struct, frozen=True):
    config: dict[str, str]


class UpdateConsumerGroup(Struct, frozen=True):
    group_id: str


class DeleteConsumerGroup(Struct, frozen=True):
    group_id: str


class Noop(Struct, frozen=True):
    pass


class BatchCommand(Struct, frozen=True):
    commands: "tuple[MetadataCommand, ...]"


MetadataCommand = (
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
    | BatchCommand
)
"""In the order of their numbers on the wire."""
