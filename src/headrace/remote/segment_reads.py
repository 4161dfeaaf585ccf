"""Reading the log of a segment from the store: whole batches, one part ahead.

For readers that are not brokers: Spark's tasks, searches by time, restore. While the caller works
on a part, the next one is on its way.
"""

import asyncio
from typing import Final

from headrace.records.errors import CorruptBatch
from headrace.records.header import BatchHeader, read_headers
from headrace.remote.indexes import place_of
from headrace.remote.layout import ObjectKind
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment
from headrace.wire.schema import Buffer

PART_BYTES: Final = 4 * 1024 * 1024


class SegmentRead:
    """The batches of a segment that have offsets from `start` up to, not including, `stop`."""

    def __init__(
        self,
        objects: SegmentObjects,
        segment: RemoteSegment,
        start: int,
        stop: int,
        *,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._objects = objects
        self._segment = segment
        self._start = start
        self._stop = stop
        self._part_bytes = part_bytes
        self._position: int | None = None
        """Where the next part begins; None before the first one."""
        self._rest: Buffer = b""
        self._ahead: asyncio.Task[Buffer] | None = None
        self.next_offset = start
        """The offset after the batches that were returned last, `stop` at most."""
        self._is_done = start >= stop
        """Whether a batch beyond the end was seen."""

    async def next_batches(self) -> memoryview | None:
        """Return the next whole batches; None at the end.

        Raise StoreError, DamagedIndex, or RecordsError if the bytes are no batches.
        """
        if self._position is None:
            self._position = await self._first_position()
        while not self._is_done:
            part = await self._next_part()
            if part is None:
                if len(self._rest):
                    raise CorruptBatch(f"{len(self._rest)} bytes at the end hold no whole batch")
                return None
            data = memoryview(bytes(self._rest) + bytes(part) if len(self._rest) else part)
            begin, end, whole_end = self._walk(data)
            self._rest = data[whole_end:]
            if end > begin:
                return data[begin:end]
        return None

    async def close(self) -> None:
        """Drop the part that is on its way."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
            self._ahead = None

    async def _first_position(self) -> int:
        if self._start <= self._segment.start_offset:
            return 0
        index = await self._objects.fetch_index(self._segment, ObjectKind.OFFSET_INDEX)
        return place_of(index, self._segment, self._start).position

    async def _next_part(self) -> Buffer | None:
        task, self._ahead = self._ahead, None
        if task is None:
            task = self._ask()
        if task is None:
            return None
        part = await task
        self._ahead = self._ask()
        if self._ahead is not None:
            await asyncio.sleep(0)  # so that it is on its way when the caller goes on
            await asyncio.sleep(0)
        return part

    def _ask(self) -> asyncio.Task[Buffer] | None:
        begin = self._position or 0
        end = min(begin + self._part_bytes, self._segment.size_bytes)
        if begin >= end:
            return None
        self._position = end
        work = self._objects.fetch(self._segment, begin, end)
        return asyncio.get_running_loop().create_task(work)

    def _walk(self, data: memoryview) -> tuple[int, int, int]:
        """Return where wanted batches begin and end, and where the first one that is cut does."""
        begin = end = position = 0
        for at, header in read_headers(data):
            position = at + header.size_bytes
            if header.base_offset >= self._stop:
                self._is_done = True
                break
            end = position
            self.next_offset = min(header.next_offset, self._stop)
            if header.next_offset <= self._start:
                begin = position
        return begin, max(begin, end), position


async def last_header(
    objects: SegmentObjects, segment_log_key: str, position: int, size_bytes: int
) -> tuple[BatchHeader | None, int]:
    """Return the header of the last batch from a position on, and the largest timestamp there."""
    last: BatchHeader | None = None
    latest = -1
    data = memoryview(await objects.store.get(segment_log_key, position, size_bytes))
    for _, header in read_headers(data):
        last, latest = header, max(latest, header.max_timestamp)
    return last, latest
