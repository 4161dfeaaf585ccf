"""Reading records from the tier: by offset for Fetch, by time for ListOffsets.

A read finds the segment by the log's leader epochs, the place in it by its offset index, and the
bytes in chunks that are fetched once for all readers. Everything that comes from the store is
checked against the segment's description; what does not fit is KAFKA_STORAGE_ERROR, with a line in
the node's log, and forgotten so that the next read fetches it again. OFFSET_OUT_OF_RANGE is never
raised here: a client skips records at it, and what the log's start is the log knows.

A read whose bytes are at hand does not wait at all.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Any, Final

from headrace.log.disk import Disk
from headrace.log.epochs import LeaderEpochs
from headrace.log.lookup import Found, Run
from headrace.loop.tasks import Tasks
from headrace.records.aborted import AbortedTransaction
from headrace.remote.indexes import beginning_of, place_of
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import (
    PartitionKey,
    RemoteSegment,
    SegmentId,
    SegmentState,
    TierError,
    TopicIdPartition,
)
from headrace.tier.aborted import find_all_aborted
from headrace.tier.awaited import Awaited
from headrace.tier.batches import Batch, Walk, Wanted
from headrace.tier.chunks import Chunks
from headrace.tier.index_cache import IndexCache
from headrace.tier.lineage import Stretch, find_stretch
from headrace.tier.ports import (
    NotReady,
    RemoteMetadata,
    RemoteRecords,
    SegmentSource,
    Throttled,
)
from headrace.tier.read_ahead import ReadAhead
from headrace.tier.read_limits import ReadLimits
from headrace.tier.segment_access import Deleted, SegmentAccess
from headrace.tier.time_lookup import TimeLookup

ATTEMPTS_MAX: Final = 3
"""How often a read begins again as its segment was deleted meanwhile."""
JOINED_BYTES_MAX: Final = 256 * 1024
"""How much of two chunks is copied for one read; a batch is copied whole however large.

