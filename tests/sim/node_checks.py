"""What must hold for the clients of a node, whatever happens to it.

An acknowledged record stays where it is, once, behind those its producer sent before. The offsets
of a group do not go back. A record that a queue was told is done does not come again. What power
takes with it if nothing was synced is the exception: `forget_unsynced`.
"""

from collections import Counter
from collections.abc import Iterable

from headrace.client import TopicPartition

Place = tuple[TopicPartition, int]


class Violation(Exception):
    """A promise that was not kept."""


class Checks:
    """What clients were told, and what they saw."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: dict[Place, bytes] = {}
        self.committed: dict[TopicPartition, int] = {}
        """How far the group is known to be: where it was told so, or where it was read."""
        self.delivered: set[bytes] = set()
        """What members of the group have read."""
        self.queued: set[bytes] = set()
        """What members of the share group have been given."""
        self.done_at: dict[Place, float] = {}
        """What members of the share group said they are done with, and when that was confirmed."""
        self.topics: set[str] = set()
        self.has_lost = False
        """Whether records may have been lost that nobody promised to keep."""
        self.seen: Counter[str] = Counter()

    def forget_unsynced(self) -> None:
        """Expect no more of what was only in memory."""
        self.has_lost = True
        self.acknowledged.clear()
        self.committed.clear()
        self.done_at.clear()

    # Records

    def note_sent(self, value: bytes) -> None:
        self.sent.add(value)

    def note_acknowledged(self, place: Place, value: bytes) -> None:
        before = self.acknowledged.setdefault(place, value)
        _expect(before == value, f"{place} was acknowledged for {before[:20]!r} and {value[:20]!r}")
        self.seen["acknowledged"] += 1

    def note_read(self, place: Place, value: bytes) -> None:
        _expect(value in self.sent, f"{value[:20]!r} at {place} was never sent")
        expected = self.acknowledged.get(place, value)
        # A reader may have had it in memory since before it was lost.
        _expect(
            self.has_lost or expected == value, f"{place} has {value[:20]!r}, not {expected[:20]!r}"
        )
        self.seen["read"] += 1

    def check_whole(self, records: dict[Place, bytes]) -> None:
        """Look at everything that there is in the end."""
        for place, value in self.acknowledged.items():
            found = records.get(place)
            _expect(found == value, f"{value[:20]!r} was acknowledged at {place}: {found!r:.30}")
        if self.has_lost:
            return
        counts = Counter(records.values())
        twice = [value[:20] for value, count in counts.items() if count > 1]
        _expect(not twice, f"these are there more than once: {twice[:5]}")
        last: dict[tuple[TopicPartition, bytes], int] = {}
        for (partition, offset), value in sorted(records.items()):
            producer, number = value.split(b" ")[0].rsplit(b"-", 1)
            _expect(
                last.get((partition, producer), -1) < int(number),
                f"{value[:20]!r} at {partition} {offset} is behind a later one",
            )
            last[partition, producer] = int(number)

    # The group

    def note_committed(self, offsets: dict[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self.committed[partition] = max(self.committed.get(partition, 0), offset)
        self.seen["commits"] += 1

    def check_committed(
        self, expected: dict[TopicPartition, int], found: dict[TopicPartition, int]
    ) -> None:
        if self.has_lost:
            return
        for partition, offset in expected.items():
            _expect(
                found.get(partition, -1) >= offset,
                f"the group was at {offset} of {partition}, and is at {found.get(partition)}",
            )

    # The queue

    def note_done(self, places: Iterable[Place], now: float) -> None:
        for place in places:
            self.done_at.setdefault(place, now)
        self.seen["accepted"] += 1

    def note_queued(self, place: Place, value: bytes, fetched_at: float) -> None:
        """Take note of a record that was fetched at that time, or later."""
        done_at = self.done_at.get(place, fetched_at)
        _expect(self.has_lost or done_at >= fetched_at, f"{place} is done, and comes again")
        self.queued.add(value)

    # In the end

    def undelivered(self, topic: str, delivered: set[bytes]) -> list[bytes]:
        """Return what was acknowledged and did not get to those who read."""
        return [
            value
            for (partition, _), value in self.acknowledged.items()
            if partition.topic == topic and value not in delivered
        ]


def expect(condition: object, what: str) -> None:
    _expect(condition, what)


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise Violation(what)
