"""What is due when. Setting, cancelling and taking one cost the logarithm of how many there are."""

from collections.abc import Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush


class Due(IntEnum):
    """What a timer is for; the number beside it is a node's or a probe's.

    Of what is due at the same time the lower goes first: a period begins when the probes of the
    last one are done with.
    """

    VERDICT = 0
    PROBE = 1
    RELAY = 2
    SUSPICION = 3
    FORGET = 4
    SYNC = 5
    PERIOD = 6
    GOSSIP = 7


Key = tuple[Due, int]

_SLACK = 64
"""How many dead entries the heap may have beside as many as there are live ones."""


class Timers:
    """One deadline per key."""

    def __init__(self) -> None:
        self._due_ms: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []
        """Every key at its deadline, and stale entries of keys that were reset."""

    def set(self, kind: Due, number: int, due_ms: int) -> None:
        """Set a timer, in place of what it was set to before."""
        key = (kind, number)
        self._due_ms[key] = due_ms
        heappush(self._heap, (due_ms, key))
        self._tidy()

    def cancel(self, kind: Due, number: int) -> None:
        self._due_ms.pop((kind, number), None)
        self._tidy()

    def due_ms(self, kind: Due, number: int) -> int | None:
        """Return when a timer is due, None if it is not set."""
        return self._due_ms.get((kind, number))

    def first_due_ms(self) -> int | None:
        """Return when the next timer is due, None if none is set."""
        while self._heap:
            due_ms, key = self._heap[0]
            if self._due_ms.get(key) == due_ms:
                return due_ms
            heappop(self._heap)
        return None

    def take_due(self, now_ms: int) -> Iterator[Key]:
        """Yield and remove what is due, earliest first. More may be set meanwhile."""
        while (due_ms := self.first_due_ms()) is not None and due_ms <= now_ms:
            _, key = heappop(self._heap)
            del self._due_ms[key]
            self._tidy()
            yield key

    def put_off(self, kind: Due, by_ms: int) -> None:
        """Move every timer of a kind by so much."""
        for key, due_ms in self._due_ms.items():
            if key[0] is kind:
                self._due_ms[key] = due_ms + by_ms
        self._rebuild()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._due_ms) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(due_ms, key) for key, due_ms in self._due_ms.items()]
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._due_ms)

    @property
    def heap_size(self) -> int:
        return len(self._heap)
