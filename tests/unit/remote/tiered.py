"""A partition's log that was copied to a store, with real batches, indexes and transactions."""

from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from headrace.ids import BrokerId
from headrace.log.producer_snapshots import encode_snapshot
from headrace.log.producers import ProducerState
from headrace.records.aborted import AbortedTransaction, encode_entry
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import read_header
from headrace.remote.segment_objects import SegmentFiles, SegmentObjects
from headrace.remote.segments import (
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    TopicIdPartition,
)
from headrace.remote.store import ObjectStore
from tests.unit.remote.described import PARTITION
from tests.unit.remote.stored_segments import in_parts

OFFSET_ENTRY, TIME_ENTRY = Struct(">II"), Struct(">qI")


class TieredLog:
    """Append batches, roll segments, then upload them."""

    def __init__(self, partition: TopicIdPartition = PARTITION, start_offset: int = 0) -> None:
        self.partition = partition
        self.next_offset = start_offset
        self.epochs: list[SegmentEpoch] = []
        self.segments: list[RemoteSegment] = []
        self._batches: list[bytes] = []
        self._base = start_offset
        self._aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}
        self._files: list[SegmentFiles] = []
        self._begin_epoch(0)

    def _begin_epoch(self, epoch: int) -> None:
        self.epochs.append(SegmentEpoch(epoch, self.next_offset))

    def begin_epoch(self, epoch: int) -> None:
        """Let another leader go on."""
        self._begin_epoch(epoch)

    def append(
        self,
        values: Sequence[bytes],
        *,
        timestamp: int = 0,
        producer_id: int = -1,
        compression: Compression = Compression.NONE,
    ) -> None:
        """Append a batch; with a producer id it is a part of that producer's transaction."""
        builder = BatchBuilder(compression)
        for value in values:
            builder.append(timestamp, b"k", value)
        is_transactional = producer_id >= 0
        if is_transactional:
            self._open.setdefault(producer_id, self.next_offset)
        self._add(
            builder.build(
                base_offset=self.next_offset,
                leader_epoch=self.epochs[-1].epoch,
                producer_id=producer_id,
                producer_epoch=0 if is_transactional else -1,
                base_sequence=0 if is_transactional else -1,
                is_transactional=is_transactional,
            )
        )

    def end(self, producer_id: int, *, is_commit: bool, timestamp: int = 0) -> None:
        """End a producer's transaction."""
        marker = build_end_transaction_marker(
            timestamp,
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=self.next_offset,
            leader_epoch=self.epochs[-1].epoch,
        )
        first, last = self._open.pop(producer_id), self.next_offset
        stable = min(self._open.values(), default=last + 1)
        if not is_commit:
            self._aborted.append(AbortedTransaction(producer_id, first, last, stable))
        self._add(marker)

    def first_of(self, producer_id: int) -> int:
        """Return where the open transaction of a producer began."""
        return self._open[producer_id]

    def _add(self, batch: bytearray) -> None:
        self.next_offset = read_header(batch).next_offset
        self._batches.append(bytes(batch))

    def roll(self, number: int | None = None) -> RemoteSegment:
        """End the segment."""
        log = b"".join(self._batches)
        offset_index, time_index = bytearray(), bytearray()
        position, latest = 0, -1
        for batch in self._batches:
            header = read_header(batch)
            relative = header.last_offset - self._base
            offset_index += OFFSET_ENTRY.pack(relative, position)
            if header.max_timestamp > latest:
                latest = header.max_timestamp
                time_index += TIME_ENTRY.pack(latest, relative)
            position += header.size_bytes
        txn_index = b"".join(map(encode_entry, self._aborted))
        start, end = self._base, self.next_offset - 1
        number = 1 + len(self.segments) if number is None else number
        history = "".join(f"{epoch} {offset}\n" for epoch, offset in self.epochs)
        segment = RemoteSegment(
            partition=self.partition,
            id=SegmentId(number.to_bytes(16, "big")),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=latest,
            broker_id=BrokerId(1),
            event_timestamp_ms=0,
            size_bytes=len(log),
            epochs=tuple(_epochs_of(self.epochs, start, end)),
            is_txn_index_empty=not txn_index,
        )
        files = SegmentFiles(
            log=in_parts(log),
            log_bytes=len(log),
            offset_index=bytes(offset_index),
            time_index=bytes(time_index),
            txn_index=txn_index or None,
            producer_snapshot=encode_snapshot(
                ProducerState(producer_id, epoch=0, transaction_first_offset=first)
                for producer_id, first in self._open.items()
            ),
            leader_epochs=f"0\n{len(self.epochs)}\n{history}".encode(),
        )
        self.segments.append(segment)
        self._files.append(files)
        self._batches, self._aborted, self._base = [], [], self.next_offset
        return segment

    async def upload(self, store: ObjectStore) -> list[RemoteSegment]:
        """Copy what was rolled; return the segments as they are when that is finished."""
        objects = SegmentObjects(store)
        finished = []
        for segment, files in zip(self.segments, self._files, strict=True):
            finished.append(await copy(objects, segment, files))
        return finished


async def copy(
    objects: SegmentObjects, segment: RemoteSegment, files: SegmentFiles
) -> RemoteSegment:
    custom = await objects.copy(segment, files)
    return msgspec.structs.replace(
        segment, custom_metadata=custom, state=SegmentState.COPY_FINISHED
    )


def _epochs_of(epochs: Sequence[SegmentEpoch], start: int, end: int) -> Iterable[SegmentEpoch]:
    ends = [each.start_offset for each in epochs[1:]] + [end + 1]
    for each, stop in zip(epochs, ends, strict=True):
        if stop > start and each.start_offset <= end:
            yield SegmentEpoch(each.epoch, max(each.start_offset, start))
