"""The machine of one partition of `__consumer_offsets`: records and deadlines to their modules."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.classic import protocol as classic
from headrace.groups.consumer import protocol as consumer
from headrace.groups.offsets import commits as offset_commits
from headrace.groups.share import protocol as share
from headrace.groups.state import DeadlineKey, GroupsState
from headrace.groups.streams import protocol as streams
from headrace.wire.schema import Message

Replay = Callable[[GroupsState, CoordinatorRecord], None]
OnDeadline = Callable[[GroupsState, DeadlineKey, int], Outcome]

_MODULES: Final = (classic, consumer, share, streams, offset_commits)
"""Each has REPLAY, ON_DEADLINE, `waiting(state)` and `on_loaded(state, now_ms)`."""
_REPLAY: Final[Mapping[type[Message], Replay]] = {
    key: replay for module in _MODULES for key, replay in module.REPLAY.items()
}
_ON_DEADLINE: Final[Mapping[str, OnDeadline]] = {
    word: handle for module in _MODULES for word, handle in module.ON_DEADLINE.items()
}


class GroupsMachine:
    """Groups of every kind, and their offsets."""

    def __init__(self, state: GroupsState) -> None:
        self.state = state

    def replay(self, record: CoordinatorRecord) -> None:
        _REPLAY[type(record.key)](self.state, record)

    def id_of(self, key: Message) -> str | None:
        """Return the group that a record is about."""
        return getattr(key, "group_id", None) or getattr(key, "group", None)

    def set_aside(self, id_: str) -> None:
        """Do nothing: groups begin nothing by themselves but deadlines, which have records."""

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        self.state.offsets.end_transaction(producer_id, is_commit=is_commit)

    def on_loaded(self, now_ms: int) -> Outcome:
        return _together(module.on_loaded(self.state, now_ms) for module in _MODULES)

    def next_deadline_ms(self) -> int | None:
        return self.state.deadlines.next_ms()

    def on_deadline(self, now_ms: int) -> Outcome:
        key = self.state.deadlines.take_due(now_ms)
        return NOTHING if key is None else _ON_DEADLINE[key[0]](self.state, key, now_ms)

    def waiting(self) -> Iterable[Reply]:
        return [reply for module in _MODULES for reply in module.waiting(self.state)]


def _together(outcomes: Iterable[Outcome]) -> Outcome:
    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[tuple[Reply, object], ...] = ()
    for outcome in outcomes:
        records += outcome.records
        replies += outcome.replies
    return Outcome(records, replies)
