"""Deadlines by key: the earliest is known at once, moving or dropping one costs next to nothing."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

STALE_FACTOR_MAX = 4
"""How many entries that count no more the heap may have for each that does."""

RETRY_MS = 10_000
"""After how long it is tried again to do what could not be done."""


class Deadlines(Generic[K]):
    """When something is due for each key; a key has one deadline at most."""

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._entries: dict[K, tuple[int, int, K]] = {}
        """The one entry of the heap that counts for each key; it is not later than what is due."""
        self._heap: list[tuple[int, int, K]] = []
        self._order = 0
        self._taken: K | None = None

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def set(self, key: K, due_ms: int) -> None:
        """Have a key due at a time, and not when it was due before."""
        self._due_ms[key] = due_ms
        entry = self._entries.get(key)
        # One that is due later than before keeps its place: it is looked at, and put off, then.
        if entry is None or due_ms < entry[0]:
            self._push(key, due_ms)
            self._tidy()

    def drop(self, key: K) -> None:
        """Have nothing due for a key."""
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
        """Return the key that is due first, and forget it; None if nothing is due.

        One at a time: what is done for it may change what is due for the others.
        """
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due_ms[key], self._entries[key]
        self._taken = key
        return key

    def put_back(self, now_ms: int) -> None:
        """Have the key that was taken last due again: what was done for it did not come about."""
        key, self._taken = self._taken, None
        if key is not None and key not in self:
            self.set(key, now_ms + RETRY_MS)

    def _push(self, key: K, due_ms: int) -> None:
        self._order += 1
        entry = self._entries[key] = (due_ms, self._order, key)
        heappush(self._heap, entry)

    def _tidy(self) -> None:
        """Leave out what does not count any more, once that is most of the heap."""
        if len(self._heap) > STALE_FACTOR_MAX * (len(self._due_ms) + 1):
            self._heap = list(self._entries.values())
            heapify(self._heap)
