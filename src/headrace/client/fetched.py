"""Fetched bytes to records: checksums, decompression, and dropping of aborted records.

No I/O. A chunk is one partition's part of a fetch response; batches are decoded one by one on
demand, so that a large response does not become objects all at once.
"""

from collections.abc import Sequence

import msgspec

from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.records import scan
from headrace.records.control import ControlType, read_control
from headrace.records.errors import CorruptBatch, RecordsError
from headrace.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    TimestampType,
    check_crc,
    read_headers,
)
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


class UnreadableBatch(KafkaError):
    """Bytes of a partition that are not records, or not those that were written.

    The consumer's position stays before them, so the next read fails again: nothing is skipped
    silently. To skip them, seek to `next_offset`.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, next_offset: int | None, cause: RecordsError
    ) -> None:
        """`next_offset` is None if the start of the next batch is unknown."""
        if next_offset is None:
            where, way_out = f"offset {offset} on", "the start of the next ones is unknown"
        else:
            where = f"offsets {offset} to {next_offset - 1}"
            way_out = f"to skip them, seek to {next_offset}"
        super().__init__(cause.code, f"partition {partition}, {where}: {cause.message}; {way_out}")
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class Chunk:
    """One partition's part of a response, and how far it is read."""

    def __init__(
        self,
        partition: TopicPartition,
        records: memoryview,
        position: int,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        inflated_bytes_max: int,
    ) -> None:
        """`aborted` are (producer id, first offset), for read_committed only."""
        self.partition = partition
        self.position = position
        """The offset after the last batch that was read."""
        self._inflated_bytes_max = inflated_bytes_max
        self._is_committed = aborted is not None
        self._aborted = sorted(aborted or (), key=lambda item: item[1], reverse=True)
        self._aborting: set[int] = set()
        self._records = records
        self._batches = read_headers(records)
        self._is_begun = False
        self._end_offset: int | None = None

    @property
    def end_offset(self) -> int:
        """The offset after the last whole batch: where the next fetch continues."""
        if self._end_offset is None:
            self._end_offset = max(self.position, end_offset_of(self._records))
        return self._end_offset

    def next_batch(self) -> list[ConsumedRecord] | None:
        """Return the records of the next batch from `position` on, maybe none; None at the end.

        Raise UnreadableBatch if the bytes are not what was written.
        """
        wanted_from = self.position
        try:
            step = self._next_header()
        except RecordsError as error:
            raise UnreadableBatch(self.partition, wanted_from, None, error) from error
        if step is None:
            return None
        at, header = step
        self.position = max(wanted_from, header.next_offset)
        topic, partition = self.partition
        try:
            batch = self._records[at : at + header.size_bytes]
            check_crc(batch, header)
            if self._is_hidden(batch, header):
                return []
            if header.record_count == 0:
                return []
            segment = find_records(batch, 0, header, self._inflated_bytes_max)
            scan.measure([segment], False)
            return scan.build(
                segment, ConsumedRecord, topic, partition, header.timestamp_type, wanted_from
            )
        except RecordsError as error:
            raise UnreadableBatch(self.partition, wanted_from, self.position, error) from error

    def _next_header(self) -> tuple[int, BatchHeader] | None:
        step = next(self._batches, None)
        if step is None and not self._is_begun:
            raise CorruptBatch(f"{len(self._records)} bytes hold no whole batch")
        self._is_begun = True
        return step

    def _is_hidden(self, batch: memoryview, header: BatchHeader) -> bool:
        """Return whether to hide a batch from the reader; tracks aborted producers."""
        if self._is_committed:
            while self._aborted and self._aborted[-1][1] <= header.last_offset:
                self._aborting.add(self._aborted.pop()[0])
        if header.is_control:
            is_end = header.producer_id in self._aborting
            if is_end and read_control(batch, header).control_type == ControlType.ABORT:
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def end_offset_of(records: memoryview) -> int:
    """Return the offset after the last whole batch; -1 if there is none."""
    position, last, end = 0, -1, len(records)
    while end - position >= HEADER_BYTES:
        length = int.from_bytes(
            records[position + LENGTH_AT : position + LENGTH_PREFIX_BYTES], "big"
        )
        following = position + LENGTH_PREFIX_BYTES + length
        if following > end or length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            break
        position, last = following, position
    if last < 0:
        return -1
    return BatchHeader(*HEADER.unpack_from(records, last)).next_offset
