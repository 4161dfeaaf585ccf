"""Deadlines by key: the earliest is known at once; moving or dropping one is cheap."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

STALE_FACTOR_MAX = 4
"""How many stale entries the heap may hold per valid one."""

RETRY_MS = 10_000
"""How long to wait before a failed action is retried."""


class Deadlines(Generic[K]):
    """The time at which each key is due; a key has at most one deadline."""

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._entries: dict[K, tuple[int, int, K]] = {}
        """The valid heap entry of each key; it is never later than the key's deadline."""
        self._heap: list[tuple[int, int, K]] = []
        self._order = 0
        self._taken: K | None = None

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def set(self, key: K, due_ms: int) -> None:
        """Set the deadline of a key, replacing the previous one."""
        self._due_ms[key] = due_ms
        entry = self._entries.get(key)
        # A later deadline keeps its heap entry, which is moved when it reaches the top.
        if entry is None or due_ms < entry[0]:
            self._push(key, due_ms)
            self._tidy()

    def drop(self, key: K) -> None:
        """Remove the deadline of a key."""
        if self._due_ms.pop(key, None) is not None:
            del self._entries[key]
            self._tidy()

    def due_ms(self, key: K) -> int | None:
        return self._due_ms.get(key)

    def next_ms(self) -> int | None:
        """Return the earliest time at which something is due."""
        while self._heap:
            entry = self._heap[0]
            at_ms, _, key = entry
            if self._entries.get(key) is not entry:
                heappop(self._heap)  # dropped, or due earlier since
                continue
            due_ms = self._due_ms[key]
            if due_ms == at_ms:
                return at_ms
            heappop(self._heap)
            self._push(key, due_ms)
        return None

    def take_due(self, now_ms: int) -> K | None:
        """Remove and return the key that is due first; None if nothing is due.

        One at a time: handling it may change the deadlines of the others.
        """
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due_ms[key], self._entries[key]
        self._taken = key
        return key

    def put_back(self, now_ms: int) -> None:
        """Schedule the key that was taken last again: what it was due for failed."""
        key, self._taken = self._taken, None
        if key is not None and key not in self:
            self.set(key, now_ms + RETRY_MS)

    def _push(self, key: K, due_ms: int) -> None:
        self._order += 1
        entry = self._entries[key] = (due_ms, self._order, key)
        heappush(self._heap, entry)

    def _tidy(self) -> None:
        """Remove stale entries once they are most of the heap."""
        if len(self._heap) > STALE_FACTOR_MAX * (len(self._due_ms) + 1):
            self._heap = list(self._entries.values())
            heapify(self._heap)
