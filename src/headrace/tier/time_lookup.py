"""Look-ups by time in the tier: the exact record, as in a local log (`log.lookup`).

Descriptions say which segments may have one as late, the time index where to begin, headers which
batch it is. That batch alone is inflated, in a thread.
"""

import asyncio
from functools import partial
from typing import Final

from headrace.log.epochs import LeaderEpochs
from headrace.log.lookup import Found, Run
from headrace.records import scan
from headrace.records.errors import RecordsError
from headrace.records.header import read_header
from headrace.records.reader import find_records
from headrace.remote.indexes import offset_of_time, place_of
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import PartitionKey
from headrace.tier.batches import Walk, Wanted
from headrace.tier.lineage import Stretch, late_stretches
from headrace.tier.ports import RemoteMetadata
from headrace.tier.segment_access import SegmentAccess

SEGMENTS_PER_TURN: Final = 256
"""How many segments are passed over in one turn of the loop."""


class TimeLookup:
    """Finds records by time."""

    def __init__(
        self, metadata: RemoteMetadata, access: SegmentAccess, run: Run, inflated_bytes_max: int
    ) -> None:
        """`run` has a thread do what takes long."""
        self._metadata = metadata
        self._access = access
        self._run = run
        self.inflated_bytes_max = inflated_bytes_max

    async def find(
        self,
        key: PartitionKey,
        epochs: LeaderEpochs,
        timestamp: int,
        start_offset: int,
        up_to: int,
    ) -> Found | None:
        """Return the first record that is as late, from an offset on and before another."""
        stretches = late_stretches(self._metadata, key, epochs, timestamp, start_offset)
        for count, stretch in enumerate(stretches):
            if count % SEGMENTS_PER_TURN == SEGMENTS_PER_TURN - 1:
                await asyncio.sleep(0)
            if stretch is None:
                continue
            if stretch.begin_offset >= up_to:
                break
            found = await self._find_in(stretch, timestamp, min(stretch.end_offset, up_to))
            if found is not None:
                return found
        return None

    async def _find_in(self, stretch: Stretch, timestamp: int, end_offset: int) -> Found | None:
        segment = stretch.segment
        index = await self._access.index(segment, ObjectKind.TIME_INDEX)
        offset = max(offset_of_time(index.data, segment, timestamp), stretch.begin_offset)
        index = await self._access.index(segment, ObjectKind.OFFSET_INDEX)
        place = place_of(index.data, segment, offset)
        walk = Walk(
            segment,
            place.position,
            Wanted(stretch.begin_offset, timestamp),
            first_offset_max=place.offset_max,
        )
        while (batch := await self._access.walk(segment, walk)) is not None:
            if batch.last_offset >= end_offset:
                return None
            data = await self._access.batches(
                segment, batch.position, batch.position + batch.size_bytes
            )
            find = partial(
                _find_in_batch, data, timestamp, stretch.begin_offset, self.inflated_bytes_max
            )
            try:
                found: Found | None = await self._run(find)
            except RecordsError as error:
                found = None
                self._access.report(
                    segment,
                    f"offsets {batch.base_offset} to {batch.last_offset} cannot be read, and "
                    f"look-ups by time pass them over: {error.message}",
                )
            if found is not None:
                return found
            walk.skip(batch)
        return None


def _find_in_batch(
    data: memoryview, timestamp: int, start_offset: int, inflated_bytes_max: int
) -> Found | None:
    """Find the first record of a batch that is as late. Runs in a thread."""
    header = read_header(data)
    records = find_records(data, 0, header, inflated_bytes_max)
    scan.measure([records], False)
    found = scan.find_time(records, timestamp, start_offset)
    return None if found is None else Found(*found, header.leader_epoch)
