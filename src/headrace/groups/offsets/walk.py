"""A resumable walk through the committed offsets of a group.

Only names are remembered: changes ahead of the walk are seen when it gets there, and offsets that
are committed for the first time behind it are not.
"""

from headrace.groups.offsets.store import Offsets


class OffsetWalk:
    """The topics and partitions of a group that are still to be looked at."""

    __slots__ = ("_indexes", "_topics", "group_id")

    def __init__(self, group_id: str, offsets: Offsets) -> None:
        self.group_id = group_id
        self._topics = list(offsets.committed(group_id))[::-1]
        self._indexes: list[int] | None = None
        """What is left of the topic that the walk is at; None before its first partition."""

    @property
    def topic(self) -> str | None:
        """The topic that the walk is at; None at the end."""
        return self._topics[-1] if self._topics else None

    def next_partition(self, offsets: Offsets) -> int | None:
        """Return the next partition of the topic, or None if the walk is through with it."""
        if self._indexes is None:
            self._indexes = list(offsets.of_topic(self.group_id, self._topics[-1]))[::-1]
        return self._indexes.pop() if self._indexes else None

    def leave_topic(self) -> None:
        """Go on to the next topic."""
        self._topics.pop()
        self._indexes = None
