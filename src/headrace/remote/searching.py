"""Finding things in the segments of a partition: the first record of a time, aborted transactions.

For readers that are not brokers; `tier.reading` does the same with caches.
"""

from bisect import bisect_right
from collections.abc import Sequence

from headrace.records.aborted import (
    ENTRY_BYTES,
    AbortedTransaction,
    find_aborted,
    first_ending_at,
)
from headrace.records.header import TimestampType, read_headers
from headrace.records.reader import read_records
from headrace.remote.coverage import Extent
from headrace.remote.indexes import offset_of_time
from headrace.remote.layout import ObjectKind
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segment_reads import SegmentRead
from headrace.remote.segments import SegmentId
from headrace.wire.schema import Buffer


async def first_offset_at(
    objects: SegmentObjects, extents: Sequence[Extent], timestamp_ms: int
) -> int | None:
    """Return the offset of the first record of a time or later; None if there is none."""
    for extent in extents:
        latest = extent.segment.max_timestamp_ms
        if 0 <= latest < timestamp_ms:
            continue
        found = await _first_in(objects, extent, timestamp_ms)
        if found is not None:
            return found
    return None


async def _first_in(objects: SegmentObjects, extent: Extent, timestamp_ms: int) -> int | None:
    segment = extent.segment
    index = await objects.fetch_index(segment, ObjectKind.TIME_INDEX)
    start = max(extent.start, offset_of_time(index, segment, timestamp_ms))
    reading = SegmentRead(objects, segment, start, extent.stop)
    try:
        while (batches := await reading.next_batches()) is not None:
            for position, header in read_headers(batches):
                if header.max_timestamp < timestamp_ms or header.is_control:
                    continue
                is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
                batch = batches[position : position + header.size_bytes]
                for record in read_records(batch, header):
                    is_late = is_stamped or record.timestamp >= timestamp_ms
                    if is_late and record.offset >= start:
                        return record.offset if record.offset < extent.stop else None
    finally:
        await reading.close()
    return None


class AbortedSearch:
    """Aborted transactions of the extents of one partition; each index is fetched once."""

    def __init__(self, objects: SegmentObjects, extents: Sequence[Extent]) -> None:
        self._objects = objects
        self._extents = [each for each in extents if not each.segment.is_txn_index_empty]
        self._stops = [each.stop for each in self._extents]
        self._indexes: dict[SegmentId, Buffer] = {}

    async def between(self, start: int, stop: int) -> list[AbortedTransaction]:
        """Return those that touch offsets from `start` up to, not including, `stop`.

        The marker that ended a transaction may be in a later segment, so later indexes are looked
        at until one says that nothing further begins before `stop`.
        """
        found: dict[tuple[int, int], AbortedTransaction] = {}
        for number in range(bisect_right(self._stops, start), len(self._extents)):
            index = await self._index(self._extents[number])
            touching, is_all = find_aborted(index, start, stop)
            found |= {(each.producer_id, each.first_offset): each for each in touching}
            if is_all:
                break
        return list(found.values())

    async def _index(self, extent: Extent) -> Buffer:
        known = self._indexes.get(extent.segment.id)
        if known is None:
            known = await self._objects.fetch_index(extent.segment, ObjectKind.TXN_INDEX)
            if extent.stop < extent.segment.next_offset:
                # The markers from there on are not those of this log.
                known = known[: first_ending_at(known, extent.stop) * ENTRY_BYTES]
            self._indexes[extent.segment.id] = known
        return known
