"""An operation on a classic group in progress: its group, and its outcome so far."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.coordinator.machine import Outcome, Reply, Told, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.state import GroupsState

A = TypeVar("A")


@dataclass(slots=True)
class Draft:
    """An operation on one group."""

    state: GroupsState
    group: ClassicGroup
    now_ms: int
    records: list[CoordinatorRecord] = field(default_factory=list)
    replies: list[Told] = field(default_factory=list)
    notes: list[Callable[[], None]] = field(default_factory=list)

    def answer(self, reply: Reply[A], answer: A | KafkaError) -> None:
        self.replies.append(told(reply, answer))

    def outcome(self) -> Outcome:
        return Outcome(tuple(self.records), tuple(self.replies), notes=tuple(self.notes))
