"""Copying a topic's segments to another topic id, for a cluster that has lost them.

A topic that is created again has another id, and leaders whose epochs begin anew. So the copies
say that one epoch, the new leader's, has all records: in their descriptions, in the header of every
batch (outside of its checksum) and in the leader epoch checkpoint. Offsets, times, transactions and
bytes of records stay the same. Producers are forgotten, as the new cluster hands out the same
producer ids again, to others.

A transaction whose end was not in the tier yet is aborted: markers are written after the last
record, as its coordinator would have done when it timed out.

Everything is checked on the way: what is damaged is not restored as if it were not.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from struct import Struct as Layout
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.records.aborted import AbortedTransaction, encode_entry, read_entries
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import BatchHeader, check_crc, read_header, read_headers
from headrace.remote.coverage import Extent
from headrace.remote.indexes import OFFSET_ENTRY, TIME_ENTRY
from headrace.remote.layout import ObjectKind
from headrace.remote.reconstruction import format_epochs
from headrace.remote.repair import TOOL_ID
from headrace.remote.segment_objects import SegmentFiles, SegmentObjects
from headrace.remote.segment_reads import SegmentRead
from headrace.remote.segments import (
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from headrace.remote.undecided import OpenTransaction
from headrace.surroundings import clocks, new_uuid
from headrace.wire.schema import Buffer

INDEX_INTERVAL_BYTES: Final = 4096
_NO_PRODUCERS: Final = bytes(4)
EMPTY_SNAPSHOT: Final = b"\x00\x01" + crc32c(_NO_PRODUCERS).to_bytes(4, "big") + _NO_PRODUCERS
"""The snapshot of no producer, as Kafka writes it."""
_LEADER_EPOCH: Final = Layout(">i")
_LEADER_EPOCH_AT: Final = 12


class Target(msgspec.Struct, frozen=True):
    """The partition that segments are restored to."""

    partition: TopicIdPartition
    epoch: int
    """The leader epoch that all records get."""
    start_offset: int
    """The first offset of the whole partition."""


class Restored(msgspec.Struct, frozen=True):
    """A copy that is finished, and its announcements."""

    segment: RemoteSegment

    @property
    def started(self) -> RemoteSegment:
        return msgspec.structs.replace(
            self.segment, state=SegmentState.COPY_STARTED, custom_metadata=None
        )

    @property
    def finished(self) -> SegmentUpdate:
        segment = self.segment
        return SegmentUpdate(
            segment.partition,
            segment.id,
            segment.event_timestamp_ms,
            SegmentState.COPY_FINISHED,
            TOOL_ID,
            segment.custom_metadata,
        )


async def restore_segment(
    source: SegmentObjects,
    extent: Extent,
    objects: SegmentObjects,
    target: Target,
    undecided: Sequence[OpenTransaction] = (),
) -> Restored:
    """Copy what a segment answers for; nothing is announced yet.

    `undecided` are the transactions that are open at its end, if it is the last one. Raise
    StoreError, or RecordsError if the source is damaged.
    """
    rewriting = _Rewriting(source, extent, target, undecided)
    size_bytes = extent.segment.size_bytes
    if (extent.start, extent.stop) != (extent.segment.start_offset, extent.segment.next_offset):
        # Some of its records are not wanted: the rest is measured before it is sent.
        size_bytes = await _Rewriting(source, extent, target).measure()
    size_bytes += sum(len(rewriting.marker(number)) for number in range(len(undecided)))
    aborted = b"" if extent.segment.is_txn_index_empty else await _aborted(source, extent)
    aborted += b"".join(map(encode_entry, _ended(undecided, extent.stop)))
    now_ms = clocks().time_ns() // 1_000_000
    segment = RemoteSegment(
        partition=target.partition,
        id=SegmentId(new_uuid().bytes),
        start_offset=extent.start,
        end_offset=extent.stop - 1 + len(undecided),
        max_timestamp_ms=extent.segment.max_timestamp_ms,
        broker_id=TOOL_ID,
        event_timestamp_ms=now_ms,
        size_bytes=size_bytes,
        epochs=(SegmentEpoch(target.epoch, extent.start),),
        is_txn_index_empty=not aborted,
    )
    files = SegmentFiles(
        log=rewriting.parts,
        log_bytes=size_bytes,
        # The indexes grow while the log is sent, which comes before them.
        offset_index=rewriting.offset_index,
        time_index=rewriting.time_index,
        txn_index=aborted or None,
        producer_snapshot=EMPTY_SNAPSHOT,
        leader_epochs=format_epochs([SegmentEpoch(target.epoch, target.start_offset)]),
    )
    custom = await objects.copy(segment, files)
    return Restored(
        msgspec.structs.replace(
            segment,
            custom_metadata=custom,
            state=SegmentState.COPY_FINISHED,
            max_timestamp_ms=rewriting.max_timestamp_ms,
        )
    )


class _Rewriting:
    """The batches of an extent in another epoch, and the indexes of what was passed on."""

    def __init__(
        self,
        source: SegmentObjects,
        extent: Extent,
        target: Target,
        undecided: Sequence[OpenTransaction] = (),
    ) -> None:
        self._source = source
        self._undecided = undecided
        self._extent = extent
        self._epoch = target.epoch
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self.max_timestamp_ms = -1
        self._latest_offset = extent.start
        self._indexed_ms = -1
        self._position = 0
        self._unindexed_bytes = 0

    async def parts(self) -> AsyncIterator[Buffer]:
        """Yield the log."""
        extent = self._extent
        reading = SegmentRead(self._source, extent.segment, extent.start, extent.stop)
        try:
            while (batches := await reading.next_batches()) is not None:
                part = bytearray(batches)
                with memoryview(part) as view:
                    for at, header in read_headers(part):
                        check_crc(view[at : at + header.size_bytes], header)
                        _LEADER_EPOCH.pack_into(part, at + _LEADER_EPOCH_AT, self._epoch)
                        self._index(header)
                yield part
        finally:
            await reading.close()
        for number in range(len(self._undecided)):
            marker = self.marker(number)
            self._index(read_header(marker))
            yield marker
        self._index_time()

    def marker(self, number: int) -> bytearray:
        """Return the marker that aborts one of the transactions that are open at the end."""
        transaction = self._undecided[number]
        return build_end_transaction_marker(
            self.max_timestamp_ms,
            is_commit=False,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
            base_offset=self._extent.stop + number,
            leader_epoch=self._epoch,
        )

    async def measure(self) -> int:
        """Return the size of the log."""
        return sum([len(memoryview(part)) async for part in self.parts()])

    def _index(self, header: BatchHeader) -> None:
        relative = header.last_offset - self._extent.start
        if self._unindexed_bytes > INDEX_INTERVAL_BYTES:
            self.offset_index += OFFSET_ENTRY.pack(relative, self._position)
            self._index_time()
            self._unindexed_bytes = 0
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms, self._latest_offset = header.max_timestamp, header.last_offset
        self._position += header.size_bytes
        self._unindexed_bytes += header.size_bytes

    def _index_time(self) -> None:
        if self.max_timestamp_ms > self._indexed_ms:
            relative = self._latest_offset - self._extent.start
            self.time_index += TIME_ENTRY.pack(self.max_timestamp_ms, relative)
            self._indexed_ms = self.max_timestamp_ms


def _ended(undecided: Sequence[OpenTransaction], stop: int) -> Iterator[AbortedTransaction]:
    """Yield the transactions that markers from `stop` on abort; they are oldest first."""
    for number, each in enumerate(undecided):
        following = undecided[number + 1 :]
        stable = following[0].first_offset if following else stop + number + 1
        yield AbortedTransaction(each.producer_id, each.first_offset, stop + number, stable)


async def _aborted(source: SegmentObjects, extent: Extent) -> bytes:
    """Return the index of the transactions whose markers are in an extent."""
    index = await source.fetch_index(extent.segment, ObjectKind.TXN_INDEX)
    return b"".join(
        encode_entry(each)
        for each in read_entries(index)
        if extent.start <= each.last_offset < extent.stop
    )
