"""The descriptions of remote segments, kept in the events of a log (seed 003, KIP-405's RLMM).

Every node that has a partition reads the same events and so knows the same of it. Which partitions
of the log a node reads follows from the partitions that it has (`follow`) and from the partitions
of the log that it leads (`lead`), whose deleted topics it sweeps. There is no consumer group.

A change is an event. Whoever asks for it hears when this node has applied its own event, or why
that was refused: all nodes decide alike, in the order of the log. The wait is bounded, and after it
the outcome is unknown, which the caller is told.
"""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from headrace.errors import HeadraceError
from headrace.loop.tasks import Tasks
from headrace.remote.events import encode_event
from headrace.remote.segments import (
    DeleteState,
    InvalidSegment,
    MetadataEvent,
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentUpdate,
    TierError,
    TopicIdPartition,
)
from headrace.tier.event_log import LogReplaced, MetadataEventLog
from headrace.tier.metadata_partition import MetadataPartition, OutcomeUnknown
from headrace.tier.metadata_reader import MetadataReader
from headrace.tier.ports import NotReady
from headrace.tier.snapshots import MetadataSnapshots
from headrace.wire import WireError


class MetadataWaits(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the manager is."""

    consume_wait_ms: int = 120_000
    """How long a change may take until this node has seen it."""
    snapshot_interval_ms: int = 30_000


class TopicMetadata:
    """RemoteMetadata of `tier.ports` on a log of events."""

    def __init__(
        self,
        log: MetadataEventLog,
        snapshots: MetadataSnapshots | None = None,
        waits: MetadataWaits | None = None,
    ) -> None:
        """Take a log that was started; it stays the caller's."""
        self._log = log
        self._snapshots = snapshots
        self._waits = waits or MetadataWaits()
        self._reader = MetadataReader(log, snapshots)
        self.on_changed = self._reader.on_changed
        self.log_replaced = self._reader.log_replaced
        self._tasks = Tasks()

    async def start(self) -> None:
        """Begin to read what is followed."""
        self._reader.start()
        if self._snapshots is not None:
            self._tasks.start(self._run_saving(self._snapshots))

    async def stop(self) -> None:
        """Stop reading and save a snapshot. Changes that are under way fail."""
        await self._tasks.stop()
        await self._reader.stop()
        if self._snapshots is not None:
            await self._save(self._snapshots)

    # Who reads what

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep the descriptions of exactly these partitions from now on."""
        self._reader.follow(partitions)

    def lead(self, metadata_partitions: Iterable[int]) -> None:
        """Read exactly these partitions of the log, too: this node leads them."""
        self._reader.lead(metadata_partitions)

    def partition_of(self, key: PartitionKey) -> int:
        """Return the partition of the log that has the events of a partition."""
        return self._reader.partition_of(key)

    def keys_in(self, metadata_partition: int) -> list[TopicIdPartition]:
        """Return the partitions of which a partition of the log knows something; or NotReady."""
        partition = self._reader.partitions[metadata_partition]
        partition.check_ready()
        return list(partition.cache.partitions())

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions of the log that are read."""
        return frozenset(known.index for known in self._reader.partitions if known.is_assigned)

    @property
    def segment_count(self) -> int:
        """How many segments are known."""
        return sum(known.cache.segment_count for known in self._reader.partitions)

    @property
    def refused_count(self) -> int:
        """How many events were refused, of whatever node."""
        return sum(known.refused_count for known in self._reader.partitions)

    @property
    def troubles(self) -> list[str]:
        """Why partitions that are wanted cannot be read."""
        return [known.explanation for known in self._reader.partitions if known.trouble is not None]

    # Look-ups

    def is_ready(self, key: PartitionKey) -> bool:
        """Return whether look-ups of a partition are answered."""
        return self._reader.of(key).is_ready

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the finished segment of an epoch's lineage that has an offset."""
        return self._ready(key).cache.find(key, epoch, offset)

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the first finished segment from an offset on that may have aborted ones."""
        return self._ready(key).cache.find_with_aborted(key, epoch, offset)

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        """Return the last offset of an epoch among the finished segments, None without one."""
        return self._ready(key).cache.highest_offset(key, epoch)

    def segments(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        """Return the segments in any state but the last, by start offset."""
        return self._ready(key).cache.segments(key)

    def segments_of(self, key: PartitionKey, epoch: int) -> Sequence[RemoteSegment]:
        """Return those that have records of an epoch, by start offset."""
        return self._ready(key).cache.segments_of(key, epoch)

    def unreferenced(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        """Return the finished segments that answer for no offset, because newer ones do."""
        return self._ready(key).cache.unreferenced(key)

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        """Return the bytes of the finished segments that have records of an epoch."""
        return self._ready(key).cache.size_bytes(key, epoch)

    def delete_state(self, key: PartitionKey) -> DeleteState | None:
        """Return how far the deletion of a partition has come, None if it has not begun."""
        return self._ready(key).cache.delete_state(key)

    def _ready(self, key: PartitionKey) -> MetadataPartition:
        partition = self._reader.of(key)
        partition.check_ready()
        return partition

    # Changes

    async def add(self, segment: RemoteSegment) -> None:
        """Announce that a copy begins; raise TierError if the description is refused."""
        await self._change(segment)

    async def update(self, update: SegmentUpdate) -> None:
        """Announce the next state of a segment; raise TierError if it does not follow."""
        await self._change(update)

    async def delete_partition(self, delete: PartitionDelete) -> None:
        """Announce a step of the deletion of a partition; raise TierError if it is refused."""
        await self._change(delete)

    async def catch_up(self, key: PartitionKey) -> None:
        """Return when this node has applied what all nodes had published before the call.

        A new leader calls it: its predecessor's last events may be on their way. Raise NotReady.
        """
        partition = self._reader.of(key)
        with self._reader.using(partition):
            try:
                async with asyncio.timeout(self._waits.consume_wait_ms / 1000):
                    await partition.wait_ready()
                    await self._read_up(partition)
            except TimeoutError:
                raise NotReady(partition.explanation) from None

    async def _change(self, event: MetadataEvent) -> None:
        try:
            data = encode_event(event)
        except WireError as error:
            raise InvalidSegment(f"{event.partition.text}: {error}") from error
        partition = self._reader.of(event.partition.key)
        is_published = False
        with self._reader.using(partition):
            try:
                async with asyncio.timeout(self._waits.consume_wait_ms / 1000):
                    await partition.wait_ready()
                    await self._check(partition, event)
                    is_published = True
                    offset = await self._log.publish(partition.index, data)
                    await partition.wait_applied(offset)
                    if (refusal := partition.refusal_of(offset)) is not None:
                        raise refusal
            except TimeoutError:
                if not is_published:
                    raise NotReady(partition.explanation) from None
                raise OutcomeUnknown(
                    f"a change of {event.partition.text} was not seen to take effect within "
                    f"{self._waits.consume_wait_ms} ms: whether it did is unknown"
                ) from None
            except LogReplaced as error:
                self._reader.notice(error)
                raise

    async def _check(self, partition: MetadataPartition, event: MetadataEvent) -> None:
        """Raise TierError if an event would be refused: better than to publish it."""
        try:
            partition.cache.check(event)
        except TierError:
            await self._read_up(partition)  # perhaps another node has just made it right
            partition.cache.check(event)

    async def _read_up(self, partition: MetadataPartition) -> None:
        """Wait until everything is applied that is in a partition of the log; or NotReady."""
        try:
            bounds = await self._log.bounds(partition.index)
            await partition.wait_applied(bounds.high_watermark - 1)
        except HeadraceError as error:
            self._reader.notice(error)
            raise NotReady(f"{partition.explanation}: {error}") from error

    # Snapshots

    async def _run_saving(self, snapshots: MetadataSnapshots) -> None:
        while True:
            await asyncio.sleep(self._waits.snapshot_interval_ms / 1000)
            await self._save(snapshots)

    async def _save(self, snapshots: MetadataSnapshots) -> None:
        """Save every partition that has advanced."""
        for partition in self._reader.partitions:
            offset = partition.next_offset
            if offset > partition.saved_offset and await snapshots.save(
                partition.index, self._log.log_id, offset, partition.cache
            ):
                partition.saved_offset = offset
