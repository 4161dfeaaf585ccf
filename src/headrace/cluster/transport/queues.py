"""What waits to be sent on one connection: bounded, and never waited for. Pure.

Two lanes: urgent messages (heartbeats, votes, pings) overtake the rest, which Raft allows: its
messages may come in any order. When there is no room, the oldest messages that may be dropped are:
what Raft says later makes what it said before unnecessary, and it repeats what is missed.
"""

from collections import deque
from typing import NamedTuple

from headrace.wire.schema import Buffer


class Queued(NamedTuple):
    """A payload in pieces."""

    parts: list[Buffer]
    size_bytes: int
    correlation_id: int = 0
    """The id of a request, which is never dropped silently; zero for a message."""


class SendQueue:
    """Use `push` and `pop`; `dropped` counts what had to go."""

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._urgent: deque[Queued] = deque()
        self._others: deque[Queued] = deque()
        self.size_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._urgent) + len(self._others)

    def push(self, queued: Queued, *, is_urgent: bool = False) -> bool:
        """Put something in line; return whether there is room for it.

        Room is made of messages of the same lane, or of the slower one.
        """
        lanes = (self._others, self._urgent) if is_urgent else (self._others,)
        if queued.size_bytes <= self._bytes_max:
            while not self._has_room(queued) and any(map(self._drop_oldest, lanes)):
                pass
        if not self._has_room(queued):
            self.dropped += not queued.correlation_id
            return False
        (self._urgent if is_urgent else self._others).append(queued)
        self.size_bytes += queued.size_bytes
        return True

    def pop(self) -> Queued | None:
        """Return what is to be sent next."""
        lane = self._urgent or self._others
        if not lane:
            return None
        queued = lane.popleft()
        self.size_bytes -= queued.size_bytes
        return queued

    def clear(self) -> None:
        """Drop everything."""
        self.dropped += sum(not each.correlation_id for each in (*self._urgent, *self._others))
        self._urgent.clear()
        self._others.clear()
        self.size_bytes = 0

    def _has_room(self, queued: Queued) -> bool:
        return (
            len(self) < self._messages_max
            and self.size_bytes + queued.size_bytes <= self._bytes_max
        )

    def _drop_oldest(self, lane: deque[Queued]) -> bool:
        """Drop the oldest message of a lane that is no request; return whether there was one."""
        for index, oldest in enumerate(lane):
            if not oldest.correlation_id:
                del lane[index]
                self.size_bytes -= oldest.size_bytes
                self.dropped += 1
                return True
        return False
