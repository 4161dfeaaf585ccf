"""Segments and events for tests."""

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.remote.segments import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

TOPIC_ID = TopicId(bytes(15) + b"\xca")
ORDERS = TopicIdPartition(TOPIC_ID, TopicName("orders"), PartitionIndex(7))


def segment_id(number: int) -> SegmentId:
    return SegmentId(number.to_bytes(16, "big"))


def partition(index: int, topic: int = 0xCA) -> TopicIdPartition:
    topic_id = TopicId(topic.to_bytes(16, "big"))
    return TopicIdPartition(topic_id, TopicName(f"topic-{topic:x}"), PartitionIndex(index))


def segment(
    number: int,
    start: int,
    end: int,
    *epochs: tuple[int, int],
    of: TopicIdPartition = ORDERS,
    size_bytes: int = 1000,
    state: SegmentState = SegmentState.COPY_STARTED,
    is_txn_index_empty: bool = False,
    custom_metadata: bytes | None = None,
) -> RemoteSegment:
    """Return a segment; without epochs all of it is of epoch 0."""
    return RemoteSegment(
        partition=of,
        id=segment_id(number),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=100,
        broker_id=BrokerId(1),
        event_timestamp_ms=123,
        size_bytes=size_bytes,
        epochs=tuple(SegmentEpoch(*epoch) for epoch in epochs or ((0, start),)),
        custom_metadata=custom_metadata,
        state=state,
        is_txn_index_empty=is_txn_index_empty,
    )


def update(
    of: RemoteSegment, state: SegmentState, *, custom_metadata: bytes | None = None
) -> SegmentUpdate:
    """Return a step: a copy is finished by whoever began it, and deleted by another broker."""
    broker = of.broker_id if state is SegmentState.COPY_FINISHED else BrokerId(2)
    return SegmentUpdate(of.partition, of.id, 456, state, broker, custom_metadata=custom_metadata)


def delete(of: TopicIdPartition, state: DeleteState) -> PartitionDelete:
    return PartitionDelete(of, 789, state, BrokerId(3))
