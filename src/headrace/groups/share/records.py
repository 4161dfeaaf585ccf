"""The records of share groups, as Kafka writes them: how they are built and applied."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assignors import Assignment
from headrace.groups.heartbeats import LEAVING_EPOCH
from headrace.groups.share.group import ShareGroup, States, StateTopic, StateTopics
from headrace.groups.share.members import ShareMember
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.ids import TopicId
from headrace.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from headrace.wire.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from headrace.wire.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from headrace.wire.messages.share_group_metadata_key import ShareGroupMetadataKey
from headrace.wire.messages.share_group_metadata_value import ShareGroupMetadataValue
from headrace.wire.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from headrace.wire.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from headrace.wire.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from headrace.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)
from headrace.wire.schema import Message

STABLE: Final = 0
"""The only state that a member is in, by Kafka's number."""

# Making them


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash)
    )


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMemberMetadataKey(group_id, member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    rows = [TopicPartition(topic_id, sorted(target[topic_id])) for topic_id in sorted(target)]
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue(rows),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id),
        ShareGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    assigned = member.assigned
    return CoordinatorRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member.epoch,
            member.previous_epoch,
            STABLE,
            [
                TopicPartitions(topic_id, sorted(assigned[topic_id]))
                for topic_id in sorted(assigned)
            ],
        ),
    )


def states_record(group_id: str, states: States) -> CoordinatorRecord:
    def rows(topics: StateTopics) -> list[TopicPartitionsInfo]:
        return [
            TopicPartitionsInfo(topic_id, topic.name, sorted(topic.partitions))
            for topic_id, topic in sorted(topics.items())
        ]

    return CoordinatorRecord(
        ShareGroupStatePartitionMetadataKey(group_id),
        ShareGroupStatePartitionMetadataValue(
            rows(states.initializing),
            rows(states.initialized),
            [TopicInfo(topic_id, name) for topic_id, name in sorted(states.deleting.items())],
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """Return the records that remove a member."""
    return (
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    )


def group_tombstones(group: ShareGroup) -> tuple[CoordinatorRecord, ...]:
    """Return the records that delete a group without members."""
    return (
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group.group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group.group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group.group_id), None),
    )


# What they change


def _replay(state: GroupsState, record: CoordinatorRecord) -> None:
    """Apply a record of a share group to the state.

    A group begins with its first record, whichever a compacted log has first, and ends with the
    tombstone of its group record. Tombstones of what is not there change nothing.
    """
    key: Any = record.key
    group_id = GroupId(key.group_id)
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        if record.value is None:
            return
        group = state.groups[group_id] = ShareGroup(group_id)
    former = group.states
    if record.value is None and isinstance(key, ShareGroupMetadataKey):
        del state.groups[group_id]
        state.assigning.pop(group_id, None)
        _index_topics(state, group_id, former, _NO_STATES)
        return
    _CHANGES[type(key)](group, key, record.value)
    if group.states is not former:
        _index_topics(state, group_id, former, group.states)


def _index_topics(state: GroupsState, group_id: GroupId, former: States, states: States) -> None:
    """Index a group by the topics whose states it tracks."""
    before, now = former.topic_ids(), states.topic_ids()
    for topic_id in now - before:
        state.share_topics.setdefault(topic_id, {})[group_id] = None
    for topic_id in before - now:
        groups = state.share_topics[topic_id]
        del groups[group_id]
        if not groups:
            del state.share_topics[topic_id]


def _change_group(group: ShareGroup, key: Any, value: Any) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    group.checked_index = -1


def _change_member(group: ShareGroup, key: Any, value: Any) -> None:
    member_id = MemberId(key.member_id)
    if value is None:
        group.members.pop(member_id, None)
        return
    group.members[member_id] = replace(
        group.members.get(member_id) or ShareMember(member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
    )


def _change_target_epoch(group: ShareGroup, key: Any, value: Any) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _change_target(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
        return
    group.targets[MemberId(key.member_id)] = _read_assignment(value.topic_partitions)


def _change_current(group: ShareGroup, key: Any, value: Any) -> None:
    member_id = MemberId(key.member_id)
    former = group.members.get(member_id)
    if value is None:
        if former is not None:
            group.members[member_id] = replace(
                former, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}
            )
        return
    group.members[member_id] = replace(
        former or ShareMember(member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=_read_assignment(value.assigned_partitions),
    )


def _read_assignment(rows: list[Any]) -> Assignment:
    return {TopicId(bytes(each.topic_id)): frozenset(each.partitions) for each in rows}


def _change_states(group: ShareGroup, key: Any, value: Any) -> None:
    group.may_have_new_states, group.whole_at = True, None
    if value is None:
        group.states = States()
        return

    def topics(rows: list[TopicPartitionsInfo]) -> dict[TopicId, StateTopic]:
        return {
            TopicId(bytes(each.topic_id)): StateTopic(each.topic_name, frozenset(each.partitions))
            for each in rows
        }

    group.states = States(
        topics(value.initializing_topics),
        topics(value.initialized_topics),
        {TopicId(bytes(each.topic_id)): each.topic_name for each in value.deleting_topics},
    )


_CHANGES: Final[Mapping[type[Message], Callable[[ShareGroup, Any, Any], None]]] = {
    ShareGroupMetadataKey: _change_group,
    ShareGroupMemberMetadataKey: _change_member,
    ShareGroupTargetAssignmentMetadataKey: _change_target_epoch,
    ShareGroupTargetAssignmentMemberKey: _change_target,
    ShareGroupCurrentMemberAssignmentKey: _change_current,
    ShareGroupStatePartitionMetadataKey: _change_states,
}
_NO_STATES: Final = States()
REPLAY: Final[Mapping[type[Message], Callable[[GroupsState, CoordinatorRecord], None]]] = (
    dict.fromkeys(_CHANGES, _replay)
)
