"""What the commands of the node-to-node protocol (seed 002) mean: the entries to propose for them.

Peers of that protocol name nodes by text: a registration keeps the text, and `broker_id_of` finds
the broker. Consumer groups are not metadata here (they live in an internal topic), so commands
about them are refused.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from headrace.cluster.protocol.commands import (
    AddPartitions,
    CreateTopic,
    DeleteConsumerGroup,
    DeleteTopic,
    DeregisterNode,
    MetadataCommand,
    Noop,
    ReassignPartition,
    RegisterNode,
    TopicConfig,
    UpdateClusterConfig,
    UpdateConsumerGroup,
    UpdateNode,
    UpdatePartitionIsr,
    UpdatePartitionLeader,
    UpdateTopicConfig,
)
from headrace.cluster.protocol.names import PartitionName, numbered_broker
from headrace.cluster.protocol.nodes import NodeInfo
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata import ddl
from headrace.metadata.entries import Batch, CatalogDdl, Entry
from headrace.metadata.image import Image
from headrace.metadata.state import Endpoint, Partition, ResourceType, Topic

CLIENT_LISTENER: Final = "PLAINTEXT"
NODE_LISTENER: Final = "CLUSTER"
PLAINTEXT: Final = 0


class ProposerInputs(NamedTuple):
    """Inputs that the proposer chooses and the entry carries: the time, and unique ids."""

    now_ms: int
    new_topic_id: Callable[[], TopicId]
    new_incarnation_id: Callable[[], bytes]


def entry_for(image: Image, command: MetadataCommand, inputs: ProposerInputs) -> Entry:
    """Return the entry to propose; raise KafkaError if the current image forbids the command."""
    if isinstance(command, Noop):
        return Batch(())
    return CatalogDdl(ddl.encode_ddl(_ddl_for(image, command, inputs)))


def broker_id_of(image: Image, node_id: str) -> BrokerId:
    """Return the broker with this registered name or id."""
    broker = image.broker_by_name(node_id)
    if broker is not None:
        return broker.broker_id
    number = numbered_broker(node_id)
    if number is not None:
        return number
    raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no node {node_id[:256]!r} is registered")


def _ddl_for(image: Image, command: MetadataCommand, inputs: ProposerInputs) -> ddl.Ddl:  # noqa: PLR0911, PLR0912  a table
    match command:
        case CreateTopic(config, assignments):
            return _create_topic(image, config, assignments, inputs)
        case DeleteTopic(name):
            return ddl.DeleteTopic(_topic(image, name).topic_id, inputs.now_ms)
        case UpdateTopicConfig(name, config_values):
            return ddl.SetConfigs(ResourceType.TOPIC, name, {**config_values})
        case AddPartitions(name, assignments):
            topic = _topic(image, name)
            return ddl.AddPartitions(
                topic.topic_id, len(topic.partitions), _assignments(image, assignments)
            )
        case UpdatePartitionLeader(partition, leader, epoch):
            return _update_leader(image, partition, leader, epoch)
        case UpdatePartitionIsr(partition, isr):
            return ddl.ChangePartition(
                _topic(image, partition.topic).topic_id,
                partition.partition,
                isr=tuple(broker_id_of(image, node) for node in isr),
            )
        case ReassignPartition(partition, replicas):
            return _reassign(image, partition, replicas)
        case RegisterNode(info):
            return _register(image, info.id, info, inputs)
        case UpdateNode(node_id, info):
            return _register(image, node_id, info, inputs)
        case DeregisterNode(node_id):
            return ddl.UnregisterBroker(broker_id_of(image, node_id))
        case UpdateClusterConfig(config_values):
            return ddl.SetConfigs(ResourceType.BROKER, "", {**config_values})
        case UpdateConsumerGroup(group):
            raise _not_metadata(group.group_id)
        case DeleteConsumerGroup(group_id):
            raise _not_metadata(group_id)
        case _:
            raise AssertionError(f"{type(command).__name__} is handled by the caller")


def _create_topic(
    image: Image,
    config: TopicConfig,
    assignments: tuple[tuple[str, ...], ...],
    inputs: ProposerInputs,
) -> ddl.CreateTopic:
    if len(assignments) != config.partitions:
        _refuse(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {config.name} is to have {config.partitions} partitions, but "
            f"{len(assignments)} are assigned",
        )
    for index, replicas in enumerate(assignments):
        if len(replicas) != config.replication_factor:
            _refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{config.name}-{index} is to have {config.replication_factor} replicas, but "
                f"{len(replicas)} are assigned",
            )
    configs = {
        "retention.ms": str(config.retention_ms),
        "segment.bytes": str(config.segment_bytes),
        "min.insync.replicas": str(config.min_isr),
        **config.config,
    }
    return ddl.CreateTopic(
        config.name, inputs.new_topic_id(), _assignments(image, assignments), configs
    )


def _assignments(
    image: Image, assignments: tuple[tuple[str, ...], ...]
) -> tuple[ddl.Assignment, ...]:
    """The first replica leads, all begin in sync: a new partition is empty everywhere."""
    named = [tuple(broker_id_of(image, node) for node in replicas) for replicas in assignments]
    if not all(named):
        _refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition has at least one replica")
    return tuple(ddl.Assignment(replicas, replicas, replicas[0]) for replicas in named)


def _update_leader(
    image: Image, name: PartitionName, leader: str, epoch: int
) -> ddl.ChangePartition:
    topic, partition = _partition(image, name)
    if epoch <= partition.leader_epoch:
        _refuse(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name.topic}-{name.partition} is in leader epoch {partition.leader_epoch} already, "
            f"{epoch} is not after it",
        )
    return ddl.ChangePartition(
        topic.topic_id,
        name.partition,
        expected_leader_epoch=partition.leader_epoch,
        leader=broker_id_of(image, leader),
    )


def _reassign(image: Image, name: PartitionName, wanted: tuple[str, ...]) -> ddl.ChangePartition:
    """Begin a reassignment: old replicas stay, and count, until the new ones have caught up."""
    topic, partition = _partition(image, name)
    new = tuple(broker_id_of(image, node) for node in wanted)
    old = tuple(node for node in partition.replicas if node not in partition.adding)
    return ddl.ChangePartition(
        topic.topic_id,
        name.partition,
        expected_partition_epoch=partition.partition_epoch,
        replicas=new + tuple(node for node in old if node not in new),
        isr=tuple(node for node in partition.isr if node in new or node in old),
        adding=tuple(node for node in new if node not in old),
        removing=tuple(node for node in old if node not in new),
    )


def _register(
    image: Image, node_id: str, info: NodeInfo, inputs: ProposerInputs
) -> ddl.RegisterBroker:
    """A node that is known keeps its number and incarnation; a new one gets the lowest free one."""
    if node_id != info.id:
        _refuse(ErrorCode.INVALID_REQUEST, f"node {node_id} cannot become node {info.id}")
    broker = image.broker_by_name(node_id)
    if broker is not None:
        number, incarnation_id = broker.broker_id, broker.incarnation_id
    else:
        number, incarnation_id = _free_broker_id(image, node_id), inputs.new_incarnation_id()
    client, cluster = info.client_addr, info.cluster_addr
    return ddl.RegisterBroker(
        number,
        incarnation_id,
        endpoints=(
            Endpoint(CLIENT_LISTENER, client.host, client.port, PLAINTEXT),
            Endpoint(NODE_LISTENER, cluster.host, cluster.port, PLAINTEXT),
        ),
        rack=info.rack,
        is_fenced=False,
        node_name=node_id,
    )


def _free_broker_id(image: Image, node_id: str) -> BrokerId:
    if node_id.isascii() and node_id.isdigit():
        return broker_id_of(image, node_id)
    number = 0
    while image.broker(BrokerId(number)) is not None:
        number += 1
    return BrokerId(number)


def _topic(image: Image, name: TopicName) -> Topic:
    topic = image.topic(name)
    if topic is None:
        _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic


def _partition(image: Image, name: PartitionName) -> tuple[Topic, Partition]:
    topic = _topic(image, name.topic)
    partition = image.partition(name.topic, name.partition)
    if partition is None:
        _refuse(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name.topic} has {len(topic.partitions)} partitions, no {name.partition}",
        )
    return topic, partition


def _not_metadata(group_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"group {group_id} is not part of the metadata: ask its group coordinator",
    )


def _refuse(code: ErrorCode, message: str) -> NoReturn:
    raise KafkaError(code, message)
