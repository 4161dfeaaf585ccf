"""A client's view of a cluster: nodes, topics and partition leaders."""

import msgspec

from headrace.client.addresses import Address
from headrace.client.errors import refusal
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER = -1


class Node(msgspec.Struct, frozen=True):
    """A broker, as it wants to be reached."""

    node_id: int
    address: Address
    rack: str | None = None


class Partition(msgspec.Struct, frozen=True):
    """One partition and where it is kept."""

    index: int
    leader_id: int
    """-1 if it has no leader now."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


class Topic(msgspec.Struct, frozen=True):
    """A topic with its partitions, in the order of their indexes."""

    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        """How many replicas its first partition has."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class View:
    """The cluster according to the responses so far. Changed only by `learn`."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topic_names: dict[TopicId, str] = {}
        self.refusals: dict[str, KafkaError] = {}
        """Why the last response had no such topic."""

    def learn(self, answer: MetadataResponse) -> None:
        """Apply a response. Topics that it does not mention are unchanged."""
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.nodes = {
            row.node_id: Node(row.node_id, Address(row.host, row.port), row.rack)
            for row in answer.brokers
        }
        for row in answer.topics:
            name = row.name or self.topic_names.get(TopicId(row.topic_id), "")
            former = self._forget(name)
            if row.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                self.refusals[name] = refusal(row.error_code, None, f"topic {name!r}")
            elif row.partitions:
                self._keep(_newest(_topic(name, row), former))
            else:
                self.refusals[name] = refusal(
                    ErrorCode.LEADER_NOT_AVAILABLE, None, f"topic {name!r}"
                )

    def leader_of(self, topic: str, partition: int) -> Partition | None:
        """Return the partition if it is known to have a leader."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        found = known.partitions[partition]
        return found if found.leader_id in self.nodes else None

    def topic_id(self, name: str) -> TopicId:
        """Return the id of a topic; zeros if it is unknown or predates topic ids."""
        known = self.topics.get(name)
        return ZERO_TOPIC_ID if known is None else known.topic_id

    def _keep(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        if topic.topic_id != ZERO_TOPIC_ID:
            self.topic_names[topic.topic_id] = topic.name

    def _forget(self, name: str) -> Topic | None:
        self.refusals.pop(name, None)
        old = self.topics.pop(name, None)
        if old is not None:
            self.topic_names.pop(old.topic_id, None)
        return old


def _topic(name: str, row: MetadataResponseTopic) -> Topic:
    partitions = sorted(row.partitions, key=lambda partition: partition.partition_index)
    return Topic(name, TopicId(row.topic_id), row.is_internal, tuple(map(_partition, partitions)))


def _newest(topic: Topic, former: Topic | None) -> Topic:
    """Return a topic without what is older than what was known: a node may lag behind others."""
    if former is None or former.topic_id != topic.topic_id or topic.topic_id == ZERO_TOPIC_ID:
        return topic
    known = {partition.index: partition for partition in former.partitions}
    partitions = tuple(
        max(new, known.get(new.index, new), key=lambda each: each.leader_epoch)
        for new in topic.partitions
    )
    return msgspec.structs.replace(topic, partitions=partitions)


def _partition(row: MetadataResponsePartition) -> Partition:
    return Partition(
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
    )
