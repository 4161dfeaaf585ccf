"""Classic groups in `__consumer_offsets`: one record when a group is stable, empty, or gone."""

from collections.abc import Mapping
from typing import Final

from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.classic.deadlines import drop_deadlines, end_sync_wait
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.members import read_member
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue

VALUE_VERSION: Final = 3
"""The one that Kafka 4.3.1 writes; it reads 4 as well."""
_NO_ASSIGNMENTS: Final[Mapping[MemberId, bytes]] = {}


def group_record(
    group: ClassicGroup, assignments: Mapping[MemberId, bytes] = _NO_ASSIGNMENTS
) -> CoordinatorRecord:
    """Return the record of a group; a member without an assignment gets an empty one."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            each.row(group.protocol_name, assignments.get(each.member_id, b""))
            for each in group.members.values()
        ],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a new group: its first member is not in it yet."""
    value = GroupMetadataValue(
        protocol=None, leader=None, current_state_timestamp=group.state_since_ms
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def replay_group(state: GroupsState, record: CoordinatorRecord) -> None:
    """Set a group to the contents of a record.

    A record that was just written is about the group as it is: it brings assignments, and those
    who wait for them are answered. Any other is read at a start, and all there is of the group.
    """
    key, value = record.key, record.value
    assert isinstance(key, GroupMetadataKey)
    group_id = GroupId(key.group)
    group = state.groups.get(group_id)
    if value is None:
        if isinstance(group, ClassicGroup):
            drop_deadlines(state, group)
            del state.groups[group_id]
        return
    assert isinstance(value, GroupMetadataValue)
    if isinstance(group, ClassicGroup) and group.generation == value.generation:
        if not value.members:
            return  # those who join a group that begins, or began to be empty, are not in it
        if group.members.keys() == {each.member_id for each in value.members}:
            # A group that was a consumer group is in its first rebalance already.
            if group.state is not ClassicState.PREPARING_REBALANCE:
                _assign(state, group, value)
            return
    if isinstance(group, ClassicGroup):
        drop_deadlines(state, group)
    state.groups[group_id] = read_group(group_id, value)


def read_group(group_id: GroupId, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group that a record holds."""
    group = ClassicGroup(
        group_id,
        state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
        state_since_ms=value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol_name=value.protocol,
        leader=None if value.leader is None else MemberId(value.leader),
    )
    for row in value.members:
        group.add(read_member(row, value.protocol), value.protocol_type)
    return group


def _assign(state: GroupsState, group: ClassicGroup, value: GroupMetadataValue) -> None:
    for row in value.members:
        group.members[MemberId(row.member_id)].assignment = bytes(row.assignment)
    group.move_to(ClassicState.STABLE, value.current_state_timestamp)
    group.sync_replies.clear()
    if group.leader is not None:
        end_sync_wait(state, group, group.leader)
