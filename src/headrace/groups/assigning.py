"""Target assignments too expensive for the loop: computed in a thread, written when ready.

An operation that needs a new target computes it at once if that is quick. If not, it returns an
`Assigning`, which the shell computes in a thread, and continues with the previous target: the group
stays in the state that it has between an epoch and its target. Another operation writes the result,
after it has checked that the group is still the one the target was computed for. Patterns that must
be matched with many topics work the same way (`consumer.regex_subscriptions`).
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from headrace.coordinator.machine import Outcome, Reply
from headrace.groups.state import Computation, GroupId, GroupsState, MemberId

STEPS_ON_LOOP_MAX: Final = 10_000
"""How many partitions, members and wishes may be looked at on the loop: about 10 ms."""


@dataclass(frozen=True, slots=True)
class Assigning:
    """A target to compute."""

    group_id: GroupId
    epoch: int
    """The group epoch that it is for."""
    members: frozenset[str]
    assign: Callable[[], Any]
    write: Callable[[GroupsState, "Assigning", Any, int], Outcome]

    def compute(self) -> Generator[None, None, Any]:
        yield  # as one part: an assignment cannot be divided
        return self.assign()

    def is_wanted(self, state: GroupsState) -> bool:
        return state.assigning.get(self.group_id) is self

    def finish(self, state: GroupsState, found: Any, now_ms: int) -> Outcome:
        return self.write(state, self, found, now_ms)


class AssignedGroup(Protocol):
    """What all groups have that the broker assigns for."""

    group_id: GroupId
    epoch: int
    assignment_epoch: int

    @property
    def members(self) -> Iterable[MemberId]: ...


def place_for(state: GroupsState, step_count: int) -> Reply[Computation] | None:
    """Return what has a target of so many steps computed elsewhere; None to compute it here."""
    return state.compute_elsewhere if step_count > STEPS_ON_LOOP_MAX else None


def note_assigning(state: GroupsState, assigning: Assigning) -> None:
    """Remember that a target is being computed: a note of the outcome that asks for it.

    Not before, as an outcome that cannot be written asks nobody, and nothing would come back. And
    not in the group, which may be made by the records of that outcome.
    """
    state.assigning[assigning.group_id] = assigning


GroupT = TypeVar("GroupT", bound=AssignedGroup)


def assigned_group(state: GroupsState, assigning: Assigning, kind: type[GroupT]) -> GroupT | None:
    """Return the group that a target was computed for, or None if it is gone.

    No target is being computed for it any more.
    """
    if state.assigning.get(assigning.group_id) is not assigning:
        return None  # the group went meanwhile, or the log was loaded again
    del state.assigning[assigning.group_id]
    group = state.groups.get(assigning.group_id)
    if not isinstance(group, kind):
        return None
    return group


def is_current(group: AssignedGroup, assigning: Assigning) -> bool:
    """Whether a group can have a target that was computed for it.

    It may have gone on meanwhile; then this target is followed by another. But a group that was
    deleted and made anew may have come to the same epoch with other members.
    """
    if not group.assignment_epoch < assigning.epoch <= group.epoch:
        return False
    return group.epoch > assigning.epoch or assigning.members == frozenset(group.members)