A sequential reader has such a read in every chunk, so a copy of a megabyte is a quarter of all.
"""
THROTTLED_SECONDS: Final = 0.1
"""How long a read that is refused for now takes."""
TIDY_INTERVAL_MS: Final = 30_000
_EMPTY: Final = memoryview(b"")
_NO_ABORTED: Final[tuple[list[AbortedTransaction], None]] = ([], None)


class RemoteReader:
    """Reads the partitions of a node from the tier. Used from the loop."""

    def __init__(
        self,
        metadata: RemoteMetadata,
        source: SegmentSource,
        disk: Disk,
        limits: ReadLimits,
        *,
        now_ms: Callable[[], int],
        run: Run | None = None,
    ) -> None:
        """`run` has a thread do what takes long."""
        self._metadata = metadata
        self._now_ms = now_ms
        self._changed: dict[PartitionKey, None] = {}
        self._tidied_ms = now_ms()
        self._tasks = Tasks()
        self._awaited = Awaited(now_ms)
        self.chunks: Final = Chunks(source, limits, now_ms, self._awaited)
        self.indexes: Final = IndexCache(disk, source, limits, now_ms, self._awaited)
        self._ahead = ReadAhead(self.chunks, limits.read_ahead_bytes_max)
        self._access = SegmentAccess(metadata, self.chunks, self.indexes)
        self._times = TimeLookup(
            metadata, self._access, run or _in_thread, limits.inflated_bytes_max
        )
        self.configure(limits)
        self.request_count = 0
        self.byte_count = 0
        self.throttled_count = 0
        self._on_changed: Final = self._changed.setdefault
        metadata.on_changed.append(self._on_changed)

    def configure(self, limits: ReadLimits) -> None:
        """Go on with other limits; the size of chunks stays."""
        self._access.waiting_max = limits.fills_max + limits.pending_max
        self._times.inflated_bytes_max = limits.inflated_bytes_max
        self.chunks.configure(limits)
        self.indexes.configure(limits)
        self._ahead.configure(limits.read_ahead_bytes_max)

    @property
    def waiting_count(self) -> int:
        """How many reads wait for the store."""
        return self._access.waiting

    @property
    def error_count(self) -> int:
        """How many reads failed."""
        return self._access.error_count

    # By offset

    async def read(
        self,
        partition: TopicIdPartition,
        epochs: LeaderEpochs,
        offset: int,
        bytes_max: int,
        *,
        up_to: int,
        is_first_whole: bool = True,
        with_aborted: bool = False,
    ) -> RemoteRecords:
        """Read the bytes of batches from the one with `offset` on, none that reaches `up_to`.

        They end where their bytes or their chunk do, which may be within a batch; the first one is
        whole if it has to be. Raise NotReady, or KafkaError: KAFKA_STORAGE_ERROR for trouble with
        the store.
        """
        self._tidy_sometimes()
        self.request_count += 1
        self._access.waiting += 1
        try:
            for _ in range(ATTEMPTS_MAX):
                try:
                    found = await self._read(
                        partition.key,
                        epochs,
                        offset,
                        bytes_max,
                        up_to=up_to,
                        is_first_whole=is_first_whole,
                    )
                    records, stretch, gap_offset = found
                    if stretch is None:
                        return RemoteRecords(_EMPTY, [], is_past_tier=True, gap_offset=gap_offset)
                    aborted, asks_local = _NO_ABORTED
                    if records and with_aborted:
                        aborted, asks_local = await find_all_aborted(
                            self._metadata,
                            epochs,
                            self._access.index,
                            stretch,
                            records=records,
                            up_to=up_to,
                        )
                    self.byte_count += len(records)
                    return RemoteRecords(
                        records, aborted, asks_local=asks_local, gap_offset=gap_offset
                    )
                except Deleted:
                    continue
            raise _gone(partition, offset)
        except asyncio.CancelledError:
            self._awaited.note(partition.key)
            raise
        except Throttled:
            self.throttled_count += 1
            await asyncio.sleep(THROTTLED_SECONDS)  # or the client would be back at once
            return RemoteRecords(_EMPTY, [], is_throttled=True)
        except TierError as error:
            raise self._access.failed(error) from error
        finally:
            self._access.waiting -= 1

    async def _read(
        self,
        key: PartitionKey,
        epochs: LeaderEpochs,
        offset: int,
        bytes_max: int,
        *,
        up_to: int,
        is_first_whole: bool,
    ) -> tuple[memoryview, Stretch | None, int | None]:
        """Return records, where they are from, and an offset that no segment has before them.

        The second is None if there is no record before `up_to`.
        """
        gap_offset: int | None = None
        while True:
            stretch = find_stretch(self._metadata, key, epochs, offset)
            if stretch is None or stretch.begin_offset >= up_to:
                is_gap = gap_offset is None and offset < up_to
                return _EMPTY, None, offset if is_gap else gap_offset
            if stretch.begin_offset > offset and gap_offset is None:
                gap_offset = offset
            end_offset = min(stretch.end_offset, up_to)
            batch = await self._find_batch(stretch)
            if batch is not None and batch.last_offset < end_offset:
                if is_first_whole:
                    bytes_max = max(bytes_max, batch.size_bytes)
                records = await self._take(stretch.segment, batch, bytes_max, end_offset)
                following = partial(self._following, epochs, up_to)
                end = batch.position + len(records)
                self._ahead.advance(stretch.segment, batch.position, end, following)
                return records, stretch, gap_offset
            offset = stretch.end_offset

    async def _find_batch(self, stretch: Stretch) -> Batch | None:
        """Return the batch with the first offset of a stretch, or the next one of its segment."""
        segment, offset = stretch.segment, stretch.begin_offset
        if offset <= segment.start_offset:
            place = beginning_of(segment)
            self.indexes.begin(segment, ObjectKind.OFFSET_INDEX)  # the next read will want it
        else:
            index = await self._access.index(segment, ObjectKind.OFFSET_INDEX)
            place = place_of(index.data, segment, offset)
        walk = Walk(segment, place.position, Wanted(offset), first_offset_max=place.offset_max)
        return await self._access.walk(segment, walk)

    async def _take(
        self,
        segment: RemoteSegment,
        batch: Batch,
        bytes_max: int,
        end_offset: int,
    ) -> memoryview:
        """Return the bytes from a batch on, none of a batch that reaches an offset."""
        begin = batch.position
        end = min(begin + bytes_max, segment.size_bytes)
        if end_offset <= segment.end_offset and end > begin + batch.size_bytes:
            end = min(end, await self._end_position(segment, end_offset, begin, end))
        chunk_end = (begin // self.chunks.chunk_bytes + 1) * self.chunks.chunk_bytes
        if end > chunk_end:
            # A view of one chunk is free; a copy is for what would be little or no whole batch.
            batch_end = min(begin + batch.size_bytes, end)
            joined_end = max(min(end, begin + JOINED_BYTES_MAX), batch_end)
            is_worth = 2 * (chunk_end - begin) >= joined_end - begin
            end = chunk_end if is_worth and batch_end <= chunk_end else joined_end
        return await self._access.batches(segment, begin, end)

    async def _end_position(self, segment: RemoteSegment, offset: int, begin: int, end: int) -> int:
        """Return where the batch that reaches an offset begins, or `end` if it is not before."""
        index = await self._access.index(segment, ObjectKind.OFFSET_INDEX)
        place = place_of(index.data, segment, offset)
        if place.position >= end:
            return end
        walk = Walk(segment, place.position, Wanted(offset), first_offset_max=place.offset_max)
        batch = await self._access.walk(segment, walk)
        return end if batch is None else max(batch.position, begin)

    def _following(
        self, epochs: LeaderEpochs, up_to: int, segment: RemoteSegment
    ) -> RemoteSegment | None:
        """Return the segment that a sequential reader will want next, if it is known."""
        offset = segment.next_offset
        epoch = epochs.epoch_for_offset(offset) if offset < up_to else None
        try:
            found = None if epoch is None else self._metadata.find(segment.key, epoch, offset)
        except NotReady:
            return None
        if found is not None:
            self.indexes.begin(found, ObjectKind.OFFSET_INDEX)
        return found

    # By time

    async def find_time(
        self,
        partition: TopicIdPartition,
        epochs: LeaderEpochs,
        timestamp: int,
        *,
        start_offset: int,
        up_to: int,
    ) -> Found | None:
        """Return the first record that is as late, from an offset on and before another.

        None if the tier has none. The errors are those of `read`; one more is Throttled's, as
        KAFKA_STORAGE_ERROR.
        """
        self._tidy_sometimes()
        self.request_count += 1
        self._access.waiting += 1
        try:
            for _ in range(ATTEMPTS_MAX):
                try:
                    return await self._times.find(
                        partition.key, epochs, timestamp, start_offset, up_to
                    )
                except Deleted:
                    continue
            raise _gone(partition, start_offset)
        except asyncio.CancelledError:
            self._awaited.note(partition.key)
            raise
        except TierError as error:
            raise self._access.failed(error) from error
        finally:
            self._access.waiting -= 1

    # Partitions that leave, segments that are deleted

    def forget(self, key: PartitionKey) -> None:
        """Drop what is kept of a partition that leaves this node."""
        self._ahead.forget(key)
        self._drop_all(key, frozenset())
        self._changed.pop(key, None)

    def _drop_all(self, key: PartitionKey, kept: AbstractSet[SegmentId]) -> None:
        for segment_id in self.chunks.segments_of(key):
            if segment_id not in kept:
                self.chunks.drop_segment(segment_id)
        for segment_id in self.indexes.segments_of(key):
            if segment_id not in kept:
                self.indexes.drop_segment(segment_id)

    def _tidy_sometimes(self) -> None:
        now_ms = self._now_ms()
        if now_ms - self._tidied_ms >= TIDY_INTERVAL_MS:
            self._tidied_ms = now_ms
            self._tasks.start(self.tidy())

    async def tidy(self) -> None:
        """Drop what is kept of deleted segments, and indexes that were not used for long."""
        changed = tuple(self._changed)
        self._changed.clear()
        for key in changed:
            if not self.chunks.segments_of(key) and not self.indexes.segments_of(key):
                continue
            try:
                segments = self._metadata.segments(key)
            except NotReady:
                continue
            finished = SegmentState.COPY_FINISHED
            self._drop_all(key, {each.id for each in segments if each.state == finished})
            await asyncio.sleep(0)
        self.indexes.expire()
        self.chunks.expire()

    async def close(self) -> None:
        """Cancel every fetch that is under way."""
        with suppress(ValueError):
            self._metadata.on_changed.remove(self._on_changed)
        await self._tasks.stop()
        await self.chunks.close()
        await self.indexes.close()


def _gone(partition: TopicIdPartition, offset: int) -> Deleted:
    return Deleted(
        f"{partition.text}: the segments from offset {offset} on were deleted during "
        f"{ATTEMPTS_MAX} reads"
    )


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)
