"""The bytes of segments in the tier, fetched and kept in memory in aligned chunks.

Aligned, so that readers at different offsets share what was fetched. A chunk is fetched once,
however many wait for it, and goes on when they give up. A read within a chunk is a view of it; one
that crosses chunks is a copy.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from headrace.loop.quota import Quota
from headrace.remote.indexes import DamagedSegment
from headrace.remote.segments import PartitionKey, RemoteSegment, SegmentId
from headrace.remote.store import StoreError
from headrace.tier.awaited import Awaited
from headrace.tier.checks import Checks
from headrace.tier.fills import Budget, Fills, Lease
from headrace.tier.ports import SegmentSource, Throttled
from headrace.tier.read_limits import ReadLimits

ChunkKey: TypeAlias = tuple[SegmentId, int]
UNREAD_MS_MAX: Final = 10_000
"""After how long what was fetched ahead makes room for others, if nobody came for it."""
_EMPTY: Final = memoryview(b"")
_NONE: Final = (None, 0)


class Chunks:
    """The chunks in memory and those on their way."""

    def __init__(
        self,
        source: SegmentSource,
        limits: ReadLimits,
        now_ms: Callable[[], int],
        awaited: Awaited | None = None,
    ) -> None:
        """What was fetched of partitions in `awaited` may exceed the cache for a while."""
        self._awaited = Awaited(now_ms) if awaited is None else awaited
        self._partition_of: dict[SegmentId, PartitionKey] = {}
        """The partition of each segment that has chunks here."""
        self._source = source
        self._now_ms = now_ms
        self._budget = Budget(limits.fill_bytes_max, limits.fills_max)
        self._quota = Quota(window_count=limits.quota_windows, window_ms=limits.quota_window_ms)
        self._fills: Fills[ChunkKey, memoryview] = Fills()
        self._held: OrderedDict[ChunkKey, memoryview] = OrderedDict()
        self._numbers: dict[SegmentId, set[int]] = {}
        """The chunks of each segment that are held."""
        self._segments: dict[PartitionKey, dict[SegmentId, None]] = {}
        """The segments of each partition that have chunks here."""
        self._ahead: dict[ChunkKey, tuple[Lease, int]] = {}
        """The chunks that nobody has asked for yet, held or on their way, and since when."""
        self._ahead_bytes = 0
        self.chunk_bytes: Final = limits.chunk_bytes
        self.checks: Final = Checks(self._held, limits.chunk_bytes)
        self.held_bytes = 0
        self.fetched_bytes = 0
        self.fetch_count = 0
        self.wasted_count = 0
        """How many chunks were fetched ahead and dropped before anybody read them."""
        self.configure(limits)

    def configure(self, limits: ReadLimits) -> None:
        """Go on with other limits; the size of chunks and the windows of the quota stay."""
        self._limits = limits
        self._budget.bytes_max, self._budget.count_max = limits.fill_bytes_max, limits.fills_max
        self._evict()

    # Reading

    def view(self, segment: RemoteSegment, begin: int, end: int) -> memoryview | None:
        """Return bytes of a segment if all of them are in memory."""
        size = self.chunk_bytes
        number = begin // size
        if end <= (number + 1) * size:
            chunk = self._touch((segment.id, number))
            return None if chunk is None else chunk[begin - number * size : end - number * size]
        parts = []
        for each in range(number, (end - 1) // size + 1):
            chunk = self._touch((segment.id, each))
            if chunk is None:
                return None
            parts.append(chunk)
        return _joined(parts, begin - number * size, end - begin)

    async def read(self, segment: RemoteSegment, begin: int, end: int) -> memoryview:
        """Return bytes of a segment; raise StoreError, DamagedSegment or Throttled."""
        assert 0 <= begin <= end <= segment.size_bytes, f"{begin} to {end} of {segment.text}"
        if begin == end:
            return _EMPTY
        found = self.view(segment, begin, end)
        if found is not None:
            return found
        numbers = range(begin // self.chunk_bytes, (end - 1) // self.chunk_bytes + 1)
        if len(numbers) == 1:
            parts = [await self._chunk(segment, numbers[0])]
        else:
            for number in numbers:
                self._begin(segment, number)
            parts = [await self._chunk(segment, number) for number in numbers]
        return _joined(parts, begin - numbers[0] * self.chunk_bytes, end - begin)

    async def _chunk(self, segment: RemoteSegment, number: int) -> memoryview:
        key = (segment.id, number)
        held = self._touch(key)
        if held is not None:
            return held
        self._begin(segment, number)
        return await self._fills.wait(key)

    def _touch(self, key: ChunkKey) -> memoryview | None:
        """Return a chunk that is held, as the one that is dropped last."""
        chunk = self._held.get(key)
        if chunk is not None:
            self._held.move_to_end(key)
            if key in self._ahead:
                self._forget_ahead(key)
        return chunk

    def _forget_ahead(self, key: ChunkKey) -> None:
        self._ahead_bytes -= self._ahead.pop(key)[0].byte_count

    # Fetching

    def _begin(self, segment: RemoteSegment, number: int) -> None:
        """Begin to fetch a chunk for somebody who waits, if it is not here or on its way."""
        key = (segment.id, number)
        if key in self._fills:
            if key in self._ahead:
                self._forget_ahead(key)
            return
        if key in self._held:
            return
        if self._is_over_quota():
            raise Throttled("the quota for reads from the tier is used up")
        lease = self._budget.lease(self._size_of(segment, number))
        self._start(segment, number, lease)

    def begin_ahead(self, segment: RemoteSegment, number: int) -> bool:
        """Begin to fetch a chunk that somebody will want; return whether that was possible.

        It is not if others wait for the store, if what was fetched ahead would fill half of the
        cache, or if the quota is used up.
        """
        key = (segment.id, number)
        if key in self._held or key in self._fills:
            return True
        size = self._size_of(segment, number)
        if not self._has_room_ahead(size) or self._is_over_quota():
            return False
        lease = self._budget.lease(size)
        if not lease.try_take():
            return False
        self._ahead[key] = lease, self._now_ms()
        self._ahead_bytes += size
        self._start(segment, number, lease)
        return True

    def _has_room_ahead(self, size: int) -> bool:
        """Drop what nobody came for; return whether there is room to fetch so much ahead."""
        bytes_max = self._limits.chunk_cache_bytes // 2
        while self._ahead_bytes + size > bytes_max:
            oldest = next(iter(self._ahead), None)
            if oldest is None or oldest not in self._held:
                return False
            if self._now_ms() - self._ahead[oldest][1] < UNREAD_MS_MAX:
                return False
            self._drop(oldest)
        return True

    def _start(self, segment: RemoteSegment, number: int, lease: Lease) -> None:
        key = (segment.id, number)

        def on_end() -> None:
            lease.release()
            if key not in self._held and self._ahead.get(key, _NONE)[0] is lease:
                self._forget_ahead(key)

        self._fills.begin(key, self._fetch(segment, number, lease), on_end)

    async def _fetch(self, segment: RemoteSegment, number: int, lease: Lease) -> memoryview:
        await lease.wait()
        begin, size = number * self.chunk_bytes, self._size_of(segment, number)
        self.fetch_count += 1
        self._quota.record(size, self._now_ms())
        try:
            async with asyncio.timeout(self._limits.fill_timeout_ms / 1000):
                data = await self._source.fetch(segment, begin, begin + size)
        except TimeoutError:
            raise StoreError(
                f"segment {segment.text} at {begin}: nothing came within "
                f"{self._limits.fill_timeout_ms} ms"
            ) from None
        if len(data) != size:
            raise DamagedSegment(segment, f"it has {len(data)} bytes from {begin} on, not {size}")
        self.fetched_bytes += size
        chunk = memoryview(data).toreadonly()
        self._keep(segment, (segment.id, number), chunk)
        return chunk

    def _is_over_quota(self) -> bool:
        return self._quota.wait_ms(self._limits.bytes_per_second, self._now_ms()) > 0

    def _size_of(self, segment: RemoteSegment, number: int) -> int:
        return min(self.chunk_bytes, segment.size_bytes - number * self.chunk_bytes)

    # Keeping

    def _keep(self, segment: RemoteSegment, key: ChunkKey, chunk: memoryview) -> None:
        self._held[key] = chunk
        self.held_bytes += len(chunk)
        self._numbers.setdefault(segment.id, set()).add(key[1])
        self._partition_of[segment.id] = segment.key
        self._segments.setdefault(segment.key, {})[segment.id] = None
        self._evict()
        self.checks.on_held(segment, key[1])

    def expire(self) -> None:
        """Drop what is too much, and was kept for readers that did not come back."""
        self._evict()

    def _evict(self) -> None:
        bytes_max = self._limits.chunk_cache_bytes
        while self.held_bytes > bytes_max:
            if self._awaited and self.held_bytes <= bytes_max + self._limits.fill_bytes_max:
                oldest = next((each for each in self._held if not self._is_awaited(each)), None)
            else:
                oldest = next(iter(self._held))
            if oldest is None:
                return
            self._drop(oldest)

    def _is_awaited(self, key: ChunkKey) -> bool:
        return self._partition_of[key[0]] in self._awaited

    def _drop(self, key: ChunkKey) -> None:
        chunk = self._held.pop(key, None)
        if chunk is None:
            return
        self.held_bytes -= len(chunk)
        self.checks.on_dropped(key)
        if key in self._ahead:
            self._forget_ahead(key)
            self.wasted_count += 1
        numbers = self._numbers[key[0]]
        numbers.discard(key[1])
        if not numbers:
            del self._numbers[key[0]]
            del self._partition_of[key[0]]

    def abandon(self, keys: Iterable[ChunkKey]) -> None:
        """Drop chunks that were fetched ahead for a reader that went elsewhere."""
        for key in keys:
            if key not in self._ahead:
                continue
            if key in self._held:
                self._held.move_to_end(key, last=False)
            else:
                self._forget_ahead(key)
                self._fills.give_up(key)

    def drop_segment(self, segment_id: SegmentId) -> None:
        """Forget the chunks of a segment: it was deleted, or its bytes are not the right ones."""
        for number in tuple(self._numbers.get(segment_id, ())):
            self._drop((segment_id, number))

    def segments_of(self, key: PartitionKey) -> list[SegmentId]:
        """Return the segments of a partition that have chunks here."""
        known = self._segments.get(key, {})
        for segment_id in [each for each in known if each not in self._numbers]:
            del known[segment_id]
        if not known:
            self._segments.pop(key, None)
        return list(known)

    async def close(self) -> None:
        """Cancel fills that are under way."""
        await self._fills.stop()
        await self.checks.close()


def _joined(chunks: Sequence[memoryview], begin: int, count: int) -> memoryview:
    """Return so many bytes from a position in the first of some chunks on."""
    if len(chunks) == 1:
        return chunks[0][begin : begin + count]
    first = chunks[0][begin:]
    rest = count - len(first) - sum(map(len, chunks[1:-1]))
    return memoryview(b"".join((first, *chunks[1:-1], chunks[-1][:rest])))
