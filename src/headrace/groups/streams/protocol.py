"""Streams groups: the machine's part. See `streams.heartbeat` for what members do."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, Outcome, Reply
from headrace.groups.state import DeadlineKey, Group, GroupId, GroupsState, MemberId
from headrace.groups.streams.deadlines import REBALANCE, SESSION, keep_session, watch_revocation
from headrace.groups.streams.group import MemberState, StreamsGroup
from headrace.groups.streams.heartbeat import remove_member
from headrace.groups.streams.records import REPLAY
from headrace.groups.streams.targets import INITIAL_DELAY, compute_target, configure_group

__all__ = ["ON_DEADLINE", "REPLAY", "on_loaded", "waiting"]


def waiting(state: GroupsState) -> Iterable[Reply]:
    """Give nobody: heartbeats are answered at once."""
    return ()


def on_loaded(state: GroupsState, groups: Iterable[Group], now_ms: int) -> Outcome:
    """Restart every session of groups: members could not be heard of while nobody led."""
    for group in groups:
        if not isinstance(group, StreamsGroup):
            continue
        for member in group.members.values():
            keep_session(state, group.group_id, member.member_id, now_ms)
            watch_revocation(state, group.group_id, member, now_ms)
    return NOTHING


def _on_session_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member that was not heard of."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    if not isinstance(group, StreamsGroup) or MemberId(member_id) not in group.members:
        return NOTHING
    return Outcome(remove_member(state, group, group.members[MemberId(member_id)]))


def _on_rebalance_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Remove a member that does not give up what it should."""
    _, group_id, member_id = key
    group = state.groups.get(GroupId(group_id))
    member = group.members.get(MemberId(member_id)) if isinstance(group, StreamsGroup) else None
    if member is None or member.state is not MemberState.UNREVOKED_TASKS:
        return NOTHING
    assert isinstance(group, StreamsGroup)
    return Outcome(remove_member(state, group, member))


def _on_delay_over(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Assign tasks to the members that a new group has by now.

    One whose topics are not ready goes on with the next heartbeat.
    """
    group = state.groups.get(GroupId(key[1]))
    if not isinstance(group, StreamsGroup) or group.topology is None or not group.is_ready:
        return NOTHING
    if not group.members or group.epoch <= group.assignment_epoch:
        return NOTHING
    configure_group(state, group, group.topology)
    if group.assigning_epoch is not None:
        return NOTHING
    target = compute_target(state, group, group.epoch, group.members, now_ms)
    return Outcome(target.records, target.replies, notes=target.notes)


ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    SESSION: _on_session_deadline,
    REBALANCE: _on_rebalance_deadline,
    INITIAL_DELAY: _on_delay_over,
}
