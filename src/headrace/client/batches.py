"""Batches to be sent, and the awaitable deliveries of their records."""

import asyncio
from collections.abc import Generator
from typing import Any

import msgspec

from headrace.client.topics import TopicPartition
from headrace.ids import NO_TIMESTAMP
from headrace.records.builder import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchBuilder
from headrace.records.compression import Compression
from headrace.records.reader import read_records

UNKNOWN_OFFSET = -1


class Placed(msgspec.Struct, frozen=True):
    """Where a record is in the log. The offset is -1 with acks=0.

    The timestamp is the append time if the topic uses it, else -1: then it is the one sent.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class Delivery:
    """The delivery of one record: await it for its `Placed`, or its error.

    Cheap: records share the future of their batch.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: "Batch", index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, Placed]:
        batch, index = self._batch, self._index
        batch.watched.add(index)
        try:
            yield from asyncio.shield(batch.done).__await__()
        except asyncio.CancelledError:
            batch.watched.discard(index)  # not told
            raise
        except Exception:  # of this record, or of another one that came with it
            return batch.place_of(index)
        return batch.place_of(index)

    def is_done(self) -> bool:
        """Return whether the record was acknowledged or has failed."""
        return self._batch.done.done()


class Batch:
    """Records of one partition that are sent together; a retry sends the same bytes."""

    def __init__(
        self,
        partition: TopicPartition,
        compression: Compression,
        level: int | None,
        opened_at: float,
    ) -> None:
        self.partition = partition
        self.builder = BatchBuilder(compression, level)
        self.opened_at = opened_at
        self.not_before = 0.0
        """When it may be retried, after a failure."""
        self.attempts = 0
        self.reserved_bytes = 0
        """The memory that its records use of the producer's limit."""
        self.watched: set[int] = set()
        """The records that a task awaits, which is how it learns of a failure."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.encoded: bytearray | None = None
        self.producer_id = -1
        self.base_sequence = NO_SEQUENCE
        self._compression = compression
        self._level = level
        self._runs: list[tuple[int, int, int]] = []
        self._failures: list[tuple[range, Exception]] = []
        """Which of its records failed, and why."""
        self._parent: Batch | None = None
        self._first_index = 0
        self._unfinished_halves = 0

    @property
    def record_count(self) -> int:
        """How many records it has."""
        return self.builder.record_count

    def encode(
        self,
        producer_id: int = -1,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        *,
        is_transactional: bool = False,
    ) -> bytearray:
        """Close the batch and return its bytes: those of the first call, if it is not the first.

        A retry must be the same batch with the same sequence, or the broker could not recognize it.
        """
        if self.encoded is None:
            self.producer_id = producer_id
            self.base_sequence = base_sequence
            self.encoded = self.builder.build(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
            )
        return self.encoded

    def place_of(self, index: int) -> Placed:
        """Return the place of a record of a finished batch; raise its error if it failed."""
        for indexes, error in self._failures:
            if index in indexes:
                raise error
        first, offset, timestamp = next(run for run in reversed(self._runs) if run[0] <= index)
        if offset != UNKNOWN_OFFSET:
            offset += index - first
        return Placed(self.partition.topic, self.partition.partition, offset, timestamp)

    def succeed(self, base_offset: int, timestamp: int = NO_TIMESTAMP) -> None:
        """Resolve the deliveries with the records' places."""
        self._finish([(0, base_offset, timestamp)], [])

    def fail(self, error: Exception) -> None:
        """Fail the deliveries."""
        if not self.done.done():
            self._finish([], [(range(self.record_count), error)])

    def untold_failure(self) -> Exception | None:
        """Return the error of a failed record that no task awaited, if any."""
        for indexes, error in self._failures:
            if not self.watched.issuperset(indexes):
                return error
        return None

    def halves(self) -> "tuple[Batch, Batch]":
        """Split into two batches; this one is finished when they are."""
        assert self.encoded is not None, "only a batch that was refused is split"
        records = list(read_records(self.encoded))
        middle = (len(records) + 1) // 2
        self._unfinished_halves = 2
        made = []
        for first, part in ((0, records[:middle]), (middle, records[middle:])):
            half = Batch(self.partition, self._compression, self._level, self.opened_at)
            for record in part:
                half.builder.append(record.timestamp, record.key, record.value, record.headers)
            half._parent = self
            half._first_index = first
            made.append(half)
        made[1].reserved_bytes, self.reserved_bytes = self.reserved_bytes, 0
        return made[0], made[1]

    @property
    def origin(self) -> "Batch":
        """The batch that the sender of the records knows."""
        return self if self._parent is None else self._parent.origin

    def _finish(
        self, runs: list[tuple[int, int, int]], failures: list[tuple[range, Exception]]
    ) -> None:
        self._runs = sorted([*self._runs, *runs])
        self._failures += failures
        if self._unfinished_halves:
            self._unfinished_halves -= 1
        if self._unfinished_halves or self.done.done():
            return
        if self._failures:
            self.done.set_exception(self._failures[0][1])
            self.done.exception()  # retrieved: the sender decides whether to report it
        else:
            self.done.set_result(None)
        if self._parent is not None:
            first = self._first_index
            self._parent._finish(
                [(first + index, offset, time) for index, offset, time in self._runs],
                [
                    (range(first + each.start, first + each.stop), error)
                    for each, error in self._failures
                ],
            )
