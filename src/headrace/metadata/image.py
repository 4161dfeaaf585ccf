"""The image: the cluster as the applied entries made it, looked up in constant time.

Handlers read it; only the modules that apply entries call the methods under "Changes". Nothing
waits here: an index is applied if `applied_index >= index`, and waiting for it is up to the shell.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.acl_index import AclIndex
from headrace.metadata.credential_shapes import CredentialShapes
from headrace.metadata.descriptors import DescriptorId, DescriptorLease
from headrace.metadata.state import (
    METADATA_GROUP,
    NO_LEADER,
    Acl,
    Broker,
    DelegationToken,
    Drain,
    ImageState,
    JoinTokenState,
    MigrationRow,
    Node,
    NodeState,
    Partition,
    QuotaEntity,
    ReplicationGroup,
    ResourceType,
    ScramCredential,
    Topic,
)


class Slot(NamedTuple):
    """The partition that a vshard is."""

    topic: Topic
    partition: PartitionIndex


class Image:
    """What is known of the cluster at `applied_index`."""

    __slots__ = (
        "_brokers_by_name",
        "_by_metric",
        "_leader_counts",
        "_leaderless",
        "_migrations_by_vshard",
        "_moving",
        "_new_names",
        "_not_preferred",
        "_partitions_with_elr",
        "_slots",
        "_topics",
        "_topics_by_id",
        "_vshards_by_broker",
        "_vshards_by_group",
        "acls",
        "credential_shapes",
        "state",
    )

    def __init__(self, state: ImageState | None = None) -> None:
        self.state: Final = state if state is not None else ImageState()
        self._topics = self.state.topics
        self._topics_by_id: dict[TopicId, Topic] = {}
        self._by_metric: dict[str, set[TopicName]] = {}
        """Topics whose names have a '.' or '_', by the name that metrics call them."""
        self._new_names: set[TopicName] = set()
        """Those of them that the entry being applied has created."""
        self._slots: dict[int, Slot] = {}
        self._vshards_by_group = {group: vshard for vshard, group in self.state.regrouped.items()}
        self._vshards_by_broker: dict[BrokerId, set[int]] = {}
        """The partitions of which each broker has a replica."""
        self._leader_counts: dict[BrokerId, int] = {}
        self._leaderless: set[int] = set()
        self._moving: set[int] = set()
        self._not_preferred: set[int] = set()
        self._partitions_with_elr: dict[TopicName, set[int]] = {}
        self._brokers_by_name = {
            broker.node_name: broker for broker in self.state.brokers.values() if broker.node_name
        }
        self._migrations_by_vshard = {
            row.vshard: migration_id for migration_id, row in self.state.migrations.items()
        }
        for topic in self.state.topics.values():
            self._topics_by_id[topic.topic_id] = topic
            self._index_name(topic.name)
            self._index_partitions(topic, 0)
        self.acls: Final = AclIndex(self.state.acls)
        self.credential_shapes: Final = CredentialShapes(self.state.scram_credentials)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self.state == other.state

    __hash__ = None  # type: ignore[assignment]

    @property
    def applied_index(self) -> int:
        """The last index that this image covers."""
        return self.state.applied_index

    # Topics and partitions

    def topic(self, name: TopicName) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def topics(self) -> Iterator[Topic]:
        """Return all topics, in the order of creation."""
        return iter(self._topics.values())

    def colliding(self, name: str) -> TopicName | None:
        """Return a topic that metrics cannot tell from one of this name, which is not there yet.

        None of the entry being applied: in one request Kafka lets both be created.
        """
        alike = self._by_metric.get(metric_name(name)) if "." in name or "_" in name else None
        return min(alike - self._new_names, default=None) if alike else None

    def end_entry(self) -> None:
        """Settle what an entry, now that it is applied, has changed."""
        self.acls.settle()
        self._new_names.clear()

    def partition(self, name: TopicName, index: PartitionIndex) -> Partition | None:
        topic = self._topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def partitions_of(self, broker_id: BrokerId) -> Iterator[Slot]:
        """Yield the partitions of which a broker has a replica, the oldest first.

        The image may change between two of them: partitions that are deleted meanwhile are left
        out, ones that are added too.
        """
        return self._slots_of(self._vshards_by_broker.get(broker_id, ()))

    def leaderless(self) -> Iterator[Slot]:
        """Yield the partitions without a leader, like `partitions_of`."""
        return self._slots_of(self._leaderless)

    def moving(self) -> Iterator[Slot]:
        """Yield the partitions with a reassignment in progress, like `partitions_of`."""
        return self._slots_of(self._moving)

    def not_preferred(self) -> Iterator[Slot]:
        """Yield the partitions that their first replica does not lead, like `partitions_of`."""
        return self._slots_of(self._not_preferred)

    def topics_with_elr(self) -> list[TopicName]:
        """Return the topics that have eligible leader replicas outside of an ISR."""
        return sorted(self._partitions_with_elr)

    def partitions_with_elr(self, name: TopicName) -> list[Slot]:
        """Return a topic's partitions that have eligible leader replicas outside of the ISR."""
        indexes = self._partitions_with_elr.get(name, ())
        return [Slot(self._topics[name], PartitionIndex(each)) for each in sorted(indexes)]

    def replica_count(self, broker_id: BrokerId) -> int:
        return len(self._vshards_by_broker.get(broker_id, ()))

    def leader_count(self, broker_id: BrokerId) -> int:
        return self._leader_counts.get(broker_id, 0)

    # Routing

    def slot(self, vshard_id: int) -> Slot | None:
        """Return the partition of a vshard."""
        return self._slots.get(vshard_id)

    def group_id(self, vshard_id: int) -> int:
        """Return the replication group of a vshard: the one after its number, unless it moved."""
        return self.state.regrouped.get(vshard_id, vshard_id + 1)

    def vshard_of_group(self, group_id: int) -> int | None:
        vshard = self._vshards_by_group.get(group_id, group_id - 1)
        return vshard if vshard in self._slots and self.group_id(vshard) == group_id else None

    def group(self, group_id: int) -> ReplicationGroup | None:
        """Return the replication group of this log or of a partition."""
        if group_id == METADATA_GROUP:
            return self.state.metadata_group
        vshard = self.vshard_of_group(group_id)
        if vshard is None:
            return None
        topic, index = self._slots[vshard]
        partition = topic.partitions[index]
        members = tuple(node for node in partition.replicas if node not in partition.adding)
        leader = None if partition.leader == NO_LEADER else partition.leader
        return ReplicationGroup(leader, members, partition.adding)

    def node(self, node_id: int) -> Node | None:
        return self.state.nodes.get(node_id)

    def is_leaving(self, broker_id: BrokerId) -> bool:
        """Return whether a node is to leave the cluster, or has begun to."""
        node = self.state.nodes.get(broker_id)
        return node is not None and node.state in _LEAVING

    # Brokers, configs, features

    def broker(self, broker_id: BrokerId) -> Broker | None:
        return self.state.brokers.get(broker_id)

    def broker_by_name(self, node_name: str) -> Broker | None:
        return self._brokers_by_name.get(node_name)

    def brokers(self) -> Iterator[Broker]:
        return iter(self.state.brokers.values())

    def host(self, broker_id: BrokerId) -> str:
        """Return the machine of a broker: where other nodes reach it, else where clients do."""
        node = self.state.nodes.get(broker_id)
        if node is not None:
            return node.addr.rpartition(":")[0]
        broker = self.state.brokers.get(broker_id)
        return broker.endpoints[0].host if broker is not None and broker.endpoints else ""

    def configs(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the explicit configs of a resource; defaults are in `headrace.config`."""
        return self.state.configs.get((resource_type, name), _NOTHING)

    def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature, or zero."""
        return self.state.features.get(name, 0)

    # Rights

    def acls_for(self, resource_type: int, name: str) -> list[Acl]:
        """Return the ACLs that match a resource, which may be very many: for people and tests."""
        patterns = self.acls.patterns_of(resource_type, name)
        return [acl for pattern in patterns for acl in self.state.acls[pattern]]

    def scram_credential(self, user: str, mechanism: int) -> ScramCredential | None:
        return self.state.scram_credentials.get((user, mechanism))

    def quotas(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self.state.quotas.get(entity, _NO_LIMITS)

    def delegation_token(self, token_id: str) -> DelegationToken | None:
        return self.state.delegation_tokens.get(token_id)

    # Leases, migrations, join tokens

    def lease(self, descriptor_id: DescriptorId, node_id: int) -> DescriptorLease | None:
        return self.state.leases.get(descriptor_id, _NO_LEASES).get(node_id)

    def leases(self, descriptor_id: DescriptorId) -> Mapping[int, DescriptorLease]:
        """Return the leases on a descriptor by node; some may be expired, see `leases.holders`."""
        return self.state.leases.get(descriptor_id, _NO_LEASES)

    def drain(self, descriptor_id: DescriptorId) -> Drain | None:
        return self.state.drains.get(descriptor_id)

    def migration(self, migration_id: str) -> MigrationRow | None:
        return self.state.migrations.get(migration_id)

    def migration_of_vshard(self, vshard_id: int) -> str | None:
        return self._migrations_by_vshard.get(vshard_id)

    def join_token(self, token_hash: bytes) -> JoinTokenState | None:
        return self.state.join_tokens.get(token_hash)

    # Changes: for the modules that apply entries

    def add_topic(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._topics_by_id[topic.topic_id] = topic
        self._index_name(topic.name)
        self._new_names.add(topic.name)
        self._index_partitions(topic, 0)

    def add_partitions(self, topic: Topic, partitions: list[Partition]) -> None:
        first = len(topic.partitions)
        topic.partitions.extend(partitions)
        self._index_partitions(topic, first)

    def remove_topic(self, topic: Topic) -> None:
        del self._topics[topic.name]
        del self._topics_by_id[topic.topic_id]
        if (alike := self._by_metric.get(metric := metric_name(topic.name))) is not None:
            alike.discard(topic.name)
            if not alike:
                del self._by_metric[metric]
        self._partitions_with_elr.pop(topic.name, None)
        for partition in topic.partitions:
            del self._slots[partition.vshard_id]
            self._leave_brokers(partition)
            self._count_leader(partition, -1)
            for marked in (self._leaderless, self._moving, self._not_preferred):
                marked.discard(partition.vshard_id)

    def put_partition(self, topic: Topic, index: int, partition: Partition) -> None:
        former = topic.partitions[index]
        topic.partitions[index] = partition
        if partition.replicas != former.replicas:
            self._leave_brokers(former)
            self._place_on_brokers(partition)
        if bool(partition.elr) != bool(former.elr):
            self._index_elr(topic, index, has_elr=bool(partition.elr))
        self._count_leader(former, -1)
        self._count_leader(partition, 1)
        self._mark(partition)

    def next_vshard(self) -> int:
        """Return a new vshard whose group no other has moved to."""
        vshard = self.state.next_vshard
        while vshard + 1 in self._vshards_by_group:
            vshard += 1
        self.state.next_vshard = vshard + 1
        return vshard

    def regroup(self, vshard_id: int, group_id: int | None) -> None:
        """Assign a vshard to another group; None for the one after its number."""
        if (former := self.state.regrouped.pop(vshard_id, None)) is not None:
            del self._vshards_by_group[former]
        if group_id is not None and group_id != vshard_id + 1:
            self.state.regrouped[vshard_id] = group_id
            self._vshards_by_group[group_id] = vshard_id

    def put_broker(self, broker: Broker) -> None:
        self.remove_broker(broker.broker_id, keep_place=True)
        self.state.brokers[broker.broker_id] = broker
        if broker.node_name:
            self._brokers_by_name[broker.node_name] = broker

    def remove_broker(self, broker_id: BrokerId, *, keep_place: bool = False) -> None:
        former = self.state.brokers.get(broker_id)
        if former is None:
            return
        self._brokers_by_name.pop(former.node_name, None)
        if not keep_place:
            del self.state.brokers[broker_id]

    def put_scram_credential(self, user: str, mechanism: int, row: ScramCredential) -> None:
        self.remove_scram_credential(user, mechanism)
        self.state.scram_credentials[user, mechanism] = row
        self.credential_shapes.count(mechanism, row, 1)

    def remove_scram_credential(self, user: str, mechanism: int) -> bool:
        """Remove a credential; return whether there was one."""
        former = self.state.scram_credentials.pop((user, mechanism), None)
        if former is None:
            return False
        self.credential_shapes.count(mechanism, former, -1)
        return True

    def put_migration(self, migration_id: str, row: MigrationRow) -> None:
        self.state.migrations[migration_id] = row
        self._migrations_by_vshard[row.vshard] = migration_id

    def remove_migration(self, migration_id: str) -> None:
        row = self.state.migrations.pop(migration_id)
        del self._migrations_by_vshard[row.vshard]

    def _index_name(self, name: TopicName) -> None:
        if "." in name or "_" in name:
            self._by_metric.setdefault(metric_name(name), set()).add(name)

    def _index_partitions(self, topic: Topic, first: int) -> None:
        for index in range(first, len(topic.partitions)):
            partition = topic.partitions[index]
            self._slots[partition.vshard_id] = Slot(topic, PartitionIndex(index))
            self._place_on_brokers(partition)
            if partition.elr:
                self._index_elr(topic, index, has_elr=True)
            self._count_leader(partition, 1)
            self._mark(partition)

    def _index_elr(self, topic: Topic, index: int, *, has_elr: bool) -> None:
        indexes = self._partitions_with_elr.setdefault(topic.name, set())
        if has_elr:
            indexes.add(index)
            return
        indexes.discard(index)
        if not indexes:
            del self._partitions_with_elr[topic.name]

    def _slots_of(self, vshards: Iterable[int]) -> Iterator[Slot]:
        for vshard_id in sorted(vshards):
            slot = self._slots.get(vshard_id)
            if slot is not None:
                yield slot

    def _mark(self, partition: Partition) -> None:
        """Keep the sets of partitions that the controller may have something to do for."""
        vshard, leader = partition.vshard_id, partition.leader
        _put(self._leaderless, vshard, is_in=leader == NO_LEADER)
        _put(self._moving, vshard, is_in=bool(partition.adding or partition.removing))
        _put(self._not_preferred, vshard, is_in=leader != partition.replicas[0])

    def _place_on_brokers(self, partition: Partition) -> None:
        for broker_id in partition.replicas:
            self._vshards_by_broker.setdefault(broker_id, set()).add(partition.vshard_id)

    def _leave_brokers(self, partition: Partition) -> None:
        for broker_id in partition.replicas:
            self._vshards_by_broker[broker_id].discard(partition.vshard_id)

    def _count_leader(self, partition: Partition, change: int) -> None:
        if partition.leader != NO_LEADER:
            counts = self._leader_counts
            counts[partition.leader] = counts.get(partition.leader, 0) + change


def metric_name(topic: str) -> str:
    """Return what metrics call a topic: they have no '.' in names."""
    return topic.replace(".", "_")


def _put(vshards: set[int], vshard: int, *, is_in: bool) -> None:
    if is_in:
        vshards.add(vshard)
    else:
        vshards.discard(vshard)


_LEAVING: Final = (NodeState.DRAINING, NodeState.DECOMMISSIONED)
_NOTHING: Final[Mapping[str, str]] = {}
_NO_LIMITS: Final[Mapping[str, float]] = {}
_NO_LEASES: Final[Mapping[int, DescriptorLease]] = {}
