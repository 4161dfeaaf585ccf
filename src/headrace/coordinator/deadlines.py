"""Deadlines by key: the earliest is known at once, moving or dropping one costs next to nothing."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

STALE_FACTOR_MAX = 4
"""How many entries that count no more the heap may have for each that does."""


class Deadlines(Generic[K]):
    """When something is due for each key; a key has one deadline at most."""

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def set(self, key: K, due_ms: int) -> None:
        """Have a key due at a time, and not when it was due before."""
        former_ms = self._due_ms.get(key)
        self._due_ms[key] = due_ms
        # One that is due later than before keeps its place: it is looked at, and put off, then.
        if former_ms is None or due_ms < former_ms:
            self._push(key, due_ms)

    def drop(self, key: K) -> None:
        """Have nothing due for a key."""
        self._due_ms.pop(key, None)
        if len(self._heap) > STALE_FACTOR_MAX * (len(self._due_ms) + 1):
            self._heap = [entry for entry in self._heap if entry[2] in self._due_ms]
            heapify(self._heap)

    def due_ms(self, key: K) -> int | None:
        return self._due_ms.get(key)

    def next_ms(self) -> int | None:
        """Give the earliest time at which something is due."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            due_ms = self._due_ms.get(key)
            if due_ms == at_ms:
                return at_ms
            heappop(self._heap)
            if due_ms is not None and due_ms > at_ms:
                self._push(key, due_ms)
        return None

    def take_due(self, now_ms: int) -> K | None:
        """Give the key that is due first, and forget it; None if nothing is due.

        One at a time: what is done for it may change what is due for the others.
        """
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due_ms[key]
        return key

    def _push(self, key: K, due_ms: int) -> None:
        self._order += 1
        heappush(self._heap, (due_ms, self._order, key))
