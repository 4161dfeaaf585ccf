"""Change events for watchers: each applied entry emits its events in order.

An event names what changed and little more; a watcher reads the rest from the image, which is newer
than the event if several entries were applied at once.
"""

from msgspec import Struct

from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.metadata.descriptors import DescriptorId
from headrace.metadata.phases import Phase
from headrace.metadata.state import NodeState, ResourceType, TokenStatus


class TopicCreated(Struct, frozen=True):
    name: TopicName
    topic_id: TopicId


class TopicDeleted(Struct, frozen=True):
    name: TopicName
    topic_id: TopicId
    partition_count: int


class PartitionsAdded(Struct, frozen=True):
    name: TopicName
    topic_id: TopicId
    first: PartitionIndex
    end: PartitionIndex


class LeaderChanged(Struct, frozen=True):
    """A leader epoch began."""

    name: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    leader: BrokerId
    leader_epoch: LeaderEpoch


class ReplicasChanged(Struct, frozen=True):
    """Something else of a partition changed: ISR, replicas or the like."""

    name: TopicName
    topic_id: TopicId
    partition: PartitionIndex


class VShardRegrouped(Struct, frozen=True):
    vshard_id: int
    group_id: int


class ConfigsChanged(Struct, frozen=True):
    resource_type: ResourceType
    resource_name: str
    names: tuple[str, ...]


class FeatureChanged(Struct, frozen=True):
    name: str
    level: int


class ClusterIdSet(Struct, frozen=True):
    cluster_id: str


class ClusterVersionChanged(Struct, frozen=True):
    version: int


class BrokerRegistered(Struct, frozen=True):
    broker_id: BrokerId
    broker_epoch: int


class BrokerChanged(Struct, frozen=True):
    broker_id: BrokerId


class BrokerUnregistered(Struct, frozen=True):
    broker_id: BrokerId


class AclsChanged(Struct, frozen=True):
    added: int
    removed: int


class ScramCredentialChanged(Struct, frozen=True):
    user: str
    mechanism: int


class QuotaChanged(Struct, frozen=True):
    entity: tuple[tuple[str, str | None], ...]
    key: str


class DelegationTokenChanged(Struct, frozen=True):
    token_id: str


class SurrogatesAllocated(Struct, frozen=True):
    """Blocks of producer ids that the proposer of this very entry owns now, the last included."""

    first_block: int
    last_block: int


class NodeChanged(Struct, frozen=True):
    """A node has a new state; None if it is gone."""

    node_id: int
    state: NodeState | None


class MetadataGroupChanged(Struct, frozen=True):
    pass


class LeaseGranted(Struct, frozen=True):
    descriptor_id: DescriptorId
    node_id: int


class LeaseEnded(Struct, frozen=True):
    descriptor_id: DescriptorId
    node_id: int


class DrainStarted(Struct, frozen=True):
    descriptor_id: DescriptorId
    up_to_version: int


class DrainEnded(Struct, frozen=True):
    descriptor_id: DescriptorId


class CaTrustChanged(Struct, frozen=True):
    added: bytes | None
    removed: bytes | None


class JoinTokenChanged(Struct, frozen=True):
    """A join token has a new status; None if it is forgotten."""

    token_hash: bytes
    status: TokenStatus | None


class MigrationAdvanced(Struct, frozen=True):
    migration_id: str
    phase: Phase
    vshard: int


class MigrationAborted(Struct, frozen=True):
    migration_id: str
    reason: str
    vshard: int


TopologyEvent = NodeChanged | MetadataGroupChanged
RoutingEvent = (
    LeaderChanged
    | ReplicasChanged
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | VShardRegrouped
    | MetadataGroupChanged
)
MigrationEvent = MigrationAdvanced | MigrationAborted
Event = (
    RoutingEvent
    | ConfigsChanged
    | FeatureChanged
    | ClusterIdSet
    | ClusterVersionChanged
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | AclsChanged
    | ScramCredentialChanged
    | QuotaChanged
    | DelegationTokenChanged
    | SurrogatesAllocated
    | TopologyEvent
    | LeaseGranted
    | LeaseEnded
    | DrainStarted
    | DrainEnded
    | CaTrustChanged
    | JoinTokenChanged
    | MigrationEvent
)
