"""Records that wait to be sent: a queue of batches for each partition. No I/O, no clock.

A partition has at most one batch in flight; in the meantime its records gather in the next one. So
batches grow with the load up to `batch_bytes`, a lone record is sent at once, and a retried batch
cannot be overtaken by the next one.
"""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from headrace.client.batches import Batch
from headrace.client.topics import TopicPartition
from headrace.records.compression import Compression
from headrace.records.record import Headers


class Accumulator:
    """Open, closed and in-flight batches, and the memory they use."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        memory_bytes: int,
        linger_seconds: float,
        compression: Compression = Compression.NONE,
        level: int | None = None,
    ) -> None:
        self.used_bytes = 0
        self._is_pressed = False
        self._batch_bytes = batch_bytes
        self._memory_bytes = memory_bytes
        self._linger_seconds = linger_seconds
        self._compression = compression
        self._level = level
        self._queues: dict[tuple[str, int], deque[Batch]] = {}
        self._on_their_way: dict[tuple[str, int], Batch] = {}
        self._schedule: list[tuple[float, TopicPartition]] = []
        """A heap of when to check partitions. Entries may be stale. Every partition with something
        to send has one, or a batch in flight."""

    @property
    def is_pressed(self) -> bool:
        """Whether everything is sent at once: a task flushes, or waits for memory."""
        return self._is_pressed

    @is_pressed.setter
    def is_pressed(self, is_pressed: bool) -> None:
        if is_pressed == self._is_pressed:
            return
        self._is_pressed = is_pressed
        self._schedule = [
            (self._due_at(queue), queue[0].partition)
            for partition, queue in self._queues.items()
            if queue and partition not in self._on_their_way
        ]
        heapify(self._schedule)

    def has_room(self, record_bytes: int) -> bool:
        """Return whether a record of this size fits; one that is too large may go alone."""
        return self.used_bytes == 0 or self.used_bytes + record_bytes <= self._memory_bytes

    def append(
        self,
        partition: tuple[str, int],
        timestamp: int,
        fields: tuple[bytes | None, bytes | None, Headers],
        record_bytes: int,
        now: Callable[[], float],
    ) -> tuple[Batch, int, bool]:
        """Add a record (key, value, headers), of this size at most, to a batch.

        `now` is called for the time if the record opens a batch.

        Returns the batch, the record's index in it, and whether there is something new to send.
        """
        queue = self._queues.get(partition)
        batch = queue[-1] if queue else None
        is_news = False
        if (
            batch is None
            or batch.encoded is not None
            or batch.builder.size_bytes + record_bytes > self._batch_bytes
        ):
            batch = Batch(TopicPartition(*partition), self._compression, self._level, now())
            is_news = True
        index = batch.builder.append(timestamp, *fields)
        batch.reserved_bytes += record_bytes
        self.used_bytes += record_bytes
        if is_news:
            self._queues.setdefault(partition, deque()).append(batch)
            self._look_at(batch.partition)
        return batch, index, is_news

    def take_ready(self, now: float) -> list[Batch]:
        """Return the batches that are due, at most one per partition, and mark them in flight."""
        ready = []
        schedule = self._schedule
        while schedule and schedule[0][0] <= now:
            _, partition = heappop(schedule)
            queue = self._queues.get(partition)
            if not queue or partition in self._on_their_way:
                continue
            if self._due_at(queue) > now:
                self._look_at(partition)
                continue
            batch = queue.popleft()
            self._on_their_way[partition] = batch
            ready.append(batch)
        return ready

    def next_due(self) -> float | None:
        """Return when to look for batches again, assuming no response arrives first."""
        schedule = self._schedule
        while schedule and (
            not self._queues.get(schedule[0][1]) or schedule[0][1] in self._on_their_way
        ):
            heappop(schedule)
        return schedule[0][0] if schedule else None

    def is_on_its_way(self, batch: Batch) -> bool:
        """Return whether a batch was taken and neither put back nor finished."""
        return self._on_their_way.get(batch.partition) is batch

    def put_back(self, batches: list[Batch], not_before: float) -> None:
        """Put back batches of one partition to be retried, in order, before all others."""
        partition = batches[0].partition
        self._on_their_way.pop(partition, None)
        for batch in reversed(batches):
            batch.not_before = not_before
            self._queues[partition].appendleft(batch)
        self._look_at(partition)

    def finish(self, batch: Batch) -> None:
        """Forget a batch that is done: its partition may send the next one."""
        self._on_their_way.pop(batch.partition, None)
        self.used_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        if self._queues[batch.partition]:
            self._look_at(batch.partition)
        else:
            del self._queues[batch.partition]

    def take_waiting(self) -> list[Batch]:
        """Remove and return the batches that are not in flight."""
        waiting = [batch for queue in self._queues.values() for batch in queue]
        for batch in waiting:
            self.used_bytes -= batch.reserved_bytes
            batch.reserved_bytes = 0
        self._queues = {partition: deque() for partition in self._on_their_way}
        self._schedule.clear()
        return waiting

    def unfinished(self) -> list[Batch]:
        """Return the unfinished batches, including those in flight."""
        waiting = [batch for queue in self._queues.values() for batch in queue]
        return [*self._on_their_way.values(), *waiting]

    def _look_at(self, partition: TopicPartition) -> None:
        """Schedule the check of a partition with something to send."""
        if partition not in self._on_their_way:
            heappush(self._schedule, (self._due_at(self._queues[partition]), partition))

    def _due_at(self, queue: deque[Batch]) -> float:
        first = queue[0]
        is_closed = len(queue) > 1 or first.encoded is not None
        if is_closed or self._is_pressed or first.builder.size_bytes >= self._batch_bytes:
            return first.not_before
        return max(first.opened_at + self._linger_seconds, first.not_before)
