"""Heartbeat responses that are held until their member has its first partitions.

A partition is assigned once its state is initialized (`share.states`), which takes milliseconds. A
member that joins a new group would learn of that with its next heartbeat, seconds later. So the
response to a member without partitions waits until the states that it needs are initialized, or
have failed, and until the target with them is ready: at most
`headrace.group.first.assignment.wait.ms`.

Each group has one deadline for all its waiting members, and one target is computed for them.
Waiting members are not in the log: they get an error if this node stops coordinating the group.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from headrace import config
from headrace.coordinator.machine import NOTHING, OnError, Outcome, Reply, Told, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import KafkaError
from headrace.groups.share.deadlines import held_key
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.members import ShareMember
from headrace.groups.share.reconciliation import advance
from headrace.groups.share.records import current_record
from headrace.groups.share.requests import find_member, find_share_group
from headrace.groups.share.responses import assignment_rows, respond
from headrace.groups.share.states import beginning_topics
from headrace.groups.share.target import Target, next_epoch, update_target
from headrace.groups.state import DeadlineKey, GroupId, GroupsState, HeldHeartbeat, MemberId
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

ANSWERS_AT_ONCE: Final = 100
"""How many members are answered before others on the loop get a turn."""


def may_hold(
    state: GroupsState, group: ShareGroup, member: ShareMember, target: Target, *, is_begun: bool
) -> bool:
    """Whether a member has nothing, and is about to have something.

    `is_begun` is whether its heartbeat has states begun.
    """
    if member.assigned or not state.settings[config.GROUP_FIRST_ASSIGNMENT_WAIT_MS]:
        return False
    return (
        is_begun
        or _is_target_computed(state, group, target)
        or not beginning_topics(state, group).isdisjoint(member.topic_names)
    )


def hold(
    state: GroupsState,
    group_id: GroupId,
    member_id: MemberId,
    reply: Reply[ShareGroupHeartbeatResponse],
    now_ms: int,
) -> None:
    """Answer a heartbeat later: a note of the outcome that does not."""
    until_ms = now_ms + state.settings[config.GROUP_FIRST_ASSIGNMENT_WAIT_MS]
    waiting = state.held_heartbeats.setdefault(group_id, [])
    waiting.append(HeldHeartbeat(member_id, reply, until_ms))
    if len(waiting) == 1:
        state.deadlines.set(held_key(group_id), until_ms)


def answer_held(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Answer members of a group that wait, those that have partitions now or waited long enough.

    Not more than `ANSWERS_AT_ONCE`; the rest follows at once.
    """
    group_id = GroupId(key[1])
    waiting = state.held_heartbeats.get(group_id, [])
    if not waiting:
        return NOTHING
    try:
        group = find_share_group(state, group_id)
    except KafkaError as error:  # everybody left, and it was deleted
        answered, kept = waiting[:ANSWERS_AT_ONCE], waiting[ANSWERS_AT_ONCE:]
        if kept:
            state.deadlines.set(key, now_ms)
        replies = tuple(told(each.reply, error) for each in answered)
        return Outcome(replies=replies, notes=(partial(_keep, state, group_id, kept),))
    epoch, begun = next_epoch(state, group, group.members, is_due=False)
    target = update_target(state, group, epoch, group.members, now_ms)
    if len(target.records) > ANSWERS_AT_ONCE:  # work enough for one turn
        state.deadlines.set(key, now_ms)
        return Outcome((*begun, *target.records))
    answered, kept = _choose(state, group, target, now_ms)
    records: list[CoordinatorRecord] = [*begun, *target.records]
    answers: list[Told] = []
    for each in answered:
        try:
            member = find_member(group, each.member_id)
        except KafkaError as error:
            answers.append(told(each.reply, error))
            continue
        after = advance(member, target, state.image)
        if after != member:
            records.append(current_record(group_id, after))
        response = respond(state, group, after, epoch, now_ms)
        response.assignment = assignment_rows(after.assigned)
        answers.append(told(each.reply, response))
    if len(answered) == ANSWERS_AT_ONCE:
        state.deadlines.set(key, now_ms)
    elif kept:
        state.deadlines.set(key, kept[0].until_ms)
    keep = partial(_keep, state, group_id, kept)
    return Outcome(tuple(records), (*answers, *target.replies), notes=(keep, *target.notes))


def waiting(state: GroupsState) -> Iterable[OnError]:
    """Return the replies of all members that wait."""
    return [each.reply for held in state.held_heartbeats.values() for each in held]


def _choose(
    state: GroupsState, group: ShareGroup, target: Target, now_ms: int
) -> tuple[list[HeldHeartbeat], list[HeldHeartbeat]]:
    """Return who is answered now, and who waits on."""
    is_computed, beginning = (
        _is_target_computed(state, group, target),
        beginning_topics(state, group),
    )
    held = state.held_heartbeats[group.group_id]
    answered, kept = list[HeldHeartbeat](), list[HeldHeartbeat]()
    for position, each in enumerate(held):
        if len(answered) == ANSWERS_AT_ONCE:
            return answered, kept + held[position:]
        member = group.members.get(each.member_id)
        waits = (
            member is not None
            and now_ms < each.until_ms
            and not target.assignments.get(each.member_id)
            and (is_computed or not beginning.isdisjoint(member.topic_names))
        )
        (kept if waits else answered).append(each)
    return answered, kept


def _keep(state: GroupsState, group_id: GroupId, kept: list[HeldHeartbeat]) -> None:
    if kept:
        state.held_heartbeats[group_id] = kept
    else:
        del state.held_heartbeats[group_id]


def _is_target_computed(state: GroupsState, group: ShareGroup, target: Target) -> bool:
    """Whether a target is being computed elsewhere."""
    return bool(target.replies) or group.group_id in state.assigning
