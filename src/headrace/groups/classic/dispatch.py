"""Classic groups' part of the machine: which function handles which record and which deadline.

Members assign among themselves. A member joins (`classic.join`) and waits until all have:
`classic.rebalance` has the state machine. One member leads, receives the subscriptions of all, and
sends an assignment (`classic.sync`), which is written (`classic.records`) before any member gets
its part. Members then send heartbeats (`classic.heartbeat`) until something changes, or leave
(`classic.leave`). Their metadata is opaque to the broker; only the topics that consumers subscribe
to are parsed (`classic.embedded_protocol`), so that offsets still in use are kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from headrace import config
from headrace.coordinator.machine import OnError, Outcome, Told
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.classic.deadlines import JOIN, SESSION, SYNC, keep_session
from headrace.groups.classic.draft import Draft
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.rebalance import (
    on_join_deadline,
    on_session_deadline,
    on_sync_deadline,
    prepare_rebalance,
)
from headrace.groups.classic.records import replay_group
from headrace.groups.state import DeadlineKey, Group, GroupsState
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.schema import Message


def waiting(state: GroupsState) -> Iterable[OnError]:
    """Return the members that wait for a generation or for their part of it."""
    for group in _classic_groups(state):
        yield from group.join_replies.values()
        yield from group.sync_replies.values()


def on_loaded(state: GroupsState, groups: Iterable[Group], now_ms: int) -> Outcome:
    """Restart every session: members could not send heartbeats while there was no leader.

    A group that has become too large (`group.max.size` is less than it was) is rebalanced.
    """
    records: list[CoordinatorRecord] = []
    replies: list[Told] = []
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
