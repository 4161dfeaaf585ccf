"""The records of streams groups, as Kafka writes them: how they are built and applied."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.groups.streams.group import NOT_VALIDATED, StreamsGroup
from headrace.groups.streams.members import Endpoint, MemberState, StreamsMember
from headrace.groups.streams.tasks import TaskId, Tasks, by_subtopology, read_tasks, write_tasks
from headrace.wire.messages import streams_group_member_metadata_value as member_value
from headrace.wire.messages.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from headrace.wire.messages.streams_group_current_member_assignment_value import (
    TaskIds as CurrentTaskIds,
)
from headrace.wire.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from headrace.wire.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from headrace.wire.messages.streams_group_metadata_value import (
    LastAssignmentConfig,
    StreamsGroupMetadataValue,
)
from headrace.wire.messages.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
    TaskIds,
)
from headrace.wire.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from headrace.wire.messages.streams_group_topology_key import StreamsGroupTopologyKey
from headrace.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue
from headrace.wire.schema import Message

# Making them


def group_record(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: Iterable[tuple[str, str]],
) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupMetadataKey(group_id),
        StreamsGroupMetadataValue(
            epoch,
            metadata_hash,
            validated_topology_epoch,
            [LastAssignmentConfig(key, value) for key, value in configs],
        ),
    )


def topology_record(group_id: str, topology: StreamsGroupTopologyValue) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id), topology)


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    endpoint = member.endpoint
    return CoordinatorRecord(
        StreamsGroupMemberMetadataKey(group_id, member.member_id),
        member_value.StreamsGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=(
                None if endpoint is None else member_value.Endpoint(endpoint.host, endpoint.port)
            ),
            client_tags=[member_value.KeyValue(key, value) for key, value in member.client_tags],
        ),
    )


def target_record(group_id: str, member_id: str, target: Tasks) -> CoordinatorRecord:
    rows = (write_tasks(tasks, TaskIds) for tasks in target)
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id, member_id),
        StreamsGroupTargetAssignmentMemberValue(*rows),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id),
        StreamsGroupTargetAssignmentMetadataValue(epoch, now_ms),
    )


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    epochs = member.active_epochs
    (active, standby, warmup), revoking = member.assigned, member.revoking
    return CoordinatorRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member.epoch,
            member.previous_epoch,
            member.state,
            _with_epochs(active, epochs),
            write_tasks(standby, CurrentTaskIds),
            write_tasks(warmup, CurrentTaskIds),
            _with_epochs(revoking.active, epochs),
            write_tasks(revoking.standby, CurrentTaskIds),
            write_tasks(revoking.warmup, CurrentTaskIds),
        ),
    )


def _with_epochs(tasks: Iterable[TaskId], epochs: Mapping[TaskId, int]) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(name, partitions, [epochs[TaskId(name, each)] for each in partitions])
        for name, partitions in by_subtopology(tasks).items()
    ]


def member_tombstones(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """Return the records that remove a member."""
    return (
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id, member_id), None),
    )


def group_tombstones(group: StreamsGroup) -> tuple[CoordinatorRecord, ...]:
    """Return the records that delete a group without members."""
    return (
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group.group_id), None),
        CoordinatorRecord(StreamsGroupMetadataKey(group.group_id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group.group_id), None),
    )


# What they change


def _replay(state: GroupsState, record: CoordinatorRecord) -> None:
    key: Any = record.key
    group_id = GroupId(key.group_id)
    group = state.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        if record.value is None:
            return  # of a group that is gone, or of another kind by now
        group = state.groups[group_id] = StreamsGroup(group_id)
    if record.value is None and isinstance(key, StreamsGroupMetadataKey):
        del state.groups[group_id]
        state.assigning.pop(group_id, None)
        return
    _CHANGES[type(key)](group, key, record.value)


def _change_group(group: StreamsGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash
    group.validated_topology_epoch = value.validated_topology_epoch
    group.assignment_configs = tuple(
        (each.key, each.value) for each in value.last_assignment_configs or ()
    )


def _change_topology(group: StreamsGroup, key: Any, value: Any) -> None:
    group.topology = value
    group.configured = None
    if value is None:
        group.validated_topology_epoch = NOT_VALIDATED


def _change_member(group: StreamsGroup, key: Any, value: Any) -> None:
    member_id = MemberId(key.member_id)
    if value is None:
        group.remove_member(member_id)
        return
    endpoint = value.user_endpoint
    group.put_member(
        replace(
            group.members.get(member_id) or StreamsMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=endpoint and Endpoint(endpoint.host, endpoint.port),
            client_tags=tuple((each.key, each.value) for each in value.client_tags),
        )
    )


def _change_target_epoch(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp


def _change_target(group: StreamsGroup, key: Any, value: Any) -> None:
    member_id = MemberId(key.member_id)
    if value is None:
        group.targets.pop(member_id, None)
        return
    rows = (value.active_tasks, value.standby_tasks, value.warmup_tasks)
    group.targets[member_id] = Tasks(*map(read_tasks, rows))


def _change_current(group: StreamsGroup, key: Any, value: Any) -> None:
    member_id = MemberId(key.member_id)
    former = group.members.get(member_id)
    if value is None:
        if former is not None:
            value = StreamsGroupCurrentMemberAssignmentValue(state=MemberState.STABLE)
        else:
            return
    active, revoking = value.active_tasks, value.active_tasks_pending_revocation
    known = value.state in _STATES
    group.put_member(
        replace(
            former or StreamsMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=Tasks(*map(read_tasks, (active, value.standby_tasks, value.warmup_tasks))),
            revoking=Tasks(
                read_tasks(revoking),
                read_tasks(value.standby_tasks_pending_revocation),
                read_tasks(value.warmup_tasks_pending_revocation),
            ),
            active_epochs=_read_epochs((*active, *revoking), value.member_epoch),
        )
    )


def _read_epochs(rows: Iterable[CurrentTaskIds], member_epoch: int) -> dict[TaskId, int]:
    """Return the epochs of tasks; older brokers wrote none, then the member's counts."""
    found: dict[TaskId, int] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if not epochs or len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        for partition, epoch in zip(row.partitions, epochs, strict=True):
            found[TaskId(row.subtopology_id, partition)] = epoch
    return found


_STATES: Final = frozenset(MemberState)
_CHANGES: Final[Mapping[type[Message], Callable[[StreamsGroup, Any, Any], None]]] = {
    StreamsGroupMetadataKey: _change_group,
    StreamsGroupTopologyKey: _change_topology,
    StreamsGroupMemberMetadataKey: _change_member,
    StreamsGroupTargetAssignmentMetadataKey: _change_target_epoch,
    StreamsGroupTargetAssignmentMemberKey: _change_target,
    StreamsGroupCurrentMemberAssignmentKey: _change_current,
}
REPLAY: Final[Mapping[type[Message], Callable[[GroupsState, CoordinatorRecord], None]]] = (
    dict.fromkeys(_CHANGES, _replay)
)
