"""Tasks of a streams group, and how requests and records name them.

A task is a part of the application, a *subtopology*, for one partition of the topics that the part
reads. A member runs it (*active*), keeps a copy of its state to take over with (*standby*), or
builds that copy before it takes over (*warm-up*).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar


class TaskId(NamedTuple):
    """One task."""

    subtopology: str
    partition: int


TaskSet = frozenset[TaskId]
NO_TASKS: Final[TaskSet] = frozenset()


class Tasks(NamedTuple):
    """Tasks by what is done with them."""

    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def intersects(self, other: "Tasks") -> bool:
        """Whether a task is in both, for the same purpose."""
        return any(not mine.isdisjoint(theirs) for mine, theirs in zip(self, other, strict=True))

    def is_within(self, other: "Tasks") -> bool:
        """Whether all tasks are in the other, for the same purpose."""
        return all(mine <= theirs for mine, theirs in zip(self, other, strict=True))

    def kept(self, other: "Tasks") -> "Tasks":
        """Return the tasks that are in both."""
        return Tasks(self.active & other.active, *_passive(self, other, frozenset.__and__))

    def without(self, other: "Tasks") -> "Tasks":
        """Return the tasks that are not in the other."""
        return Tasks(self.active - other.active, *_passive(self, other, frozenset.__sub__))

    def joined(self, other: "Tasks") -> "Tasks":
        """Return the tasks that are in either."""
        return Tasks(self.active | other.active, *_passive(self, other, frozenset.__or__))


NOTHING_TO_RUN: Final = Tasks()


def _passive(
    mine: Tasks, theirs: Tasks, combine: Callable[[TaskSet, TaskSet], TaskSet]
) -> tuple[TaskSet, TaskSet]:
    return combine(mine.standby, theirs.standby), combine(mine.warmup, theirs.warmup)


class NamedTasks(Protocol):
    """Tasks of one subtopology, as every message has them."""

    subtopology_id: str
    partitions: list[int]


T = TypeVar("T")


def read_tasks(rows: Iterable[NamedTasks] | None) -> TaskSet:
    """Return the tasks that a message names."""
    return frozenset(
        TaskId(row.subtopology_id, partition) for row in rows or () for partition in row.partitions
    )


def write_tasks(tasks: Iterable[TaskId], row: Callable[..., T]) -> list[T]:
    """Return the sorted rows of a message: one per subtopology, of the message's type."""
    return [row(name, partitions) for name, partitions in by_subtopology(tasks).items()]


def by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """Return the partitions of each subtopology; both sorted."""
    grouped: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        grouped.setdefault(name, []).append(partition)
    return grouped


def read_reported(request: Any) -> Tasks | None:
    """Return the tasks that a member reports; None if it reports none."""
    if request.active_tasks is None:
        return None
    return Tasks(
        read_tasks(request.active_tasks),
        read_tasks(request.standby_tasks),
        read_tasks(request.warmup_tasks),
    )
