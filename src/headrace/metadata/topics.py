"""Topics and partitions: the effect of their DDL on the image, and its refusals.

Names and assignments (legal characters, replication factors, policies) are validated before the
proposal; here are the invariants of every image.
"""

from typing import Final

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId, topic_id_text
from headrace.metadata.ddl import (
    AddPartitions,
    Assignment,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
)
from headrace.metadata.descriptors import topic_descriptor
from headrace.metadata.errors import refuse
from headrace.metadata.events import (
    ConfigsChanged,
    Event,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from headrace.metadata.image import Image
from headrace.metadata.leases import ANY_VERSION, end_leases, holders
from headrace.metadata.levels import must_differ
from headrace.metadata.migrations import forget_migration
from headrace.metadata.partitions import check_partition, set_partition
from headrace.metadata.state import Partition, ResourceType, Topic

TOPIC_PARTITIONS_MAX: Final = 1_000_000
"""No setting: nodes that disagreed would differ."""
UNKNOWN_BROKER_EPOCH: Final = -1


def create_topic(image: Image, ddl: CreateTopic) -> list[Event]:
    """Create a topic with its configs; refused if the name or the id is taken.

    Also if the name collides with one that another client has just created, in another entry.
    """
    if image.topic(ddl.name) is not None:
        raise refuse(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {ddl.name} exists already")
    if image.topic_by_id(ddl.topic_id) is not None:
        raise refuse(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"topic id {topic_id_text(ddl.topic_id)} is taken: propose another one",
        )
    if must_differ(image) and (other := image.colliding(ddl.name)) is not None:
        raise refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, explain_collision(ddl.name, other))
    _check_assignments(image, ddl.name, ddl.partitions, TOPIC_PARTITIONS_MAX)
    partitions = [_partition(image, assignment) for assignment in ddl.partitions]
    image.add_topic(Topic(ddl.name, ddl.topic_id, partitions, ddl.is_internal))
    events: list[Event] = [TopicCreated(ddl.name, ddl.topic_id)]
    if ddl.configs:
        image.state.configs[ResourceType.TOPIC, ddl.name] = dict(ddl.configs)
        events.append(ConfigsChanged(ResourceType.TOPIC, ddl.name, tuple(ddl.configs)))
    return events


def delete_topic(image: Image, ddl: DeleteTopic) -> list[Event]:
    """Delete a topic and all that was said of it: configs, leases, its drain, its migrations.

    ACLs and quotas stay, as they do in Kafka: they are on names, not on topics.
    """
    topic = require_topic(image, ddl.topic_id)
    descriptor = topic_descriptor(topic.name)
    if nodes := holders(image, descriptor, ANY_VERSION, ddl.now_ms):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name} is leased by nodes {nodes}: drain its leases before deleting it",
        )
    image.state.configs.pop((ResourceType.TOPIC, topic.name), None)
    events = end_leases(image, descriptor)
    for partition in topic.partitions:
        vshard = partition.vshard_id
        if (migration_id := image.migration_of_vshard(vshard)) is not None:
            events += forget_migration(image, migration_id, f"topic {topic.name} was deleted")
        image.state.ghosts.pop(vshard, None)
        image.regroup(vshard, None)
    image.remove_topic(topic)
    events.append(TopicDeleted(topic.name, topic.topic_id, len(topic.partitions)))
    return events


def add_partitions(image: Image, ddl: AddPartitions) -> list[Event]:
    topic = require_topic(image, ddl.topic_id)
    first = len(topic.partitions)
    if first != ddl.expected_count:
        raise refuse(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {first} partitions, not {ddl.expected_count}: retry",
        )
    _check_assignments(image, topic.name, ddl.partitions, TOPIC_PARTITIONS_MAX - first)
    image.add_partitions(topic, [_partition(image, each) for each in ddl.partitions])
    topic.version += 1
    end = PartitionIndex(len(topic.partitions))
    return [PartitionsAdded(topic.name, topic.topic_id, PartitionIndex(first), end)]


