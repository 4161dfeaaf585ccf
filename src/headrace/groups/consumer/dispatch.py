"""Consumer groups' part of the machine: which function handles which record and which deadline."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, OnError, Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.consumer.deadlines import (
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    keep_session,
    watch_revocation,
)
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.leave import on_classic_wait_end, on_rebalance_end, on_session_end
from headrace.groups.consumer.records import RECORD_KEYS, replay_record
from headrace.groups.state import DeadlineKey, Group, GroupsState
from headrace.wire.schema import Message


def on_loaded(state: GroupsState, groups: Iterable[Group], now_ms: int) -> Outcome:
    """Restart every session of groups: nobody knows when a member was last heard of."""
    for group in groups:
        if not isinstance(group, ConsumerGroup):
            continue
        for member in group.members.values():
            keep_session(state, group.group_id, member, now_ms)
            watch_revocation(state, group.group_id, member, now_ms)
    return NOTHING


def waiting(state: GroupsState) -> Iterable[OnError]:
    """Return nobody: heartbeats are answered at once."""
    return ()


REPLAY: Final[Mapping[type[Message], Callable[[GroupsState, CoordinatorRecord], None]]] = (
    dict.fromkeys(RECORD_KEYS, replay_record)
)
ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    SESSION: on_session_end,
    REBALANCE: on_rebalance_end,
    JOIN: on_classic_wait_end,
    SYNC: on_classic_wait_end,
}
