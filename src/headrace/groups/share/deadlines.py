"""Deadlines of share groups: session timeouts, and states that were not initialized in time."""

from typing import Final

from headrace.groups.configs import group_config
from headrace.groups.state import DeadlineKey, GroupsState
from headrace.ids import TopicId, topic_id_text

SESSION: Final = "share-session"
"""With group and member."""
STATES: Final = "share-states"
"""With group and topic: states that were to begin have not been heard of, and are tried again."""
HELD: Final = "share-held"
"""With a group: members that wait for their first partitions are to be answered."""
TOPIC_DELETION: Final = "share-topic-deletion"
"""With a topic that was deleted: more groups have to forget it."""


def keep_session(state: GroupsState, group_id: str, member_id: str, now_ms: int) -> None:
    """Restart a member's session."""
    session_ms = group_config(state, group_id, "share.session.timeout.ms")
    state.deadlines.set((SESSION, group_id, member_id), now_ms + session_ms)


def states_key(group_id: str, topic_id: TopicId) -> DeadlineKey:
    return STATES, group_id, topic_id_text(topic_id)


def held_key(group_id: str) -> DeadlineKey:
    return HELD, group_id


def answer_held_soon(state: GroupsState, group_id: str, now_ms: int) -> None:
    """Answer the held heartbeats of a group's members soon: what they wait for is there."""
    if group_id in state.held_heartbeats:
        state.deadlines.set(held_key(group_id), now_ms)


def forget_session(state: GroupsState, group_id: str, member_id: str) -> None:
    state.deadlines.drop((SESSION, group_id, member_id))
