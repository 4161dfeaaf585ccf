"""Committed offsets' part of the machine: which function handles a record or a deadline."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, OnError, Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.offsets.expiry import (
    OFFSET_EXPIRY,
    TOPIC_DELETION,
    delete_topic_offsets,
    expire_offsets,
)
from headrace.groups.offsets.records import replay_legacy_offset, replay_offset
from headrace.groups.state import DeadlineKey, Group, GroupsState
from headrace.wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.schema import Message


def waiting(state: GroupsState) -> Iterable[OnError]:
    """Return nobody: commits and fetches are answered at once."""
    return ()


def on_loaded(state: GroupsState, groups: Iterable[Group], now_ms: int) -> Outcome:
    """Do nothing: offsets are looked at when the interval has passed."""
    return NOTHING


REPLAY: Final[Mapping[type[Message], Callable[[GroupsState, CoordinatorRecord], None]]] = {
    OffsetCommitKey: replay_offset,
    LegacyOffsetCommitKey: replay_legacy_offset,
}
ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    OFFSET_EXPIRY: expire_offsets,
    TOPIC_DELETION: delete_topic_offsets,
}
