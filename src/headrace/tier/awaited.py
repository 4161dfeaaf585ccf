"""Partitions whose readers gave up waiting, and come back: what was fetched for them is kept. Pure.

A Fetch waits as long as its client allows, often half a second. A store may take longer, and a
read may need several things of it, one after the other. Where the cache is too small for them, each
would be gone when the next one came, and the reader would never get further.
"""

from collections.abc import Callable
from typing import Final

from headrace.remote.segments import PartitionKey

AWAITED_MS: Final = 30_000
"""How long it is kept after a read was given up: a store that is slower has other troubles."""


class Awaited:
    """The partitions of which a read was given up lately."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._until_ms: dict[PartitionKey, int] = {}

    def note(self, key: PartitionKey) -> None:
        """Note that a read of a partition was given up, and will be tried again."""
        now_ms = self._now_ms()
        if len(self._until_ms) > 1:
            self._until_ms = {each: end for each, end in self._until_ms.items() if end > now_ms}
        self._until_ms[key] = now_ms + AWAITED_MS

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def __contains__(self, key: PartitionKey) -> bool:
        until_ms = self._until_ms.get(key)
        if until_ms is None:
            return False
        if until_ms > self._now_ms():
            return True
        del self._until_ms[key]
        return False
