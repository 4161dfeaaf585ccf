"""Heartbeat of a classic group: keeps a member's session alive and reports rebalances."""

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.groups.classic.deadlines import keep_session
from headrace.groups.classic.group import ClassicState
from headrace.groups.classic.requests import find_member
from headrace.groups.classic.responses import rebalancing
from headrace.groups.consumer.classic_members import heartbeat_consumer_group
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.state import GroupId, GroupsState
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse


def heartbeat(
    state: GroupsState, request: HeartbeatRequest, now_ms: int, reply: Reply[HeartbeatResponse]
) -> Outcome:
    """Restart a member's session; REBALANCE_IN_PROGRESS tells it to rejoin."""
    consumers = state.groups.get(GroupId(request.group_id))
    if isinstance(consumers, ConsumerGroup):
        return heartbeat_consumer_group(state, consumers, request, now_ms, reply)
    group, member = find_member(state, request)
    keep_session(state, group, member, now_ms)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise rebalancing(group)
    return Outcome(replies=(told(reply, HeartbeatResponse()),))
