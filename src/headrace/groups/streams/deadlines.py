"""Deadlines of members of a streams group, and how they are extended."""

from typing import Final

from headrace.groups.configs import group_config
from headrace.groups.state import GroupsState
from headrace.groups.streams.members import MemberState, StreamsMember

SESSION: Final = "streams-session"
"""With group and member: it has not been heard of for too long."""
REBALANCE: Final = "streams-rebalance"
"""With group and member: it should have given up tasks by now."""


def keep_session(state: GroupsState, group_id: str, member_id: str, now_ms: int) -> None:
    """Restart a member's session."""
    session_ms = group_config(state, group_id, "streams.session.timeout.ms")
    state.deadlines.set((SESSION, group_id, member_id), now_ms + session_ms)


def watch_revocation(state: GroupsState, group_id: str, member: StreamsMember, now_ms: int) -> None:
    """Set the deadline for a member that has to revoke tasks."""
    key = (REBALANCE, group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_TASKS:
        state.deadlines.set(key, now_ms + member.rebalance_timeout_ms)
    else:
        state.deadlines.drop(key)


def forget_member(state: GroupsState, group_id: str, member_id: str) -> None:
    """Drop the deadlines of a member that is gone."""
    state.deadlines.drop((SESSION, group_id, member_id))
    state.deadlines.drop((REBALANCE, group_id, member_id))
