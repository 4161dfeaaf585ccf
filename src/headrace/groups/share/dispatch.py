"""Share groups' part of the machine: which function handles which record and which deadline."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, Outcome
from headrace.groups.share.deadlines import HELD, SESSION, STATES, TOPIC_DELETION, keep_session
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.holding import answer_held, waiting
from headrace.groups.share.leave import on_session_deadline
from headrace.groups.share.records import REPLAY
from headrace.groups.share.states import on_topic_deletion
from headrace.groups.state import DeadlineKey, Group, GroupsState

__all__ = ["ON_DEADLINE", "REPLAY", "on_loaded", "waiting"]


def on_loaded(state: GroupsState, groups: Iterable[Group], now_ms: int) -> Outcome:
    """Restart every session of groups: members could not be heard of while nobody led."""
    for group in groups:
        if isinstance(group, ShareGroup):
            for member_id in group.members:
                keep_session(state, group.group_id, member_id, now_ms)
    return NOTHING


def _on_states_deadline(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Leave states that are not initialized to the next heartbeat."""
    return NOTHING


ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    SESSION: on_session_deadline,
    STATES: _on_states_deadline,
    HELD: answer_held,
    TOPIC_DELETION: on_topic_deletion,
}
