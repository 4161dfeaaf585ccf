"""What compaction leaves of a batch: the rules, for one batch after the other in the log's order.

Offsets never change: a batch keeps its first and last offset, whatever is taken out of it, and
its producer, sequence, epoch and codec. One from which nothing is taken stays as it is, byte for
byte. What goes:

- records of a key that has a later one, and records without a key;
- tombstones, once their batch's delete horizon has passed. The horizon is set when a compaction
  first meets the tombstone, so that every reader has delete.retention.ms to see it (KIP-534);
- records of aborted transactions;
- markers of transactions of which no batch is left, again after a horizon;
- batches that are empty then, but for the last one of each producer: its sequence must be found
  when the log is opened, so it stays without its records.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from headrace.log.offset_map import OffsetMap, Sifted, shift_times
from headrace.log.producers import ProducerState
from headrace.records.aborted import AbortedTransaction
from headrace.records.compression import ReadableBuffer, compress
from headrace.records.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    assemble,
)
from headrace.records.reader import find_records


class LastBatch(NamedTuple):
    """How to know the last batch of a producer."""

    epoch: int
    last_offset: int | None
    """None if it has written nothing but markers in this epoch."""


def last_batches(states: Iterable[ProducerState]) -> dict[int, LastBatch]:
    """Return for each producer id the batches that must be kept."""
    return {
        state.producer_id: LastBatch(
            state.epoch, state.batches[-1].last_offset if state.batches else None
        )
        for state in states
    }


_NONE: Final[deque[AbortedTransaction]] = deque()


class TransactionWalk:
    """Which batches are of aborted transactions, and which markers have lost all of theirs."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, deque[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda each: each.last_offset):
            self._aborted.setdefault(transaction.producer_id, deque()).append(transaction)
        self._with_batches: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the next batch of records in the log was aborted."""
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        aborted = self._aborted.get(header.producer_id, _NONE)
        while aborted and aborted[0].last_offset < header.base_offset:
            aborted.popleft()
        return bool(aborted) and aborted[0].first_offset <= header.base_offset

    def is_lonely(self, header: BatchHeader) -> bool:
        """Return whether the transaction of the next marker has no batches left."""
        had_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return not had_batches


class Tally:
    """What a compaction has done so far."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_kept = 0
        self.records_dropped = 0


class Sieve:
    """Decides what is left of each batch. Give it all batches from the log's start on, in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        end_offset: int,
        transactions: TransactionWalk,
        last_batches: Mapping[int, LastBatch],
        now_ms: int,
        delete_retention_ms: int,
        inflated_bytes_max: int,
    ) -> None:
        """`offsets` has the keys up to `end_offset`; batches from there on stay as they are."""
        self.tally = Tally()
        self._offsets = offsets
        self._end_offset = end_offset
        self._transactions = transactions
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._inflated_bytes_max = inflated_bytes_max
        self._output = bytearray()

    def sift(self, batch: memoryview, header: BatchHeader) -> ReadableBuffer | None:
        """Return what is left of a batch: the same bytes, others, or None. Check the CRC before."""
        tally = self.tally
        tally.bytes_read += len(batch)
        if header.base_offset >= self._end_offset:
            left: ReadableBuffer | None = batch
            kept = header.record_count
        elif header.is_control:
            left, kept = self._sift_marker(batch, header)
        else:
            left, kept = self._sift_records(batch, header)
        tally.records_kept += kept
        tally.records_dropped += header.record_count - kept
        if left is not None:
            tally.bytes_written += len(left)
        return left

    def _sift_marker(
        self, batch: memoryview, header: BatchHeader
    ) -> tuple[ReadableBuffer | None, int]:
        if header.record_count == 0:  # emptied before, and kept for its producer
            return self._without_records(header), 0
        if header.producer_id < 0 or not self._transactions.is_lonely(header):
            return batch, header.record_count
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return self._with_horizon(batch[HEADER_BYTES:], header, None), header.record_count
        if horizon_ms <= self._now_ms:
            return self._without_records(header), 0
        return batch, header.record_count

    def _sift_records(
        self, batch: memoryview, header: BatchHeader
    ) -> tuple[ReadableBuffer | None, int]:
        if self._transactions.is_aborted(header):
            return self._without_records(header), 0
        horizon_ms = header.delete_horizon_ms
        found = find_records(batch, 0, header, self._inflated_bytes_max)
        if len(self._output) < found[2] - found[1]:
            self._output = bytearray(found[2] - found[1])
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        sifted = self._offsets.sift(found, self._end_offset, keeps_tombstones, self._output)
        if sifted.record_count == 0:
            return self._without_records(header), 0
        records = memoryview(self._output)[: sifted.size_bytes]
        if sifted.has_tombstones and horizon_ms is None:
            return self._with_horizon(records, header, sifted), sifted.record_count
        if sifted.record_count == header.record_count:
            return batch, sifted.record_count
        return _rebuilt(header, records, sifted), sifted.record_count

    def _without_records(self, header: BatchHeader) -> bytearray | None:
        """Return an empty batch if it holds its producer's sequence, else None."""
        last = self._last_batches.get(header.producer_id)
        if last is None:
            return None
        if last.last_offset is None:
            is_last = header.is_control and header.producer_epoch == last.epoch
        else:
            is_last = header.last_offset == last.last_offset
        if not is_last:
            return None
        emptied = structs.replace(
            header,
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
            base_timestamp=header.max_timestamp,
            record_count=0,
        )
        return assemble(emptied, b"")

    def _with_horizon(
        self, records: memoryview, header: BatchHeader, sifted: Sifted | None
    ) -> bytearray:
        """Rebuild a batch so that it says when its tombstones or its marker may go."""
        count = header.record_count if sifted is None else sifted.record_count
        shift = header.base_timestamp - self._new_horizon_ms
        shifted = shift_times(records, len(records), count, shift)
        return _rebuilt(header, shifted, sifted, self._new_horizon_ms)


def _rebuilt(
    header: BatchHeader,
    records: ReadableBuffer,
    sifted: Sifted | None,
    new_horizon_ms: int | None = None,
) -> bytearray:
    """Return a batch with these records; a new horizon becomes their base timestamp."""
    max_timestamp, count = header.max_timestamp, header.record_count
    if sifted is not None:
        count = sifted.record_count
        if header.timestamp_type is TimestampType.CREATE_TIME:
            max_timestamp = header.base_timestamp + sifted.max_timestamp_delta
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if new_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, new_horizon_ms
    rebuilt = structs.replace(
        header,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=count,
    )
    return assemble(rebuilt, compress(header.compression, records))
