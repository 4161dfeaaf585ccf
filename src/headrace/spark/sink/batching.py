"""Rows into record batches, one open batch a partition, closed when it is full.

A closed batch has its producer, epoch and sequence and is sent as it is, again if need be.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from headrace.client.topics import TopicPartition
from headrace.records import encode
from headrace.records.compression import Compression, compress
from headrace.records.header import (
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_header,
)
from headrace.spark.sink.columns import Placed
from headrace.spark.sink.decisions import Slot

FIRST_BYTES: Final = 32 * 1024
"""What a batch begins with; a task may write to a thousand partitions a little each."""
_GROWTH: Final = 4
_NO_LEADER_EPOCH: Final = -1
_SEQUENCES: Final = 2**31

Closed = tuple[TopicPartition, memoryview]


class Batching:
    """The open batches of one task."""

    def __init__(
        self,
        slot: Slot,
        batch_bytes: int,
        compression: Compression,
        level: int | None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.record_count = 0
        self._slot = slot
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._level = level
        self._now_ms = now_ms
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self._sequences: dict[TopicPartition, int] = {}

    def add(self, topic: str, placed: Placed) -> Iterator[Closed]:
        """Add rows; yield the batches that are full."""
        now_ms = self._now_ms()
        starts = placed.starts
        for index in range(len(starts) - 1):
            first, last = starts[index], starts[index + 1]
            if first < last:
                self.record_count += last - first
                partition = TopicPartition(topic, index)
                yield from self._add(partition, placed, first, last, now_ms)

    def close(self) -> Iterator[Closed]:
        """Yield what is left."""
        while self._open:
            partition, batch = self._open.popitem()
            yield partition, self._seal(partition, batch)

    def _add(
        self, partition: TopicPartition, placed: Placed, first: int, last: int, now_ms: int
    ) -> Iterator[Closed]:
        while True:
            batch = self._open.get(partition)
            if batch is None:
                batch = self._open[partition] = _OpenBatch(now_ms, self._batch_bytes)
            first, needed_bytes = batch.fill(placed, first, last, now_ms)
            if first == last:
                return
            if not batch.grow(needed_bytes, self._batch_bytes):
                del self._open[partition]
                yield partition, self._seal(partition, batch)

    def _seal(self, partition: TopicPartition, batch: "_OpenBatch") -> memoryview:
        data = memoryview(batch.buffer)[: batch.size]
        if self._compression is not Compression.NONE:
            payload = compress(self._compression, data[HEADER_BYTES:], self._level)
            data = memoryview(bytearray(HEADER_BYTES) + payload)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + batch.count) % _SEQUENCES
        header = BatchHeader(
            0,
            0,
            _NO_LEADER_EPOCH,
            MAGIC,
            0,
            TRANSACTIONAL_BIT | self._compression,
            batch.count - 1,
            batch.base_timestamp,
            batch.max_timestamp,
            self._slot.producer_id,
            self._slot.producer_epoch,
            sequence,
            batch.count,
        )
        write_header(data, header)
        return data


class _OpenBatch:
    """Records of one partition, after room for the header."""

    def __init__(self, now_ms: int, batch_bytes: int) -> None:
        self.buffer = bytearray(max(HEADER_BYTES, min(FIRST_BYTES, batch_bytes)))
        self.size = HEADER_BYTES
        self.count = 0
        self.base_timestamp = now_ms
        self.max_timestamp = now_ms

    def fill(self, placed: Placed, first: int, last: int, now_ms: int) -> tuple[int, int]:
        """Add rows while they fit; return the first that does not, and its size."""
        self.max_timestamp = max(self.max_timestamp, now_ms)
        reached, self.size, needed_bytes = encode.encode(
            placed.rows,
            placed.order,
            first,
            last,
            target=memoryview(self.buffer),
            position=self.size,
            offset_delta=self.count,
            timestamp_delta=now_ms - self.base_timestamp,
        )
        self.count += reached - first
        return reached, needed_bytes

    def grow(self, needed_bytes: int, batch_bytes: int) -> bool:
        """Make room for a record; False if the batch is full. One record may be larger."""
        if self.count and self.size + needed_bytes > batch_bytes:
            return False
        wanted = min(len(self.buffer) * _GROWTH, max(batch_bytes, HEADER_BYTES))
        larger = bytearray(max(wanted, self.size + needed_bytes))
        larger[: self.size] = memoryview(self.buffer)[: self.size]
        self.buffer = larger
        return True
