"""SyncGroup of a classic group: members get their assignments once the leader's are written."""

from typing import Final

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.deadlines import end_sync_wait, keep_session
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.records import group_record
from headrace.groups.classic.requests import check_protocol, find_member
from headrace.groups.classic.responses import rebalancing, superseded, synced
from headrace.groups.consumer.classic_members import sync_consumer_group
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse

STRANGERS_MAX: Final = 1000
"""How many assignments more than members a leader may send: those of strangers are passed over, as
in Kafka, which has no such limit."""


def sync(
    state: GroupsState, request: SyncGroupRequest, now_ms: int, reply: Reply[SyncGroupResponse]
) -> Outcome:
    """Reply a SyncGroupResponse with a member's assignment once the leader's is written."""
    consumers = state.groups.get(GroupId(request.group_id))
    if isinstance(consumers, ConsumerGroup):
        return sync_consumer_group(state, consumers, request, now_ms, reply)
    group, member = find_member(state, request)
    check_protocol(group, request)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise rebalancing(group)
    if group.state is ClassicState.STABLE:
        end_sync_wait(state, group, member.member_id)
        return Outcome(replies=(told(reply, synced(group, member.assignment)),))
    if group.leader == member.member_id:
        return _assign(state, group, request, now_ms, reply)
    end_sync_wait(state, group, member.member_id)
    former = group.sync_replies.get(member.member_id)
    group.sync_replies[member.member_id] = reply
    if former is None:
        return Outcome()
    return Outcome(replies=(told(former, superseded(group, member)),))


def _assign(
    state: GroupsState,
    group: ClassicGroup,
    request: SyncGroupRequest,
    now_ms: int,
    reply: Reply[SyncGroupResponse],
) -> Outcome:
    """Write what the leader gives to each, and answer all who wait for it.

    The group changes when the record is replayed: if it cannot be written, it was as it is.
    """
    count, count_max = len(request.assignments), len(group.members) + STRANGERS_MAX
    if count > count_max:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{count} assignments, where group {group.group_id!r} has {len(group.members)} members",
        )
    given = {MemberId(each.member_id): bytes(each.assignment) for each in request.assignments}
    waiting = {**group.sync_replies, MemberId(request.member_id): reply}
    for member_id in waiting:
        # Sessions were not looked at while they waited.
        keep_session(state, group, group.members[member_id], now_ms)
    return Outcome(
        (group_record(group, given),),
        tuple(
            told(each, synced(group, given.get(member_id, b"")))
            for member_id, each in waiting.items()
        ),
    )
