"""The seam between the metadata of the tier and the log that its events are in.

`tier.topic_event_log` is the real one, on the topic `__remote_log_metadata`. The one here is in
memory: several managers that share one see each other's events, as nodes of a cluster do.

An event that is published is in the log for good, and every subscription to its partition gets it,
in the order of offsets.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from headrace.remote.segments import TierError

DEFAULT_PARTITIONS: Final = 50


class PublishFailed(TierError):
    """An event that may be in the log or not: later its readers know."""


class PublishRefused(PublishFailed):
    """An event that is not in the log and will not be, however often it is tried."""


class LogReplaced(PublishRefused):
    """A log that is not the one that was started: it was deleted and made anew."""


class LoggedEvent(NamedTuple):
    """An event in the log; `value` is None for a record that is none."""

    offset: int
    value: bytes | None


class EventBatch(NamedTuple):
    """What a subscription has read of one partition."""

    partition: int
    term: int
    """Which `add` of the partition it belongs to."""
    events: Sequence[LoggedEvent]
    next_offset: int
    """Where the partition is read on: there may be records that are no events."""
    failure: str | None = None
    """Why the partition cannot be read any further, if so; it is removed then."""


class LogBounds(NamedTuple):
    """The first offset that a partition has, and its high watermark."""

    start_offset: int
    high_watermark: int


class EventSubscription(Protocol):
    """Reads the partitions that are added to it. Belongs to one task."""

    def add(self, partition: int, offset: int) -> int:
        """Read a partition from an offset on, or from its start if that is higher.

        Return the term of its batches. If the offset does not exist, because the log was cut or
        made anew, the partition is read from its start: offsets go back.
        """

    def remove(self, partition: int) -> None:
        """Read a partition no more; batches of it may still come."""

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions that are read."""

    async def next(self) -> EventBatch:
        """Wait for events of one partition. Raise what makes the whole subscription end."""

    async def close(self) -> None:
        """Stop reading."""


class MetadataEventLog(Protocol):
    """The log of events."""

    @property
    def log_id(self) -> bytes:
        """Which log it is: offsets of another one mean nothing. Known after `start`."""

    @property
    def partition_count(self) -> int:
        """How many partitions it has. Known after `start`, and the same from then on."""

    async def start(self) -> None:
        """Make it ready for use; HeadraceError if it cannot be now."""

    async def stop(self) -> None:
        """Release its resources."""

    def hang_up(self) -> None:
        """Close connections at once, as a node that is killed does."""

    async def publish(self, partition: int, event: bytes) -> int:
        """Append an event, and return its offset when it is there for good; or PublishFailed."""

    async def bounds(self, partition: int) -> LogBounds:
        """Return what a partition has now; HeadraceError if that cannot be known.

        This and everything else raises LogReplaced once that is noticed.
        """

    def subscribe(self) -> EventSubscription:
        """Return a subscription to nothing yet."""


class InProcessEventLog:
    """A log of events in memory."""

    def __init__(
        self, partition_count: int = DEFAULT_PARTITIONS, log_id: bytes = b"in process"
    ) -> None:
        self.log_id = log_id
        self.partition_count = partition_count
        self.partitions: list[list[bytes]] = [[] for _ in range(partition_count)]
        self._subscriptions: list[InProcessSubscription] = []

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def hang_up(self) -> None:
        """Close connections at once, as a node that is killed does."""

    async def publish(self, partition: int, event: bytes) -> int:
        events = self.partitions[partition]
        events.append(event)
        for subscription in self._subscriptions:
            subscription.wake()
        return len(events) - 1

    async def bounds(self, partition: int) -> LogBounds:
        return LogBounds(0, len(self.partitions[partition]))

    def subscribe(self) -> "InProcessSubscription":
        subscription = InProcessSubscription(self)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: "InProcessSubscription") -> None:
        self._subscriptions.remove(subscription)


class InProcessSubscription:
    """Reads an `InProcessEventLog`, one partition after the other."""

    def __init__(self, log: InProcessEventLog) -> None:
        self._log = log
        self._positions: dict[int, int] = {}
        self._terms: dict[int, int] = {}
        self._term = 0
        self._queue: deque[int] = deque()
        self._news = asyncio.Event()

    def add(self, partition: int, offset: int) -> int:
        if partition not in self._positions:
            self._queue.append(partition)
        exists = offset <= len(self._log.partitions[partition])
        self._positions[partition] = offset if exists else 0
        self._term += 1
        self._terms[partition] = self._term
        self.wake()
        return self._term

    def remove(self, partition: int) -> None:
        if self._positions.pop(partition, None) is not None:
            self._queue.remove(partition)

    @property
    def assigned(self) -> frozenset[int]:
        return frozenset(self._positions)

    def wake(self) -> None:
        self._news.set()

    async def next(self) -> EventBatch:
        while True:
            self._news.clear()
            for _ in range(len(self._queue)):
                self._queue.rotate(-1)
                if (batch := self._take(self._queue[-1])) is not None:
                    return batch
            await self._news.wait()

    def _take(self, partition: int) -> EventBatch | None:
        events, position = self._log.partitions[partition], self._positions[partition]
        if position > len(events):
            position = 0
        if position == len(events):
            return None
        self._positions[partition] = len(events)
        found = [LoggedEvent(offset, events[offset]) for offset in range(position, len(events))]
        return EventBatch(partition, self._terms[partition], found, len(events))

    async def close(self) -> None:
        self._log.unsubscribe(self)
