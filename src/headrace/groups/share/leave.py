"""How members of share groups leave: by request or session timeout (KIP-932)."""

from headrace.coordinator.machine import NOTHING, Outcome, Reply, Told, told
from headrace.groups.heartbeats import LEAVING_EPOCH
from headrace.groups.share.deadlines import forget_session
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.members import ShareMember
from headrace.groups.share.records import member_tombstones
from headrace.groups.share.requests import find_member, find_share_group
from headrace.groups.share.target import next_epoch
from headrace.groups.state import DeadlineKey, GroupId, GroupsState, MemberId
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse


def leave(
    state: GroupsState,
    request: ShareGroupHeartbeatRequest,
    reply: Reply[ShareGroupHeartbeatResponse],
) -> Outcome:
    """Remove a member at its request; its response has the epoch of a leaving member."""
    group = find_share_group(state, request.group_id)
    member = find_member(group, request.member_id)
    response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVING_EPOCH)
    return remove_member(state, group, member, told(reply, response))


def remove_member(
    state: GroupsState, group: ShareGroup, member: ShareMember, *answers: Told
) -> Outcome:
    """Remove a member that left or whose session expired. The group gets a new epoch.

    States stay, also if nobody is left. What it holds stays its own until its share session ends,
    which is not this coordinator's matter: it may say what became of it after it has left.
    """
    forget_session(state, group.group_id, member.member_id)
    rest = {each: kept for each, kept in group.members.items() if each != member.member_id}
    _, begun = next_epoch(state, group, rest, is_due=True)
    records = (*member_tombstones(group.group_id, member.member_id), *begun)
    return Outcome(records, answers)


def on_session_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member that was not heard of."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    if not isinstance(group, ShareGroup) or MemberId(member_id) not in group.members:
        return NOTHING
    return remove_member(state, group, group.members[MemberId(member_id)])
