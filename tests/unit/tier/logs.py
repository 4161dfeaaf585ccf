"""Logs of events that fail on purpose, and waiting for conditions."""

import asyncio
from collections.abc import Callable

from headrace.errors import ErrorCode, KafkaError
from headrace.tier.event_log import (
    EventBatch,
    InProcessEventLog,
    InProcessSubscription,
    LogBounds,
    PublishFailed,
)


class FaultyLog(InProcessEventLog):
    """A log that is told what does not work."""

    def __init__(self, partition_count: int = 5, log_id: bytes = b"faulty") -> None:
        super().__init__(partition_count, log_id)
        self.has_bounds = True
        self.without_leader: set[int] = set()
        self.is_publishing = True
        self.is_delivering = asyncio.Event()
        self.is_delivering.set()
        self.reading_error: Exception | None = None
        self.added: list[tuple[int, int]] = []
        self.start_offsets = dict.fromkeys(range(partition_count), 0)

    async def bounds(self, partition: int) -> LogBounds:
        if not self.has_bounds or partition in self.without_leader:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
        found = await super().bounds(partition)
        return LogBounds(self.start_offsets[partition], found.high_watermark)

    async def publish(self, partition: int, event: bytes) -> int:
        if not self.is_publishing:
            raise PublishFailed("no response")
        return await super().publish(partition, event)

    def subscribe(self) -> "FaultySubscription":
        subscription = FaultySubscription(self)
        self._subscriptions.append(subscription)
        return subscription


class FaultySubscription(InProcessSubscription):
    def __init__(self, log: FaultyLog) -> None:
        super().__init__(log)
        self._faults = log

    def add(self, partition: int, offset: int) -> int:
        self._faults.added.append((partition, offset))
        return super().add(partition, offset)

    async def next(self) -> EventBatch:
        while True:
            await self._faults.is_delivering.wait()
            batch = await super().next()
            if self._faults.reading_error is not None:
                error, self._faults.reading_error = self._faults.reading_error, None
                raise error
            if self._faults.is_delivering.is_set():
                return batch
            self._positions[batch.partition] = batch.events[0].offset


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, on a virtual or a real loop."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
