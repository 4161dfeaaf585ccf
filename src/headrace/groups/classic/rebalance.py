"""The rebalance of a classic group, from its cause to the new generation.

    Empty ----- first member -----> PreparingRebalance ----- all joined, or time is up ----.
                                      ^            ^                                       v
      Stable ------ members change ---'            '--- members change --- CompletingRebalance
        ^                                                                                  |
        '---------------------------- the leader's assignment is written -------------------'

If no member is left, preparing ends with an empty group. A group that was empty first waits for
`group.initial.rebalance.delay.ms`, longer while members join, so that a service that starts does
not rebalance once per process.
"""

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome, Told
from headrace.errors import ErrorCode
from headrace.groups.classic.deadlines import (
    drop_deadlines,
    join_key,
    keep_session,
    session_key,
    sync_key,
)
from headrace.groups.classic.draft import Draft
from headrace.groups.classic.group import ClassicGroup, ClassicState, InitialWait
from headrace.groups.classic.members import ClassicMember
from headrace.groups.classic.records import group_record
from headrace.groups.classic.responses import join_refused, joined, rebalancing, to_join_again
from headrace.groups.state import DeadlineKey, GroupId, GroupsState, MemberId

# From its cause


def rebalance(draft: Draft) -> None:
    """Start a rebalance, or complete the current one if all members have joined."""
    if draft.group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_all_came(draft)
    else:
        prepare_rebalance(draft)


def prepare_rebalance(draft: Draft) -> None:
    """Start a rebalance: members that wait for an assignment are told to rejoin."""
    state, group, now_ms = draft.state, draft.group, draft.now_ms
    if group.state is ClassicState.COMPLETING_REBALANCE:
        _cancel_syncs(draft)
    state.deadlines.drop(sync_key(group))
    group.pending_syncs.clear()
    is_initial = group.state is ClassicState.EMPTY
    group.move_to(ClassicState.PREPARING_REBALANCE, now_ms)
    if is_initial:
        delay_ms = max(state.settings[config.GROUP_INITIAL_REBALANCE_DELAY_MS], 0)
        _wait_for_more(draft, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.have_all_joined:
        complete_join(draft)
    else:
        state.deadlines.set(join_key(group), now_ms + group.rebalance_timeout_ms)


def _wait_for_more(draft: Draft, delay_ms: int, left_ms: int) -> None:
    group = draft.group
    group.initial_wait, group.has_grown = InitialWait(delay_ms, left_ms), False
    draft.state.deadlines.set(join_key(group), draft.now_ms + delay_ms)


def _cancel_syncs(draft: Draft) -> None:
    group = draft.group
    for member_id, reply in group.sync_replies.items():
        draft.answer(reply, rebalancing(group))
        keep_session(draft.state, group, group.members[member_id], draft.now_ms)
    group.sync_replies.clear()
    for member in group.members.values():
        member.assignment = b""


def remove_member(draft: Draft, member: ClassicMember) -> None:
    """Remove a member from its group, and refuse its waiting requests."""
    group, member_id = draft.group, member.member_id
    if (joining := group.join_replies.get(member_id)) is not None:
        draft.answer(joining, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    if (syncing := group.sync_replies.get(member_id)) is not None:
        draft.answer(syncing, group.unknown(member_id))
    forget_id(draft, member_id)


def forget_id(draft: Draft, member_id: MemberId) -> None:
    """Remove a member that nobody waits for, or a pending member id."""
    draft.state.deadlines.drop(session_key(draft.group, member_id))
    draft.group.remove(member_id)


# To the new generation


def complete_join_if_all_came(draft: Draft) -> None:
    """Start the next generation if all members joined; the initial delay always runs out."""
    group = draft.group
    is_preparing = group.state is ClassicState.PREPARING_REBALANCE
    if is_preparing and group.initial_wait is None and group.have_all_joined:
        complete_join(draft)


def complete_join(draft: Draft) -> None:
    """Start the next generation with the members that have joined.

    Who has not is left behind, but for static members, whose place is kept for as long as their
    session lasts. If only such are there, they are waited for once more.
    """
    state, group, now_ms = draft.state, draft.group, draft.now_ms
    state.deadlines.drop(join_key(group))
    group.initial_wait = None
    for member_id, member in tuple(group.members.items()):
        if member_id not in group.join_replies and not member.is_static:
            forget_id(draft, member_id)
    if not group.members:
        group.begin_generation(now_ms)
        draft.records.append(group_record(group))
    elif group.elect_joined_leader():
        group.begin_generation(now_ms)
        _tell_generation(draft)
    else:
        state.deadlines.set(join_key(group), now_ms + group.rebalance_timeout_ms)


def _tell_generation(draft: Draft) -> None:
    group = draft.group
    for member_id, member in group.members.items():
        member.is_new = False
        keep_session(draft.state, group, member, draft.now_ms)
        if (reply := group.join_replies.get(member_id)) is not None:
            draft.answer(reply, joined(group, member_id))
    group.join_replies.clear()
    group.pending_syncs.update(group.members)
    draft.state.deadlines.set(sync_key(group), draft.now_ms + group.rebalance_timeout_ms)


# When time is up


def on_session_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member whose session expired, or a pending member id that nobody joined with.

    Who waits for an answer cannot be heard of, and is not missed; but a new member must not wait
    forever, as it may have given up long ago.
    """
    group = _classic_group(state, key)
    if group is None:
        return NOTHING
    draft, member_id = Draft(state, group, now_ms), MemberId(key[2])
    if member_id in group.pending_joins:
        forget_id(draft, member_id)
        complete_join_if_all_came(draft)
        return draft.outcome()
    member = group.members.get(member_id)
    waits = member_id in group.join_replies or member_id in group.sync_replies
    if member is not None and (member.is_new or not waits):
        remove_member(draft, member)
        rebalance(draft)
    return draft.outcome()


def on_join_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Wait on if the group has just begun and still grows; else go on without who is missing."""
    group = _classic_group(state, key)
    if group is None or group.state is not ClassicState.PREPARING_REBALANCE:
        return NOTHING
    draft, wait = Draft(state, group, now_ms), group.initial_wait
    if wait is not None and group.has_grown and wait.left_ms:
        delay_ms = min(state.settings[config.GROUP_INITIAL_REBALANCE_DELAY_MS], wait.left_ms)
        _wait_for_more(draft, delay_ms, max(wait.left_ms - wait.delay_ms, 0))
    else:
        complete_join(draft)
    return draft.outcome()


def on_sync_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove members that joined the generation but never sent a SyncGroup."""
    group = _classic_group(state, key)
    if group is None or not group.pending_syncs:
        return NOTHING
    draft = Draft(state, group, now_ms)
    for member_id in tuple(group.pending_syncs):
        forget_id(draft, member_id)
    prepare_rebalance(draft)
    return draft.outcome()


def _classic_group(state: GroupsState, key: DeadlineKey) -> ClassicGroup | None:
    group = state.groups.get(GroupId(key[1]))
    return group if isinstance(group, ClassicGroup) else None


# When it becomes a group of another kind


def dissolve(state: GroupsState, group: ClassicGroup) -> tuple[Told, ...]:
    """Drop the deadlines and pending replies of a group that converts to another kind.

    Returns the answers of those who wait: they join again. Records are the caller's.
    """
    drop_deadlines(state, group)
    answers = to_join_again(group)
    group.join_replies.clear()
    group.sync_replies.clear()
    return answers
