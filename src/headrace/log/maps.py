"""A bound on how many files are mapped at once.

A map is quick to read but takes a descriptor and address space, and thousands of partitions have
thousands of indexes. The one that was mapped first is let go first; it maps its file again on use.
"""

from collections import deque
from typing import Final, Protocol

from headrace.config import INDEX_MAPS_MAX


class Mapped(Protocol):
    """Something that holds a map of a file."""

    def unmap(self) -> None:
        """Let the map go; use brings it back."""


_holders: Final[deque[Mapped]] = deque()


def hold(holder: Mapped) -> None:
    """Take note of a new map, and let the oldest go if there are too many."""
    _holders.append(holder)
    while len(_holders) > INDEX_MAPS_MAX.default:
        _holders.popleft().unmap()
