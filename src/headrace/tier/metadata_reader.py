"""Reading the log of remote metadata: which partitions of it, from where, and what becomes of it.

Every partition of the log that is wanted is read from where it was left, or from its snapshot. One
that cannot be read now, for want of a leader, keeps no other waiting. An event of a later version
stops its partition: what comes after it cannot be trusted, and nothing of it is ready from then on.
It goes on when a newer version of the software reads the event, or when an operator deletes the
records up to it. A record that no version can have written is passed over, counted and logged: any
client with the right may have produced it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.errors import HeadraceError
from headrace.loop.tasks import Tasks
from headrace.remote.events import NoEvent, UnreadableEvent, decode_event
from headrace.remote.placement import metadata_partition
from headrace.remote.segments import InvalidSegment, PartitionKey, TierError, TopicIdPartition
from headrace.tier.event_log import (
    EventBatch,
    EventSubscription,
    LogBounds,
    LogReplaced,
    MetadataEventLog,
)
from headrace.tier.metadata_partition import MetadataPartition
from headrace.tier.snapshots import MetadataSnapshots

logger = logging.getLogger(__name__)

EVENTS_PER_SLICE: Final = 100
"""How many events are applied in one turn of the loop, each some 20 microseconds."""
RETRY_MS: Final = 100
RETRY_MAX_MS: Final = 5_000
BLOCKED_RETRY_SECONDS: Final = 30.0
"""How long a partition rests whose next event cannot be read."""


class MetadataReader:
    """Keeps the partitions of the log that this node wants up to date."""

    def __init__(self, log: MetadataEventLog, snapshots: MetadataSnapshots | None) -> None:
        self.on_changed: list[Callable[[PartitionKey], None]] = []
        """Called with a followed partition when it gets ready, and after an event of it."""
        self.log_replaced = asyncio.Event()
        """Set when the log is another one: this reader is of no more use."""
        self.partitions = [MetadataPartition(index) for index in range(log.partition_count)]
        self._log = log
        self._snapshots = snapshots
        self._asked: dict[PartitionKey, None] | None = None
        """What is to be followed, if that has changed."""
        self._index_of: dict[PartitionKey, int] = {}
        """What is followed, and where in the log it is."""
        self._keys_of: dict[int, list[PartitionKey]] = {}
        self._led: frozenset[int] = frozenset()
        self._starting: set[int] = set()
        """The partitions of the log of which it is being found out where to read on."""
        self._failing: set[int] = set()
        """Those among them of which that is not known."""
        self._subscription: EventSubscription = log.subscribe()
        self._assignment_changed = asyncio.Event()
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to read what is wanted."""
        self._tasks.start(self._run_assignment())
        self._tasks.start(self._run_reading())

    async def stop(self) -> None:
        """Stop reading. Whoever waits for an event fails."""
        for partition in self.partitions:
            partition.stop()
        await self._tasks.stop()
        await self._subscription.close()

    # Who wants what

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep the descriptions of exactly these partitions from now on."""
        self._asked = {known.key: None for known in partitions}
        self._assignment_changed.set()

    def lead(self, metadata_partitions: Iterable[int]) -> None:
        """Read exactly these partitions of the log, too: this node leads them."""
        count = len(self.partitions)
        self._led = frozenset(index for index in metadata_partitions if 0 <= index < count)
        self._assignment_changed.set()

    def partition_of(self, key: PartitionKey) -> int:
        """Return the partition of the log that has the events of a partition."""
        index = self._index_of.get(key)
        return metadata_partition(key, len(self.partitions)) if index is None else index

    def of(self, key: PartitionKey) -> MetadataPartition:
        """Return the partition of the log that has the events of a partition."""
        return self.partitions[self.partition_of(key)]

    @contextmanager
    def using(self, partition: MetadataPartition) -> Iterator[None]:
        """Keep a partition read for as long as something is done with it."""
        partition.begin_change()
        if not partition.is_assigned:
            self._assignment_changed.set()
        try:
            yield
        finally:
            partition.end_change()
            if partition.index not in self._keys_of:
                self._assignment_changed.set()

    def notice(self, error: Exception) -> None:
        """Look at an error of the log."""
        if isinstance(error, LogReplaced):
            self.log_replaced.set()

    def _wanted(self) -> set[int]:
        used = (known.index for known in self.partitions if known.users)
        return {*self._keys_of, *self._led, *used}

    # The assignment

    async def _run_assignment(self) -> None:
        while True:
            await self._assignment_changed.wait()
            self._assignment_changed.clear()
            await self._place_followed()
            wanted = self._wanted()
            now = asyncio.get_running_loop().time()
            for partition in self.partitions:
                index = partition.index
                if index not in wanted:
                    self._subscription.remove(index)
                    partition.unassign()
                elif (
                    not partition.is_assigned
                    and index not in self._starting
                    and (partition.trouble is None or now >= partition.blocked_until)
                ):
                    # One that has no leader does not keep the others waiting.
                    self._starting.add(index)
                    self._tasks.start(self._start_reading(partition))

    async def _place_followed(self) -> None:
        """Look up which partitions of the log the followed ones need, in slices."""
        while (asked := self._asked) is not None:
            known = self._index_of
            index_of: dict[PartitionKey, int] = {}
            keys_of: dict[int, list[PartitionKey]] = {}
            for count, (key, _) in enumerate(asked.items(), 1):
                if (index := known.get(key)) is None:
                    index = metadata_partition(key, len(self.partitions))
                index_of[key] = index
                keys_of.setdefault(index, []).append(key)
                if count % EVENTS_PER_SLICE == 0:
                    await asyncio.sleep(0)
            if asked is self._asked:
                self._asked, self._index_of, self._keys_of = None, index_of, keys_of

    async def _start_reading(self, partition: MetadataPartition) -> None:
        """Read a partition from where it was left; it is ready at what is there now."""
        pause_ms = RETRY_MS
        try:
            await self._load(partition)
            while partition.index in self._wanted():
                try:
                    bounds = await self._log.bounds(partition.index)
                    break
                except (HeadraceError, OSError, TimeoutError) as error:
                    self.notice(error)
                    partition.delay = f"its end is not known: {error}"
                    if not self._failing:
                        logger.warning(
                            "the end of metadata partition %d is not known, nor perhaps that of "
                            "others: %s",
                            partition.index,
                            error,
                        )
                    self._failing.add(partition.index)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
            else:
                return
            if partition.index in self._wanted():
                self._begin(partition, bounds)
        finally:
            self._failing.discard(partition.index)
            self._starting.discard(partition.index)
            self._assignment_changed.set()

    def _begin(self, partition: MetadataPartition, bounds: LogBounds) -> None:
        start_offset, high_watermark = bounds
        if partition.next_offset > high_watermark:
            self._start_over(partition)
        if partition.next_offset < start_offset:
            if partition.next_offset:
                logger.error(
                    "metadata partition %d was applied up to offset %d and begins at %d: events "
                    "between them were deleted",
                    partition.index,
                    partition.next_offset,
                    start_offset,
                )
            partition.next_offset = start_offset
        term = self._subscription.add(partition.index, partition.next_offset)
        partition.assign(term, high_watermark)
        if partition.is_ready:
            self._tasks.start(self._tell_all(partition))

    async def _load(self, partition: MetadataPartition) -> None:
        if self._snapshots is None or partition.is_loaded:
            return
        found = await self._snapshots.load(partition.index, self._log.log_id)
        partition.is_loaded = True
        if found is not None:
            partition.cache, partition.next_offset = found
            partition.saved_offset = partition.next_offset

    def _start_over(self, partition: MetadataPartition) -> None:
        logger.error(
            "metadata partition %d was applied up to offset %d, which it does not have: "
            "its log was cut or made anew, and is read from its start",
            partition.index,
            partition.next_offset,
        )
        partition.start_over()

    # Reading

    async def _run_reading(self) -> None:
        pause_ms = RETRY_MS
        while True:
            try:
                while True:
                    await self._apply(await self._subscription.next())
                    pause_ms = RETRY_MS
            except Exception as error:
                self.notice(error)
                if pause_ms == RETRY_MS:
                    logger.exception("metadata events cannot be read")
                broken, self._subscription = self._subscription, self._log.subscribe()
                for partition in self.partitions:
                    if partition.is_assigned:
                        partition.unassign(f"events cannot be read: {error}")
            await broken.close()
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
            self._assignment_changed.set()

    async def _apply(self, batch: EventBatch) -> None:
        """Apply events, some per turn of the loop."""
        partition = self.partitions[batch.partition]
        if batch.term != partition.term:
            return
        if batch.events and batch.events[0].offset < partition.next_offset:
            self._start_over(partition)
            self._subscription.remove(partition.index)
            partition.unassign("its log is read from the start")
            self._assignment_changed.set()
            return
        for start in range(0, len(batch.events), EVENTS_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            if batch.term != partition.term:
                return  # it was removed, or is read anew from where it was left
            was_ready = partition.is_ready
            changed: set[PartitionKey] = set()
            for offset, value in batch.events[start : start + EVENTS_PER_SLICE]:
                try:
                    if value is not None:
                        changed.add(self._apply_event(partition, value))
                except NoEvent as error:
                    self._refuse(partition, offset, error)
                except UnreadableEvent as error:
                    self._block(partition, f"the event at offset {offset} is unreadable: {error}")
                    return
                except TierError as error:
                    self._refuse(partition, offset, error)
                partition.next_offset = offset + 1
            self._tell(partition, changed, was_ready=was_ready)
        if batch.term == partition.term:
            was_ready = partition.is_ready
            partition.next_offset = max(partition.next_offset, batch.next_offset)
            self._tell(partition, set(), was_ready=was_ready)
            if batch.failure is not None:
                self._block(partition, batch.failure)

    def _apply_event(self, partition: MetadataPartition, value: bytes) -> PartitionKey:
        event = decode_event(value)
        key = event.partition.key
        if (index := self.partition_of(key)) != partition.index:
            raise InvalidSegment(
                f"an event of {event.partition.text} is in metadata partition {partition.index} "
                f"and belongs to {index}"
            )
        partition.cache.apply(event)
        return key

    def _refuse(self, partition: MetadataPartition, offset: int, error: TierError) -> None:
        if not partition.refused_count:
            logger.warning(
                "metadata partition %d: the event at offset %d is refused, as by every node: %s; "
                "further ones are counted only",
                partition.index,
                offset,
                error,
            )
        partition.refuse(offset, error)

    def _block(self, partition: MetadataPartition, why: str) -> None:
        """Stop reading a partition for a while."""
        if partition.last_trouble != why:
            logger.error(
                "metadata partition %d stops: %s. Upgrade this node, or delete the records up to "
                "there",
                partition.index,
                why,
            )
        self._subscription.remove(partition.index)
        loop = asyncio.get_running_loop()
        partition.block(why, loop.time() + BLOCKED_RETRY_SECONDS)
        loop.call_later(BLOCKED_RETRY_SECONDS, self._assignment_changed.set)

    def _tell(
        self, partition: MetadataPartition, changed: set[PartitionKey], *, was_ready: bool
    ) -> None:
        """Notify waiters and listeners."""
        partition.wake()
        if not was_ready and partition.is_ready:
            self._tasks.start(self._tell_all(partition))
        elif was_ready:
            for key in changed:
                if key in self._index_of:
                    self._call(key)

    async def _tell_all(self, partition: MetadataPartition) -> None:
        """Notify listeners that a partition of the log is ready.

        One in a turn of the loop: each looks at all segments of its partition.
        """
        for key in tuple(self._keys_of.get(partition.index, ())):
            if key in self._index_of:
                self._call(key)
                await asyncio.sleep(0)

    def _call(self, key: PartitionKey) -> None:
        for listener in self.on_changed:
            try:
                listener(key)
            except Exception:
                logger.exception("a listener of remote segments failed")
