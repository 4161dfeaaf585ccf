"""How members of consumer groups leave: by request, session timeout or rebalance timeout.

A member's partitions are free from then on, and the group starts a new epoch without it; if only
members of the classic protocol are left, it becomes a classic group (`migration`). Static members
(KIP-345) may also leave temporarily: then nothing changes unless their session expires.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from headrace.coordinator.machine import NOTHING, Outcome, Reply, Told, told
from headrace.errors import KafkaError
from headrace.groups.classic.rebalance import prepare_rebalance
from headrace.groups.consumer.deadlines import REBALANCE, forget_deadlines
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import NO_PARTITIONS, ConsumerMember, MemberState
from headrace.groups.consumer.records import current_record, member_tombstones, pattern_tombstone
from headrace.groups.consumer.requests import find_consumer_group, find_member, find_static_member
from headrace.groups.consumer.target import bump_epoch
from headrace.groups.heartbeats import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from headrace.groups.migration import can_downgrade, downgrade
from headrace.groups.state import DeadlineKey, GroupId, GroupsState, MemberId
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse


def leave(
    state: GroupsState,
    request: ConsumerGroupHeartbeatRequest,
    now_ms: int,
    reply: Reply[ConsumerGroupHeartbeatResponse],
) -> Outcome:
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
        return _fence(state, group, (member,), now_ms, (told(reply, response),))
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
    return Outcome((current_record(group.group_id, away),), (told(reply, response),))


def take_out(
    state: GroupsState,
    group: ConsumerGroup,
    request: LeaveGroupRequest,
    now_ms: int,
    reply: Reply[LeaveGroupResponse],
) -> Outcome:
    """Remove members that LeaveGroup names, with one new epoch for all of them.

    Those of the classic protocol leave like this, and a tool may name any.

    The answer is a LeaveGroupResponse with a row for each that was named.
    """
    rows, leaving = [], dict[MemberId, ConsumerMember]()
    for named in request.members:
        row = MemberResponse(member_id=named.member_id, group_instance_id=named.group_instance_id)
        try:
            member = _named(group, named)
            leaving[member.member_id] = member
        except KafkaError as error:
            row.error_code = error.code
        rows.append(row)
    answer = told(reply, LeaveGroupResponse(members=rows))
    if not leaving:
        return Outcome(replies=(answer,))
    return _fence(state, group, leaving.values(), now_ms, (answer,))


def _named(group: ConsumerGroup, named: MemberIdentity) -> ConsumerMember:
    instance_id = named.group_instance_id
    if instance_id is None:
        return find_member(group, named.member_id)
    # A tool knows the instance, not who is it at the moment.
    owner = group.static_members.get(instance_id, MemberId(""))
    return find_static_member(group, named.member_id or owner, instance_id)


def _fence(
    state: GroupsState,
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    now_ms: int,
    answers: tuple[Told, ...] = (),
) -> Outcome:
    """Remove members and start a new epoch without them, or a classic group."""
    draft = Draft(group)
    for member in members:
        _remove(state, draft, member)
    if can_downgrade(draft.group, state.settings):
        classic = downgrade(state, group, draft.group, now_ms)
        prepare_rebalance(classic)
        outcome = classic.outcome()
        return outcome._replace(replies=(*answers, *outcome.replies))
    bump_epoch(state, draft, is_due=True)
    return Outcome(tuple(draft.records), answers, notes=draft.notes)


def _remove(state: GroupsState, draft: Draft, member: ConsumerMember) -> None:
    group_id = draft.group.group_id
    draft.write(*member_tombstones(group_id, member.member_id))
    pattern = member.topic_pattern
    if pattern and pattern not in draft.group.subscribed_patterns:
        draft.write(pattern_tombstone(group_id, pattern))
    draft.notes += (partial(forget_deadlines, state, group_id, member.member_id),)


# Time


def on_session_end(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member whose session expired."""
    found = _find(state, key)
    return NOTHING if found is None else _fence(state, found[0], (found[1],), now_ms)


def on_rebalance_end(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member that did not revoke partitions within its rebalance timeout."""
    found = _find(state, key)
    if found is None or found[1].state is not MemberState.UNREVOKED_PARTITIONS:
        return NOTHING
    return _fence(state, found[0], (found[1],), now_ms)


def on_classic_wait_end(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a classic member that did not join or sync in time."""
    found = _find(state, key)
    if found is None or not found[1].is_classic:
        return NOTHING
    return _fence(state, found[0], (found[1],), now_ms)


def _find(state: GroupsState, key: DeadlineKey) -> tuple[ConsumerGroup, ConsumerMember] | None:
    group = state.groups.get(GroupId(key[1]))
    if not isinstance(group, ConsumerGroup):
        return None
    member = group.members.get(MemberId(key[2]))
    return None if member is None else (group, member)
