"""The machine of one partition of `__consumer_offsets`: dispatches records and deadlines."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import NOTHING, OnError, Outcome, Told
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.classic import dispatch as classic
from headrace.groups.consumer import dispatch as consumer
from headrace.groups.offsets import dispatch as offsets
from headrace.groups.offsets.expiry import schedule_expiry
from headrace.groups.share import dispatch as share
from headrace.groups.state import DeadlineKey, GroupId, GroupsState
from headrace.groups.streams import dispatch as streams
from headrace.wire.schema import Message

Replay = Callable[[GroupsState, CoordinatorRecord], None]
OnDeadline = Callable[[GroupsState, DeadlineKey, int], Outcome]

GROUPS_AT_ONCE: Final = 200
"""How many groups that were loaded are looked at in one turn of the loop."""
LOADED: Final = "loaded"
"""The word of the deadline: more groups that were loaded are to be looked at."""

_MODULES: Final = (classic, consumer, share, streams, offsets)
"""Each has REPLAY, ON_DEADLINE, `waiting(state)` and `on_loaded(state, groups, now_ms)`."""
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
        self._unseen: list[GroupId] = []
        """Groups that were loaded, and that no module has looked at yet."""

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
        schedule_expiry(self.state, now_ms)
        self._unseen = [*self.state.groups]
        return self._see_loaded(now_ms)

    def _see_loaded(self, now_ms: int) -> Outcome:
        """Look at some of the groups that were loaded; at the rest in another turn."""
        state = self.state
        some, self._unseen = self._unseen[:GROUPS_AT_ONCE], self._unseen[GROUPS_AT_ONCE:]
        groups = [state.groups[each] for each in some if each in state.groups]
        if self._unseen:
            state.deadlines.set((LOADED,), now_ms)
        return _together(module.on_loaded(state, groups, now_ms) for module in _MODULES)

    def next_deadline_ms(self) -> int | None:
        return self.state.deadlines.next_ms()

    def on_deadline(self, now_ms: int) -> Outcome:
        key = self.state.deadlines.take_due(now_ms)
        if key is None:
            return NOTHING
        if key[0] == LOADED:
            return self._see_loaded(now_ms)
        return _ON_DEADLINE[key[0]](self.state, key, now_ms)

    def on_deadline_unmet(self, now_ms: int) -> None:
        self.state.deadlines.put_back(now_ms)

    def waiting(self) -> Iterable[OnError]:
        return [reply for module in _MODULES for reply in module.waiting(self.state)]


def _together(outcomes: Iterable[Outcome]) -> Outcome:
    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[Told, ...] = ()
    notes: tuple[Callable[[], None], ...] = ()
    for outcome in outcomes:
        records += outcome.records
        replies += outcome.replies
        notes += outcome.notes
    return Outcome(records, replies, notes=notes)
