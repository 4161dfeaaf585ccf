"""The indexes of segments in the tier, kept on the local disk.

An index is small beside its segment and needed for every read in it, so it is fetched once and
kept, across restarts too, in `remote-log-index-cache` below the data folder. The folder is bounded;
what was not used for the longest time goes first. A disk that fails costs the cache, not the read.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from headrace.log.disk import Disk
from headrace.loop.tasks import Tasks
from headrace.records.aborted import BlockMinima
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import PartitionKey, RemoteSegment, SegmentId
from headrace.remote.store import StoreError
from headrace.tier.awaited import Awaited
from headrace.tier.fills import Budget, Fills
from headrace.tier.index_files import (
    KINDS,
    IndexKey,
    load,
    name_of,
    remove,
    store,
    take_over,
)
from headrace.tier.ports import SegmentSource
from headrace.tier.read_limits import ReadLimits
from headrace.wire.schema import Buffer

FILES_PER_TURN: Final = 1000
"""How many files of an earlier process are taken over in one turn of the loop."""
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Index(NamedTuple):
    """An index, ready to be searched."""

    data: Buffer
    minima: BlockMinima
    """What is remembered of it, if it is an index of transactions."""


class _Entry:
    """An index that is kept. It holds a map of its file, which the disk may take back."""

    __slots__ = ("index", "is_checked", "name", "partition", "size_bytes", "used_ms")

    def __init__(self, partition: PartitionKey, name: str, size_bytes: int, used_ms: int) -> None:
        self.partition = partition
        self.name = name
        self.size_bytes = size_bytes
        self.used_ms = used_ms
        self.index: Index | None = None
        self.is_checked = False
        """Whether this process has seen that the file has the right bytes."""

    def unmap(self) -> None:
        self.index = None


class IndexCache:
    """The indexes that are kept and those on their way."""

    def __init__(
        self,
        disk: Disk,
        source: SegmentSource,
        limits: ReadLimits,
        now_ms: Callable[[], int],
        awaited: Awaited | None = None,
    ) -> None:
        """What was fetched of partitions in `awaited` may exceed the cache for a while."""
        self._awaited = Awaited(now_ms) if awaited is None else awaited
        self._disk = disk
        self._source = source
        self._limits = limits
        self._now_ms = now_ms
        self._fills: Fills[IndexKey, Index] = Fills()
        self._budget = Budget(limits.fill_bytes_max, limits.fills_max)
        self._removals = Tasks()
        self._removing_count = 0
        self._threads: dict[asyncio.Future[Any], None] = {}
        self._opening = asyncio.Lock()
        self._is_open = False
        self._is_disk_failing = False
        self._entries: OrderedDict[IndexKey, _Entry] = OrderedDict()
        """Those used longest ago first."""
        self._segments: dict[PartitionKey, dict[SegmentId, None]] = {}
        self.held_bytes = 0
        self.fetch_count = 0

    def configure(self, limits: ReadLimits) -> None:
        """Go on with other limits."""
        self._limits = limits
        self._budget.bytes_max, self._budget.count_max = limits.fill_bytes_max, limits.fills_max

    # Reading

    def peek(self, segment: RemoteSegment, kind: ObjectKind) -> Index | None:
        """Return an index if it is at hand without waiting."""
        entry = self._entries.get((segment.id, kind))
        if entry is None or entry.index is None:
            return None
        entry.used_ms = self._now_ms()
        self._entries.move_to_end((segment.id, kind))
        return entry.index

    async def get(self, segment: RemoteSegment, kind: ObjectKind) -> Index:
        """Return an index, from the disk or else from the store; raise StoreError."""
        found = self.peek(segment, kind)
        if found is not None:
            return found
        self.begin(segment, kind)
        return await self._fills.wait((segment.id, kind))

    def begin(self, segment: RemoteSegment, kind: ObjectKind) -> None:
        """Begin to fetch an index that is not at hand or on its way."""
        key = (segment.id, kind)
        if key not in self._fills and self.peek(segment, kind) is None:
            lease = self._budget.lease(0)
            self._fills.begin(key, self._fill(segment, kind, lease.wait), lease.release)

    async def _fill(
        self, segment: RemoteSegment, kind: ObjectKind, wait: Callable[[], Awaitable[None]]
    ) -> Index:
        if not self._is_open:
            await self._open()
        key = (segment.id, kind)
        entry = self._entries.get(key)
        if entry is not None:
            found = await self._in_thread(
                lambda: load(self._disk, entry.name, is_checked=entry.is_checked)
            )
            if found is not None and self._entries.get(key) is entry:
                entry.is_checked = True
                return self._hold(key, entry, found)
            self.drop((key,))
        await wait()
        self.fetch_count += 1
        try:
            async with asyncio.timeout(self._limits.fill_timeout_ms / 1000):
                data = await self._source.fetch_index(segment, kind)
        except TimeoutError:
            raise StoreError(
                f"an index of segment {segment.text} did not come within "
                f"{self._limits.fill_timeout_ms} ms"
            ) from None
        if not data:
            return self._keep(segment, kind, data)
        name = name_of(segment, kind)
        stored = None
        if len(data) <= self._limits.index_cache_bytes:
            stored = await self._in_thread(lambda: self._store(name, data))
        return self._keep(segment, kind, data if stored is None else stored)

    # Keeping

    def _keep(self, segment: RemoteSegment, kind: ObjectKind, data: Buffer) -> Index:
        entry = _Entry(segment.key, name_of(segment, kind), len(data), self._now_ms())
        entry.is_checked = True
        key = (segment.id, kind)
        self._add(key, entry)
        index = self._hold(key, entry, data)
        self._evict()
        return index

    def _add(self, key: IndexKey, entry: _Entry) -> None:
        previous = self._entries.pop(key, None)
        if previous is not None:
            self.held_bytes -= previous.size_bytes
        self._entries[key] = entry
        self.held_bytes += entry.size_bytes
        self._segments.setdefault(entry.partition, {})[key[0]] = None

    def _hold(self, key: IndexKey, entry: _Entry, data: Buffer) -> Index:
        entry.index = index = Index(data, BlockMinima())
        entry.used_ms = self._now_ms()
        self._entries.move_to_end(key)
        self._disk.maps.hold(entry)
        return index

    def _evict(self) -> None:
        """Drop what is too much, and what was not used for too long."""
        surplus = []
        left_bytes = self.held_bytes
        bytes_max = self._limits.index_cache_bytes
        has_room = left_bytes <= bytes_max + self._limits.fill_bytes_max
        oldest_ms = self._now_ms() - self._limits.index_ttl_ms
        for key, entry in self._entries.items():
            is_old = entry.used_ms < oldest_ms and self._limits.index_ttl_ms >= 0
            if left_bytes <= bytes_max and not is_old:
                break
            if has_room and entry.partition in self._awaited:
                continue
            left_bytes -= entry.size_bytes
            surplus.append(key)
        self.drop(surplus)

    def drop(self, keys: Iterable[IndexKey]) -> None:
        """Forget indexes, and remove their files in the background."""
        names = []
        for key in keys:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self.held_bytes -= entry.size_bytes
                names.append(entry.name)
        if names:
            self._removing_count += 1
            self._removals.start(self._remove(names))

    @property
    def is_removing(self) -> bool:
        """Whether files that are forgotten may still be there."""
        return self._removing_count > 0

    def expire(self) -> None:
        """Drop what was not used for too long."""
        self._evict()

    def drop_segment(self, segment_id: SegmentId) -> None:
        """Forget the indexes of a segment: it was deleted, or they are not the right ones."""
        self.drop([(segment_id, kind) for kind in KINDS])

    def segments_of(self, key: PartitionKey) -> list[SegmentId]:
        """Return the segments of a partition whose indexes are kept."""
        known = self._segments.get(key, {})
        gone = [each for each in known if not any((each, kind) in self._entries for kind in KINDS)]
        for segment_id in gone:
            del known[segment_id]
        if not known:
            self._segments.pop(key, None)
        return list(known)

    async def close(self) -> None:
        """Cancel fills under way; no thread uses the disk after this, and the files stay."""
        await self._fills.stop()
        await self._removals.stop()
        await asyncio.gather(*self._threads, return_exceptions=True)

    # The folder

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Run something in a thread, to its end even if nobody waits for it."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._threads[future] = None
        future.add_done_callback(self._threads.pop)
        return await asyncio.shield(future)

    async def _open(self) -> None:
        """Take over what an earlier process has left, once."""
        async with self._opening:
            if self._is_open:
                return
            files = await self._in_thread(lambda: take_over(self._disk))
            for count, file in enumerate(files, 1):
                entry = _Entry(file.partition, file.name, file.size_bytes, self._now_ms())
                self._add(file.key, entry)
                if count % FILES_PER_TURN == 0:
                    await asyncio.sleep(0)
            self._is_open = True
            self._evict()

    def _store(self, name: str, data: Buffer) -> Buffer | None:
        """Write an index and return a map of its file; None if the disk fails. In a thread."""
        try:
            stored = store(self._disk, name, data)
        except OSError as error:
            if not self._is_disk_failing:
                logger.warning("indexes of the tier cannot be kept on the disk: %s", error)
            self._is_disk_failing = True
            return None
        self._is_disk_failing = False
        return stored

    async def _remove(self, names: Sequence[str]) -> None:
        try:
            await self._in_thread(lambda: remove(self._disk, names))
        finally:
            self._removing_count -= 1
