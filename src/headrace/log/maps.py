"""A bound on how many files of a disk are mapped at once.

A map is quick to read but takes a descriptor and address space, and thousands of partitions have
thousands of indexes. The one that was mapped first is let go first; it maps its file again on use.
"""

from collections import deque
from typing import Final, Protocol

from headrace.config import INDEX_MAPS_MAX


class Mapped(Protocol):
    """Something that holds a map of a file."""

    def unmap(self) -> None:
        """Drop the map; the next use creates it again."""


class Maps:
    """The maps of a disk's files that are held."""

    __slots__ = ("_holders", "maximum")

    def __init__(self, maximum: int = INDEX_MAPS_MAX.default) -> None:
        self.maximum: Final = maximum
        self._holders: Final[deque[Mapped]] = deque()

    def hold(self, holder: Mapped) -> None:
        """Register a new map, and drop the oldest if there are too many."""
        holders = self._holders
        holders.append(holder)
        while len(holders) > self.maximum:
            holders.popleft().unmap()
