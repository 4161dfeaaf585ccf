"""Deadlines of classic groups, and how they are extended.

A member's session and a pending member id share one deadline: an id is either of the two.
"""

from typing import Final

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.state import DeadlineKey, GroupsState, MemberId

SESSION: Final = "classic-session"
"""With group and member: it has not been heard of for too long."""
JOIN: Final = "classic-join"
"""With group: who has not joined by now is left behind."""
SYNC: Final = "classic-sync"
"""With group: who has not asked for an assignment by now is left behind."""
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long somebody may wait for its first generation. It sends no heartbeats before, and who gave
up and tried again would be a member twice."""


def session_key(group: ClassicGroup, member_id: str) -> DeadlineKey:
    return SESSION, group.group_id, member_id


def join_key(group: ClassicGroup) -> DeadlineKey:
    return JOIN, group.group_id


def sync_key(group: ClassicGroup) -> DeadlineKey:
    return SYNC, group.group_id


def keep_session(
    state: GroupsState, group: ClassicGroup, member: ClassicMember, now_ms: int
) -> None:
    """Restart a member's session."""
    key = session_key(group, member.member_id)
    state.deadlines.set(key, now_ms + member.session_timeout_ms)


def end_sync_wait(state: GroupsState, group: ClassicGroup, member_id: MemberId) -> None:
    """Stop waiting for a member's SyncGroup."""
    group.pending_syncs.discard(member_id)
    if not group.pending_syncs:
        state.deadlines.drop(sync_key(group))


def drop_deadlines(state: GroupsState, group: ClassicGroup) -> None:
    """Drop all deadlines of a group that is gone."""
    for member_id in (*group.members, *group.pending_joins):
        state.deadlines.drop(session_key(group, member_id))
    state.deadlines.drop(join_key(group))
    state.deadlines.drop(sync_key(group))
