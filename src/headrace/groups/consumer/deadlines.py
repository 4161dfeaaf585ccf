"""Deadlines of members of consumer groups, and how they are extended.

A member that misses one is removed from the group. A member of the consumer protocol has to send
heartbeats, and to revoke in time the partitions that others wait for. A member of the classic
protocol has to send heartbeats, to join in time when it is told to, and then to sync.
"""

from typing import Final

from headrace.groups.configs import group_config
from headrace.groups.consumer.members import ConsumerMember, MemberState
from headrace.groups.heartbeats import JOINING_EPOCH
from headrace.groups.state import GroupsState

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"
"""The deadlines of a member, in the words of their keys."""


def keep_session(state: GroupsState, group_id: str, member: ConsumerMember, now_ms: int) -> None:
    """Restart a member's session. A member of the classic protocol sets its own timeout."""
    classic = member.classic_metadata
    session_ms = (
        group_config(state, group_id, "consumer.session.timeout.ms")
        if classic is None
        else classic.session_timeout_ms
    )
    state.deadlines.set((SESSION, group_id, member.member_id), now_ms + session_ms)


def watch_revocation(
    state: GroupsState, group_id: str, member: ConsumerMember, now_ms: int
) -> None:
    """Set the deadline by which a member of the consumer protocol has to revoke."""
    key = (REBALANCE, group_id, member.member_id)
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
    if is_revoking and member.epoch > JOINING_EPOCH and not member.is_classic:
        state.deadlines.set(key, now_ms + member.rebalance_timeout_ms)
    else:
        state.deadlines.drop(key)


def await_join(state: GroupsState, group_id: str, member: ConsumerMember, now_ms: int) -> None:
    """Set the deadline for a classic member's join; it counts from the first notice."""
    key = (JOIN, group_id, member.member_id)
    if key not in state.deadlines:
        state.deadlines.set(key, now_ms + member.rebalance_timeout_ms)


def await_sync(state: GroupsState, group_id: str, member: ConsumerMember, now_ms: int) -> None:
    """Set the deadline for the SyncGroup of a classic member that has joined."""
    state.deadlines.drop((JOIN, group_id, member.member_id))
    key = (SYNC, group_id, member.member_id)
    state.deadlines.set(key, now_ms + member.rebalance_timeout_ms)


def end_sync_wait(state: GroupsState, group_id: str, member_id: str) -> None:
    state.deadlines.drop((SYNC, group_id, member_id))


def end_classic_waits(state: GroupsState, group_id: str, member_id: str) -> None:
    """Expect nothing any more that only members of the classic protocol do."""
    state.deadlines.drop((JOIN, group_id, member_id))
    state.deadlines.drop((SYNC, group_id, member_id))


def forget_deadlines(state: GroupsState, group_id: str, member_id: str) -> None:
    for word in (SESSION, REBALANCE, JOIN, SYNC):
        state.deadlines.drop((word, group_id, member_id))
