"""Fetched bytes to records: checksums, inflation, and what a reader of committed records drops.

No I/O. A chunk is what one Fetch answer held of a partition; batches are decoded one by one as
they are asked for, so that a large answer does not become objects all at once.
"""

from collections.abc import Iterator, Sequence

import msgspec

from headrace.client.topics import TopicPartition
from headrace.records import scan
from headrace.records.control import ControlType, read_control
from headrace.records.errors import CorruptBatch
from headrace.records.header import BatchHeader, TimestampType, check_crc, read_headers
from headrace.records.reader import find_records
from headrace.records.record import Headers


class ConsumedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record and where it was. The timestamp is in ms since 1970, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


class Chunk:
    """What one answer held of a partition, and how far it is read."""

    def __init__(
        self,
        partition: TopicPartition,
        records: memoryview,
        position: int,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        inflated_bytes_max: int,
    ) -> None:
        """`aborted` are (producer id, first offset), for a reader of committed records only."""
        self.partition = partition
        self.position = position
        """The offset of the next record, as far as batches were read."""
        self._inflated_bytes_max = inflated_bytes_max
        self._is_committed = aborted is not None
        self._aborted = sorted(aborted or (), key=lambda item: item[1], reverse=True)
        self._aborting: set[int] = set()
        self._records = records
        self._batches = read_headers(records)
        self._is_begun = False

    def next_batch(self) -> list[ConsumedRecord] | None:
        """Give the records of the next batch from `position` on, maybe none; None at the end.

        CorruptBatch if the bytes are not what was written.
        """
        step = next(self._batches, None)
        if step is None:
            if not self._is_begun:
                raise CorruptBatch(
                    f"partition {self.partition}: {len(self._records)} bytes from offset "
                    f"{self.position} on hold no whole batch"
                )
            return None
        self._is_begun = True
        at, header = step
        batch = self._records[at : at + header.size_bytes]
        check_crc(batch, header)
        wanted_from, self.position = self.position, max(self.position, header.next_offset)
        if self._is_hidden(batch, header):
            return []
        topic, partition = self.partition
        time_type = header.timestamp_type
        return [
            ConsumedRecord(topic, partition, offset, timestamp, key, value, headers, time_type)
            for offset, timestamp, key, value, headers in self._fields(batch, header)
            if offset >= wanted_from
        ]

    def _is_hidden(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether a batch is none of the reader's business; keeps track of aborted producers."""
        if self._is_committed:
            while self._aborted and self._aborted[-1][1] <= header.last_offset:
                self._aborting.add(self._aborted.pop()[0])
        if header.is_control:
            is_end = header.producer_id in self._aborting
            if is_end and read_control(batch, header).control_type == ControlType.ABORT:
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting

    def _fields(self, batch: memoryview, header: BatchHeader) -> Iterator[scan.Fields]:
        if header.record_count == 0:
            return iter(())
        segment = find_records(batch, 0, header, self._inflated_bytes_max)
        scan.measure([segment], False)
        return scan.read(segment)
