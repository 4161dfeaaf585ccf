"""Segments for tests of the tier."""

from collections.abc import AsyncIterator, Callable

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.remote.segment_objects import SegmentFiles
from headrace.remote.segments import RemoteSegment, SegmentEpoch, SegmentId, TopicIdPartition
from headrace.wire.schema import Buffer

ORDERS = TopicIdPartition(
    TopicId(bytes.fromhex("000000000000000000000000000000ca")),
    TopicName("orders"),
    PartitionIndex(7),
)
LOG = bytes(range(256)) * 20


def segment(
    number: int = 0xFE, start_offset: int = 11, size_bytes: int = len(LOG)
) -> RemoteSegment:
    """Return a segment of a hundred records."""
    return RemoteSegment(
        partition=ORDERS,
        id=SegmentId(number.to_bytes(16)),
        start_offset=start_offset,
        end_offset=start_offset + 99,
        max_timestamp_ms=100,
        broker_id=BrokerId(42),
        event_timestamp_ms=123,
        size_bytes=size_bytes,
        epochs=(SegmentEpoch(0, start_offset),),
    )


def files(*, log: bytes = LOG, txn_index: bytes | None = b"aborted") -> SegmentFiles:
    """Return the files of a segment."""
    return SegmentFiles(
        log=in_parts(log),
        log_bytes=len(log),
        offset_index=b"offsets",
        time_index=b"",
        txn_index=txn_index,
        producer_snapshot=b"producers",
        leader_epochs=b"0\n1\n0 11\n",
    )


def in_parts(data: bytes, part_bytes: int = 1000) -> Callable[[], AsyncIterator[Buffer]]:
    async def read() -> AsyncIterator[Buffer]:
        for position in range(0, len(data), part_bytes):
            yield memoryview(data)[position : position + part_bytes]

    return read
