"""Classic groups, whose members assign among themselves: the machine's part, and what others use.

A member joins (`classic.join`) and waits until all have: `classic.rebalance` has the automaton. One
of them leads, is told what each can do, and brings an assignment (`classic.sync`), which is written
(`classic.records`) before anybody is told its part. Members then send heartbeats until something
changes, or leave (`classic.leave`). What they say to each other is theirs; only the topics that
consumers want are looked at (`classic.subscription`), so that offsets that are wanted are kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from headrace import config
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.classic.answers import describe, to_join_again
from headrace.groups.classic.commits import on_offsets_committed, validate_offset_commit
from headrace.groups.classic.deadlines import JOIN, SESSION, SYNC, drop_deadlines, keep_session
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.member import ClassicMember, OfferedProtocol
from headrace.groups.classic.rebalance import (
    Draft,
    on_join_deadline,
    on_session_deadline,
    on_sync_deadline,
    prepare_rebalance,
)
from headrace.groups.classic.records import group_record, group_tombstone, replay_group
from headrace.groups.state import DeadlineKey, Group, GroupsState
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.schema import Message

__all__ = [
    "ON_DEADLINE",
    "REPLAY",
    "ClassicGroup",
    "ClassicMember",
    "ClassicState",
    "OfferedProtocol",
    "describe",
    "dissolve",
    "group_record",
    "group_tombstone",
    "on_loaded",
    "on_offsets_committed",
    "validate_offset_commit",
    "waiting",
]


def waiting(state: GroupsState) -> Iterable[Reply]:
    """Give the members that wait for a generation or for their part of it."""
    for group in _classic_groups(state):
        yield from group.join_replies.values()
        yield from group.sync_replies.values()


def on_loaded(state: GroupsState, groups: Iterable[Group], now_ms: int) -> Outcome:
    """Let every session of groups begin anew: members could not be heard of while nobody led.

    A group that has become too large (`group.max.size` is less than it was) is rebalanced.
    """
    records: list[CoordinatorRecord] = []
    replies: list[tuple[Reply, Any]] = []
    for group in groups:
        if not isinstance(group, ClassicGroup):
            continue
        for member in group.members.values():
            keep_session(state, group, member, now_ms)
        if len(group.members) > state.settings[config.GROUP_MAX_SIZE]:
            draft = Draft(state, group, now_ms)
            prepare_rebalance(draft)
            records += draft.records
            replies += draft.replies
    return Outcome(tuple(records), tuple(replies))


def dissolve(state: GroupsState, group: ClassicGroup) -> tuple[tuple[Reply, object], ...]:
    """Have nothing due and nobody waiting for a group that becomes one of another kind.

    Gives the answers of those who wait: they join again. Records are the caller's.
    """
    drop_deadlines(state, group)
    answers = to_join_again(group)
    group.join_replies.clear()
    group.sync_replies.clear()
    return answers


def _classic_groups(state: GroupsState) -> Iterator[ClassicGroup]:
    return (each for each in tuple(state.groups.values()) if isinstance(each, ClassicGroup))


REPLAY: Final[Mapping[type[Message], Callable[[GroupsState, CoordinatorRecord], None]]] = {
    GroupMetadataKey: replay_group,
}
ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    SESSION: on_session_deadline,
    JOIN: on_join_deadline,
    SYNC: on_sync_deadline,
}
