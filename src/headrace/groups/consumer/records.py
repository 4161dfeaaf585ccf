"""The records of consumer groups, as Kafka writes them: how they are built and applied."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assignors import Assignment
from headrace.groups.consumer.group import ConsumerGroup, ResolvedPattern
from headrace.groups.consumer.members import ConsumerMember, EpochsByPartition, MemberState
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from headrace.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from headrace.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from headrace.wire.messages.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey,
)
from headrace.wire.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from headrace.wire.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from headrace.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from headrace.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from headrace.wire.schema import Message

# Making them


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
            subscribed_topic_regex=member.topic_pattern,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic_metadata,
        ),
    )


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics),
            version=resolved.metadata_version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def pattern_tombstone(group_id: str, pattern: str) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return CoordinatorRecord(key, None)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id]))
                for topic_id in sorted(target)
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_with_epochs(member.assigned),
            partitions_pending_revocation=_with_epochs(member.revoking),
        ),
    )


def member_tombstones(
    group_id: str, member_id: str
) -> tuple[CoordinatorRecord, CoordinatorRecord, CoordinatorRecord]:
    """Return the tombstones of a member."""
    return (
        CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
        ),
    )


def group_tombstones(group: ConsumerGroup) -> Iterable[CoordinatorRecord]:
    """Return the records that delete a group and any members it has."""
    group_id = group.group_id
    by_member = [member_tombstones(group_id, member_id) for member_id in group.members]
    yield from (current for current, _, _ in by_member)
    yield from (target for _, target, _ in by_member)
    yield CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    yield from (member for _, _, member in by_member)
    for pattern in sorted(group.subscribed_patterns | set(group.patterns)):
        yield pattern_tombstone(group_id, pattern)
    # Nobody writes the value any more; former versions did.
    yield CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)
    yield CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def _with_epochs(partitions: EpochsByPartition) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=(indexes := sorted(partitions[topic_id])),
            assignment_epochs=[partitions[topic_id][index] for index in indexes],
        )
        for topic_id in sorted(partitions)
    ]


# What they change: functions of the group, and of the key and value


def _change_group(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    group.checked_index = -1


def _change_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    member_id = MemberId(key.member_id)
    group.put_member(
        replace(
            group.members.get(member_id) or ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(value.subscribed_topic_names),
            topic_pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic_metadata=_kept(value.classic_member_metadata),
        )
    )


def _kept(metadata: ClassicMemberMetadata | None) -> ClassicMemberMetadata | None:
    """Return metadata with bytes of its own: decoded bytes are views of a whole batch."""
    if metadata is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=metadata.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=each.name, metadata=bytes(each.metadata))
            for each in metadata.supported_protocols
        ],
    )


def _change_target(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
        return
    group.targets[MemberId(key.member_id)] = {
        TopicId(bytes(each.topic_id)): frozenset(each.partitions) for each in value.topic_partitions
    }


def _change_target_epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.assignment_epoch, group.assignment_timestamp_ms = 0, 0
        return
    group.assignment_epoch = value.assignment_epoch
    group.assignment_timestamp_ms = value.assignment_timestamp
    group.forget_derived()


def _change_current(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if member is None:
        if value is None:
            return
        member = ConsumerMember(MemberId(key.member_id))
    if value is None:
        group.put_member(replace(member, **_NOTHING_ASSIGNED))
        return
    group.put_member(
        replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_read_epochs(value.assigned_partitions, value.member_epoch),
            revoking=_read_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
    )


_NOTHING_ASSIGNED: Final[Mapping[str, Any]] = {
    "epoch": -1,
    "previous_epoch": -1,
    "state": MemberState.STABLE,
    "assigned": {},
    "revoking": {},
}


def _read_epochs(topics: list[TopicPartitions], member_epoch: int) -> EpochsByPartition:
    """Return partitions with their epochs: by default, as in old records, the member's."""
    found: dict[TopicId, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        found[TopicId(bytes(topic.topic_id))] = dict(zip(topic.partitions, epochs, strict=True))
    return found


def _change_pattern(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.patterns.pop(key.regular_expression, None)
    else:
        group.patterns[key.regular_expression] = ResolvedPattern(
            frozenset(value.topics), value.version, value.timestamp
        )
    group.forget_derived()


def _change_nothing(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Pass over what former versions wrote: the hash in the group's record took its place."""


_CHANGES: Final[Mapping[type[Message], Callable[[ConsumerGroup, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: _change_group,
    ConsumerGroupMemberMetadataKey: _change_member,
    ConsumerGroupTargetAssignmentMetadataKey: _change_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _change_target,
    ConsumerGroupCurrentMemberAssignmentKey: _change_current,
    ConsumerGroupRegularExpressionKey: _change_pattern,
    ConsumerGroupPartitionMetadataKey: _change_nothing,
}
RECORD_KEYS: Final = tuple(_CHANGES)


def change(group: ConsumerGroup, record: CoordinatorRecord) -> None:
    """Apply a record to a group that it does not delete."""
    _CHANGES[type(record.key)](group, record.key, record.value)


def replay_record(state: GroupsState, record: CoordinatorRecord) -> None:
    """Apply a record of a consumer group to the state.

    A group begins with its first record, whichever a compacted log has first, and ends with the
    tombstone of its group record. Tombstones of what is not there change nothing.
    """
    key: Any = record.key
    group_id = GroupId(key.group_id)
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if record.value is None:
            return
        group = ConsumerGroup(group_id)
        state.groups[group_id] = group
    if isinstance(key, ConsumerGroupMetadataKey) and record.value is None:
        del state.groups[group_id]
        state.assigning.pop(group_id, None)
    else:
        change(group, record)
