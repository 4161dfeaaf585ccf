"""A group as an operation will leave it: the records it has written so far, and what they change.

Operations do not change groups; the records that they give do, later. An operation that goes on
from what it has just written works on a copy, made at the first write.
"""

from headrace.coordinator.machine import Reply
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assigning import Assigning, Computation
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.records import change


class Draft:
    """Records under way, and the group that they make."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        self.replies: tuple[tuple[Reply, object], ...] = ()
        """What is to be told beside the answer."""
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

    # What is known beside the records is noted in the group itself: it is lost with it.

    def note_hash_checked(self, image_index: int) -> None:
        if self.group is self._original:
            self._original.checked_index = image_index

    def assign_elsewhere(self, reply: Reply, assigning: Assigning) -> None:
        """Have a target computed off the loop, once what it is for is written."""
        self._original.assigning_epoch = assigning.epoch
        self.replies += ((reply, assigning),)

    def match_elsewhere(self, reply: Reply, matching: Computation) -> None:
        """Have patterns matched off the loop, once they are written."""
        self._original.is_matching = True
        self.replies += ((reply, matching),)

    def note_patterns_checked(
        self, now_ms: int, image_index: int, names: frozenset[str] | None = None
    ) -> None:
        self._original.patterns_checked_ms = now_ms
        self._original.patterns_checked_index = image_index
        self._original.matched_names = names
