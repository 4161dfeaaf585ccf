"""How members of streams groups leave: by request, session or rebalance timeout (KIP-1071)."""

from headrace.coordinator.machine import NOTHING, Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.heartbeats import LEAVING_EPOCH
from headrace.groups.state import DeadlineKey, GroupId, GroupsState, MemberId
from headrace.groups.streams.deadlines import forget_member
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.members import MemberState, StreamsMember
from headrace.groups.streams.records import group_record, member_tombstones
from headrace.groups.streams.requests import find_member, find_streams_group
from headrace.groups.streams.responses import HeartbeatAnswer
from headrace.groups.streams.target import initial_delay_key
from headrace.wire.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from headrace.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse


def leave(
    state: GroupsState, request: StreamsGroupHeartbeatRequest, reply: Reply[HeartbeatAnswer]
) -> Outcome:
    """Remove a member at its request; its response has the epoch of a leaving member."""
    group = find_streams_group(state, request.group_id)
    member = find_member(group, request.member_id)
    response = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVING_EPOCH)
    answer = HeartbeatAnswer(response)
    return Outcome(remove_member(state, group, member), (told(reply, answer),))


def remove_member(
    state: GroupsState, group: StreamsGroup, member: StreamsMember
) -> tuple[CoordinatorRecord, ...]:
    """Return the records that remove a member that left or timed out."""
    group_id = group.group_id
    forget_member(state, group_id, member.member_id)
    if len(group.members) == 1:
        group.shutdown_by = None
        state.deadlines.drop(initial_delay_key(group_id))
    basis = (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
    return (
        *member_tombstones(group_id, member.member_id),
        group_record(group_id, group.epoch + 1, *basis),
    )


def on_session_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member that was not heard of."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    if not isinstance(group, StreamsGroup) or MemberId(member_id) not in group.members:
        return NOTHING
    return Outcome(remove_member(state, group, group.members[MemberId(member_id)]))


def on_rebalance_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member that does not give up what it should."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    member = group.members.get(MemberId(member_id)) if isinstance(group, StreamsGroup) else None
    if member is None or member.state is not MemberState.UNREVOKED_TASKS:
        return NOTHING
    assert isinstance(group, StreamsGroup)
    return Outcome(remove_member(state, group, member))
