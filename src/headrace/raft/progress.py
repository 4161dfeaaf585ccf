"""A leader's view of another member: what it has, and what is in flight to it.

A member is *probed* with one message at a time until the leader knows where their logs match,
then entries *stream* to it, a bounded number ahead of its responses. One that lacks compacted
entries gets the *snapshot*, a piece at a time. Silence turns streaming into probing.
"""

from collections import deque
from enum import Enum
from typing import NamedTuple

from headrace.raft.entries import Entry, Snapshot
from headrace.raft.settings import RaftSettings


class Mode(Enum):
    PROBE = "probe"
    STREAM = "stream"
    SNAPSHOT = "snapshot"


class Sent(NamedTuple):
    """A message with entries in flight."""

    last_index: int
    size_bytes: int
    sent_ms: int


class Progress:
    """One member, seen from the leader of this term."""

    __slots__ = (
        "acked_round",
        "caught_up_ms",
        "contact_ms",
        "has_answered",
        "hold_ms",
        "in_flight",
        "in_flight_bytes",
        "match_index",
        "mode",
        "next_index",
        "sent_commit",
        "snapshot",
        "snapshot_offset",
        "waiting_since_ms",
    )

    def __init__(self, next_index: int, now_ms: int) -> None:
        self.mode = Mode.PROBE
        self.match_index = 0
        """Up to here its log is ours, and durable."""
        self.next_index = next_index
        self.contact_ms = now_ms
        """When it last responded in this term; under a new leader, the start of the term."""
        self.caught_up_ms: int | None = None
        """When it was last known to have all that the leader had; None if not in this term."""
        self.has_answered = False
        self.acked_round = 0
        self.hold_ms = 0
        """How long it promised not to elect another leader when it responded to that round."""
        self.sent_commit = 0
        self.in_flight: deque[Sent] = deque()
        self.in_flight_bytes = 0
        self.waiting_since_ms: int | None = None
        """When the probe or snapshot piece in flight was sent."""
        self.snapshot: Snapshot | None = None
        self.snapshot_offset = 0

    def note_answer(self, now_ms: int) -> None:
        self.contact_ms = now_ms
        self.has_answered = True

    def note_end(self, last_index: int, now_ms: int) -> None:
        """Record where the leader's log ends when this member responds."""
        if self.match_index >= last_index:
            self.caught_up_ms = now_ms

    def has_answered_since(self, since_ms: int) -> bool:
        return self.has_answered and self.contact_ms > since_ms

    def can_send(self, settings: RaftSettings) -> bool:
        if self.mode is Mode.STREAM:
            return (
                len(self.in_flight) < settings.in_flight_appends_max
                and self.in_flight_bytes < settings.in_flight_bytes_max
            )
        return self.waiting_since_ms is None

    def note_sent(self, entries: list[Entry], now_ms: int) -> None:
        if self.mode is Mode.PROBE:
            self.waiting_since_ms = now_ms
        elif entries:
            size = sum(entry.size_bytes for entry in entries)
            self.in_flight.append(Sent(entries[-1].index, size, now_ms))
            self.in_flight_bytes += size
            self.next_index = entries[-1].index + 1

    def note_match(self, index: int) -> bool:
        """Record that its log matches ours up to `index`; return whether that is news."""
        while self.in_flight and self.in_flight[0].last_index <= index:
            self.in_flight_bytes -= self.in_flight.popleft().size_bytes
        is_news = index > self.match_index
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, index + 1)
        if self.mode is Mode.PROBE or (self.snapshot is not None and index >= self.snapshot.index):
            self.stream()
        return is_news

    def is_stale_rejection(self, previous_index: int) -> bool:
        """Return whether a rejection is older than what is known by now."""
        if self.mode is Mode.PROBE:
            return previous_index != self.next_index - 1
        return self.mode is Mode.SNAPSHOT or previous_index <= self.match_index

    def stream(self) -> None:
        self._begin(Mode.STREAM)
        self.next_index = self.match_index + 1

    def probe(self, next_index: int) -> None:
        self._begin(Mode.PROBE)
        self.sent_commit = 0
        self.next_index = max(next_index, self.match_index + 1)

    def send_snapshot(self, snapshot: Snapshot) -> None:
        self._begin(Mode.SNAPSHOT)
        self.sent_commit = 0
        self.snapshot = snapshot

    def _begin(self, mode: Mode) -> None:
        self.mode = mode
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.waiting_since_ms = None
        self.snapshot = None
        self.snapshot_offset = 0

    def give_up_waiting(self, before_ms: int) -> None:
        """Treat messages sent before then as lost, so that they are retried."""
        if self.in_flight and self.in_flight[0].sent_ms <= before_ms:
            self.probe(self.match_index + 1)
        if self.waiting_since_ms is not None and self.waiting_since_ms <= before_ms:
            self.waiting_since_ms = None
