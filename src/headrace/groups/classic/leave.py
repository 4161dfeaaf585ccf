"""LeaveGroup: members of classic groups that leave, and members of any kind that a tool removes."""

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.draft import Draft
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.rebalance import forget_id, rebalance, remove_member
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.leave import take_out
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse


def leave(
    state: GroupsState, request: LeaveGroupRequest, now_ms: int, reply: Reply[LeaveGroupResponse]
) -> Outcome:
    """Remove members from a group, with one rebalance for all of them.

    The answer is a LeaveGroupResponse with a row for each that was named.
    """
    group = state.groups.get(GroupId(request.group_id))
    if isinstance(group, ConsumerGroup):
        return take_out(state, group, request, now_ms, reply)
    if not isinstance(group, ClassicGroup):
        rows = [_row(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in request.members]
        return Outcome(replies=(told(reply, LeaveGroupResponse(members=rows)),))
    draft = Draft(state, group, now_ms)
    rows = [_row(each, _take_out(draft, each)) for each in request.members]
    draft.answer(reply, LeaveGroupResponse(members=rows))
    # An id that was given out and is given back causes a rebalance too: Kafka counts it as one
    # that left.
    has_left = any(each.error_code == ErrorCode.NONE for each in rows)
    if has_left and group.state is not ClassicState.EMPTY:
        rebalance(draft)
    return draft.outcome()


def _take_out(draft: Draft, named: MemberIdentity) -> ErrorCode:
    group, member_id, instance_id = draft.group, MemberId(named.member_id), named.group_instance_id
    if member_id in group.pending_joins:
        forget_id(draft, member_id)
        return ErrorCode.NONE
    if not member_id and instance_id is not None:
        # A tool knows the instance, not who is it at the moment.
        member_id = group.static_members.get(instance_id, member_id)
    if instance_id is None and member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        member = group.find_member(member_id, instance_id)
    except KafkaError as error:
        return error.code
    remove_member(draft, member)
    return ErrorCode.NONE


def _row(named: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=named.member_id, group_instance_id=named.group_instance_id, error_code=code
    )