def change_partition(image: Image, ddl: ChangePartition) -> list[Event]:
    """Change leader, ISR or replicas of a partition; refused if an expected epoch has passed."""
    topic = require_topic(image, ddl.topic_id)
    if not 0 <= ddl.partition < len(topic.partitions):
        raise refuse(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name} has {len(topic.partitions)} partitions, no {ddl.partition}",
        )
    current = topic.partitions[ddl.partition]
    name = f"{topic.name}-{ddl.partition}"
    if ddl.expected_leader_epoch not in (None, current.leader_epoch):
        raise refuse(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name} is in leader epoch {current.leader_epoch}, not {ddl.expected_leader_epoch}",
        )
    if ddl.expected_partition_epoch not in (None, current.partition_epoch):
        raise refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} is in partition epoch {current.partition_epoch}, not "
            f"{ddl.expected_partition_epoch}",
        )
    if ddl.replicas is not None:
        _check_registered(image, name, set(ddl.replicas).difference(current.replicas))
    if ddl.isr_epochs is not None:
        _check_in_sync(image, name, ddl, current)
    changes = {field: value for field in _CHANGEABLE if (value := getattr(ddl, field)) is not None}
    return set_partition(image, topic, ddl.partition, **changes)


def explain_collision(name: str, other: str) -> str:
    """Return why metrics could not tell a topic from another one."""
    return f"topic {name} collides with topic {other}: names must differ in more than '.' and '_'"


def require_topic(image: Image, topic_id: TopicId) -> Topic:
    """Return the topic of an id, or refuse."""
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise refuse(
            ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id_text(topic_id)}"
        )
    return topic


def _partition(image: Image, assignment: Assignment) -> Partition:
    replicas = assignment.replicas
    # Most of the time all replicas are in sync: one tuple does for both.
    isr = replicas if assignment.isr == replicas else assignment.isr
    return Partition(replicas, isr, BrokerId(assignment.leader), image.next_vshard())


def _check_assignments(
    image: Image, name: str, assignments: tuple[Assignment, ...], room: int
) -> None:
    if not 1 <= len(assignments) <= room:
        raise refuse(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name}: {len(assignments)} partitions, between 1 and {room} are allowed",
        )
    for index, assignment in enumerate(assignments):
        partition = Partition(
            assignment.replicas, assignment.isr, BrokerId(assignment.leader), vshard_id=0
        )
        check_partition(f"{name}-{index}", partition)
    _check_registered(image, name, {each for one in assignments for each in one.replicas})


def _check_registered(image: Image, name: str, brokers: set[BrokerId]) -> None:
    """Refuse replicas on unregistered brokers, which could not be moved away again.

    Checked here and not only before the proposal, as the broker may have been unregistered in
    between. Fenced ones are fine: they are expected back.
    """
    unknown = sorted(each for each in brokers if image.broker(each) is None)
    if unknown:
        raise refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name} cannot have replicas on brokers {unknown}: no such brokers are registered",
        )


def _check_in_sync(image: Image, name: str, ddl: ChangePartition, current: Partition) -> None:
    """Refuse an ISR with a former life of a broker, or with a new member that is about to go."""
    isr, epochs = ddl.isr or (), ddl.isr_epochs or ()
    if len(isr) != len(epochs):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"{name}: an ISR of {len(isr)} members has as many broker epochs, not {len(epochs)}",
        )
    for broker_id, epoch in zip(isr, epochs, strict=True):
        broker = image.broker(broker_id)
        is_new = broker_id not in current.isr
        if broker is None:
            reason = "is not registered"
        elif broker.broker_epoch != epoch and (is_new or epoch != UNKNOWN_BROKER_EPOCH):
            reason = f"is in broker epoch {broker.broker_epoch}, not {epoch}"
        elif is_new and (broker.is_fenced or broker.is_shutting_down):
            reason = "is fenced" if broker.is_fenced else "is shutting down"
        else:
            continue
        raise refuse(
            ErrorCode.INELIGIBLE_REPLICA, f"{name}: broker {broker_id} of the ISR {reason}"
        )


_CHANGEABLE: Final = (
    "leader",
    "isr",
    "replicas",
    "adding",
    "removing",
    "elr",
    "is_recovering",
)
