"""Replies that wait for the high watermark, in the order of what they wait for. Pure.

All clients wait equally long, so those whose time is over are the first in the queue. A client that
waited too long gets an error, although its records may still be committed. What records set off on
this node (`coordinator.machine.effect`) has no client and waits on.
"""

from collections import deque
from typing import NamedTuple

from headrace.coordinator.machine import Effect, OnError, Told


class Waiting(NamedTuple):
    """Replies with the offset that the high watermark has to reach."""

    end_offset: int
    replies: tuple[Told, ...]
    until: float | None
    """When clients have waited long enough; None if no client waits."""


class Uncommitted:
    """The replies of one shard that wait for replicas."""

    __slots__ = ("_timeout_seconds", "_waiting")

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._waiting: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, end_offset: int, replies: tuple[Told, ...], now: float) -> None:
        """Append replies; their offset is not below that of those before."""
        self._waiting.append(Waiting(end_offset, replies, now + self._timeout_seconds))

    def is_due(self, high_watermark: int) -> bool:
        """Return whether the first replies can be sent."""
        return bool(self._waiting) and self._waiting[0].end_offset <= high_watermark

    def take(self, high_watermark: int, most: int) -> list[Told]:
        """Remove and return up to `most` replies that can be sent."""
        taken: list[Told] = []
        while len(taken) < most and self.is_due(high_watermark):
            first = self._waiting.popleft()
            left = most - len(taken)
            if len(first.replies) > left:
                self._waiting.appendleft(first._replace(replies=first.replies[left:]))
            taken += first.replies[:left]
        return taken

    @property
    def next_expiry(self) -> float | None:
        """When the first client has waited long enough."""
        # Only the first entry may be without a client: `expire` leaves one such entry.
        for each in self._waiting:
            if each.until is not None:
                return each.until
        return None

    def expire(self, now: float) -> list[OnError]:
        """Remove and return the replies of clients that have waited long enough."""
        expired: list[OnError] = []
        effects: list[Told] = []
        end_offset = 0
        while self._waiting and (self._waiting[0].until is None or self._waiting[0].until <= now):
            first = self._waiting.popleft()
            end_offset = first.end_offset
            effects += [each for each in first.replies if isinstance(each[0], Effect)]
            expired += [reply for reply, _ in first.replies if not isinstance(reply, Effect)]
        if effects:
            self._waiting.appendleft(Waiting(end_offset, tuple(effects), None))
        return expired

    def clear(self) -> list[OnError]:
        """Remove and return all replies."""
        waiting = [reply for each in self._waiting for reply, _ in each.replies]
        self._waiting.clear()
        return waiting
