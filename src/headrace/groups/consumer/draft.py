"""A group as an operation will leave it: the records it has written so far, and their effect.

Operations do not change groups; the records that they return do, later. An operation that continues
from what it has just written works on a copy, made at the first write.
"""

from collections.abc import Callable
from functools import partial

from headrace.coordinator.machine import Reply, Told, effect
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assigning import Assigning, note_assigning
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.records import change
from headrace.groups.state import Computation, GroupId, GroupsState


class Draft:
    """Records under way, and the group that they make."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        self.replies: tuple[Told, ...] = ()
        """What is to be told beside the answer."""
        self.notes: tuple[Callable[[], None], ...] = ()
        """What to remember once the records can be written."""
        self._original = group

    def write(self, *records: CoordinatorRecord) -> None:
        if self.group is self._original:
            self.group = self._original.copy()
        for record in records:
            self.records.append(record)
            change(self.group, record)

    def write_last(self, record: CoordinatorRecord) -> None:
        """Write what nothing goes on from, which needs no copy."""
        self.records.append(record)

    # What is known beside the records is kept in the group itself, and is lost with it.

    def note_hash_checked(self, image_index: int) -> None:
        if self.group is self._original:
            self._original.checked_index = image_index

    # The rest holds only if the records are written.

    def assign_elsewhere(
        self, state: GroupsState, elsewhere: Reply[Computation], assigning: Assigning
    ) -> None:
        """Request a target computation off the loop, once the records are written."""
        self.replies += (effect(elsewhere, assigning),)
        self.notes += (partial(note_assigning, state, assigning),)

    def match_elsewhere(
        self,
        elsewhere: Reply[Computation],
        matching: Computation,
        running: dict[GroupId, Computation],
    ) -> None:
        """Request pattern matching off the loop, once the patterns are written.

        `running` has it from then on: the group itself may be made by these very records.
        """
        self.replies += (effect(elsewhere, matching),)
        self.notes += (partial(running.__setitem__, matching.group_id, matching),)

    def note_patterns_checked(
        self, now_ms: int, image_index: int, names: frozenset[str] | None = None
    ) -> None:
        group = self._original

        def note() -> None:
            group.patterns_checked_ms = now_ms
            group.patterns_checked_index = image_index
            group.matched_names = names

        self.notes += (note,)
