"""Replication groups: leaders, members, and the group of each partition.

One vshard is one partition, served by one group, so that moving a leader never moves another
partition. A group is a view of its partition; only group 0, that of this log, has its own row.
"""

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.entries import (
    LeadershipTransfer,
    ReassignVShard,
    RemoveMember,
    RouteChange,
)
from headrace.metadata.errors import refuse
from headrace.metadata.events import Event, MetadataGroupChanged, VShardRegrouped
from headrace.metadata.image import Image, Slot
from headrace.metadata.partitions import set_partition
from headrace.metadata.state import METADATA_GROUP, NO_LEADER, ReplicationGroup


def change_route(image: Image, change: RouteChange) -> list[Event]:
    """Apply a change of routing; what is so already changes nothing."""
    match change:
        case ReassignVShard(vshard_id, group_id, leaseholder):
            return _reassign_vshard(image, vshard_id, group_id, leaseholder)
        case LeadershipTransfer(group_id, node_id):
            return transfer_leadership(image, group_id, node_id)
        case RemoveMember(group_id, node_id):
            return remove_member(image, group_id, node_id)


def transfer_leadership(image: Image, group_id: int, node_id: int) -> list[Event]:
    """Make a member the leader of its group; refused unless it has everything committed."""
    if group_id == METADATA_GROUP:
        return _transfer_metadata_leadership(image, node_id)
    topic, index = require_slot(image, group_id)
    partition = topic.partitions[index]
    if partition.leader == node_id:
        return []
    if node_id not in partition.isr:
        raise refuse(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"node {node_id} cannot lead {topic.name}-{index}: the ISR is {partition.isr}",
        )
    return set_partition(image, topic, index, leader=BrokerId(node_id))


def remove_member(image: Image, group_id: int, node_id: int) -> list[Event]:
    """Remove a voter or learner from a group; if it led, there is no leader until an election.

    Refused if it is the last one that has everything committed.
    """
    if group_id == METADATA_GROUP:
        return drop_from_metadata_group(image, node_id)
    topic, index = require_slot(image, group_id)
    partition = topic.partitions[index]
    if node_id not in partition.replicas:
        return []
    if is_last_copy(image, group_id, node_id):
        raise refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"node {node_id} has the only copy of {topic.name}-{index}: add a replica first",
        )
    fields = ("replicas", "isr", "adding", "removing")
    changes: dict[str, object] = {
        field: tuple(each for each in former if each != node_id)
        for field in fields
        if node_id in (former := getattr(partition, field))
    }
    if partition.leader == node_id:
        changes["leader"] = NO_LEADER
    return set_partition(image, topic, index, **changes)


def is_last_copy(image: Image, group_id: int, node_id: int) -> bool:
    """Return whether no other member of a partition's group has everything committed."""
    topic, index = require_slot(image, group_id)
    partition = topic.partitions[index]
    others = [each for each in partition.replicas if each != node_id]
    return partition.isr == (node_id,) or all(each in partition.adding for each in others)


def require_slot(image: Image, group_id: int) -> Slot:
    """Return the partition that a group serves, or refuse."""
    vshard = image.vshard_of_group(group_id)
    slot = image.slot(vshard) if vshard is not None else None
    if slot is None:
        raise refuse(ErrorCode.INVALID_REQUEST, f"there is no replication group {group_id}")
    return slot


def drop_from_metadata_group(image: Image, node_id: int) -> list[Event]:
    """Remove a node from group 0; refused if it is the last voter."""
    group = image.state.metadata_group
    if node_id not in group.members + group.learners:
        return []
    if group.members == (node_id,):
        raise refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"node {node_id} is the only voter of the metadata group: promote another one first",
        )
    image.state.metadata_group = ReplicationGroup(
        None if group.leader == node_id else group.leader,
        tuple(each for each in group.members if each != node_id),
        tuple(each for each in group.learners if each != node_id),
    )
    return [MetadataGroupChanged()]


def _reassign_vshard(image: Image, vshard_id: int, group_id: int, leaseholder: int) -> list[Event]:
    slot = image.slot(vshard_id)
    if slot is None:
        raise refuse(ErrorCode.INVALID_REQUEST, f"there is no vshard {vshard_id}")
    if group_id == METADATA_GROUP or image.vshard_of_group(group_id) not in (None, vshard_id):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"vshard {vshard_id} cannot move to group {group_id}, which serves another: one group "
            "serves one partition",
        )
    if (migration_id := image.migration_of_vshard(vshard_id)) is not None:
        raise refuse(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"vshard {vshard_id} is on the move, in migration {migration_id}: wait for its end",
        )
    # Refuses before anything is changed.
    events = transfer_leadership(image, image.group_id(vshard_id), leaseholder)
    if image.group_id(vshard_id) != group_id:
        image.regroup(vshard_id, group_id)
        events.append(VShardRegrouped(vshard_id, group_id))
    return events


def _transfer_metadata_leadership(image: Image, node_id: int) -> list[Event]:
    group = image.state.metadata_group
    if node_id not in group.members:
        raise refuse(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"node {node_id} cannot lead the metadata group: its voters are {group.members}",
        )
    if group.leader == node_id:
        return []
    image.state.metadata_group = replace(group, leader=node_id)
    return [MetadataGroupChanged()]
