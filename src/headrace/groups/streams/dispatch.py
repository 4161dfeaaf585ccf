"""Streams groups' part of the machine: which function handles which record and which deadline."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, OnError, Outcome
from headrace.groups.state import DeadlineKey, Group, GroupId, GroupsState
from headrace.groups.streams.deadlines import REBALANCE, SESSION, keep_session, watch_revocation
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.leave import on_rebalance_deadline, on_session_deadline
from headrace.groups.streams.records import REPLAY
from headrace.groups.streams.target import INITIAL_DELAY, compute_target, configure_group

__all__ = ["ON_DEADLINE", "REPLAY", "on_loaded", "waiting"]


def waiting(state: GroupsState) -> Iterable[OnError]:
    """Return nobody: heartbeats are answered at once."""
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
    if group.group_id in state.assigning:
        return NOTHING
    target = compute_target(state, group, group.epoch, group.members, now_ms)
    return Outcome(target.records, target.replies, notes=target.notes)


ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    SESSION: on_session_deadline,
    REBALANCE: on_rebalance_deadline,
    INITIAL_DELAY: _on_delay_over,
}
