"""How members of consumer groups go: they leave, fall silent, or hold up the others for too long.

What a member had is free from then on, and the group begins another epoch without it. Static
members may also go for a while: then nothing changes unless their session ends.
"""

from dataclasses import replace
from typing import Final

from headrace.coordinator.machine import NOTHING, Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.consumer_draft import Draft
from headrace.groups.consumer_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from headrace.groups.consumer_members import find_consumer_group, find_member, find_static_member
from headrace.groups.consumer_records import current_record, member_tombstones, pattern_tombstone
from headrace.groups.consumer_targets import bump_epoch
from headrace.groups.state import DeadlineKey, GroupId, GroupsState, MemberId
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
"""The deadlines of a member, in the words of their keys."""


def leave(state: GroupsState, request: ConsumerGroupHeartbeatRequest, reply: Reply) -> Outcome:
    group = find_consumer_group(state, request.group_id)
    member = (
        find_member(group, request.member_id)
        if request.instance_id is None
        else find_static_member(group, request.member_id, request.instance_id)
    )
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    if request.member_epoch == LEAVING_EPOCH:
        return Outcome(_fence(state, group, member), ((reply, response),))
    # It may come back: what it has stays its own until its session ends.
    away = replace(
        member,
        epoch=STATIC_LEAVING_EPOCH,
        assigned={
            topic: dict.fromkeys(indexes, JOINING_EPOCH)
            for topic, indexes in member.assigned.items()
        },
        revoking=NO_PARTITIONS,
    )
    state.deadlines.drop((REBALANCE, group.group_id, member.member_id))
    return Outcome((current_record(group.group_id, away),), ((reply, response),))


def _fence(
    state: GroupsState, group: ConsumerGroup, member: ConsumerMember
) -> tuple[CoordinatorRecord, ...]:
    """Give the records that take a member away and begin another epoch without it."""
    draft, group_id = Draft(group), group.group_id
    draft.write(*member_tombstones(group_id, member.member_id))
    pattern = member.topic_pattern
    if pattern and pattern not in draft.group.subscribed_patterns:
        draft.write(pattern_tombstone(group_id, pattern))
    bump_epoch(state, draft, is_due=True)
    forget_deadlines(state, group_id, member.member_id)
    return tuple(draft.records)


# Time


def on_session_end(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Take away a member that was silent for too long."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    member = group.members.get(MemberId(member_id)) if isinstance(group, ConsumerGroup) else None
    if not isinstance(group, ConsumerGroup) or member is None:
        return NOTHING
    return Outcome(_fence(state, group, member))


def on_rebalance_end(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Take away a member that did not give up in time what others wait for."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    member = group.members.get(MemberId(member_id)) if isinstance(group, ConsumerGroup) else None
    if not isinstance(group, ConsumerGroup) or member is None:
        return NOTHING
    if member.state is not MemberState.UNREVOKED_PARTITIONS:
        return NOTHING
    return Outcome(_fence(state, group, member))


def watch_revocation(
    state: GroupsState, group_id: str, member: ConsumerMember, now_ms: int
) -> None:
    key = (REBALANCE, group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch > JOINING_EPOCH:
        state.deadlines.set(key, now_ms + member.rebalance_timeout_ms)
    else:
        state.deadlines.drop(key)


def forget_deadlines(state: GroupsState, group_id: str, member_id: str) -> None:
    state.deadlines.drop((SESSION, group_id, member_id))
    state.deadlines.drop((REBALANCE, group_id, member_id))
