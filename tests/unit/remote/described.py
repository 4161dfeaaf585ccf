"""Segments and objects for tests, with as few words as possible."""

from collections.abc import Iterable, Sequence

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.segments import (
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    TopicIdPartition,
)
from headrace.remote.store import StoredObject

PARTITION = TopicIdPartition(TopicId(bytes(15) + b"\xca"), TopicName("orders"), PartitionIndex(7))
BESIDES_LOG = (
    ObjectKind.OFFSET_INDEX,
    ObjectKind.TIME_INDEX,
    ObjectKind.PRODUCER_SNAPSHOT,
    ObjectKind.LEADER_EPOCHS,
)


def segment(
    number: int,
    start: int,
    end: int,
    *,
    epochs: Sequence[tuple[int, int]] = (),
    state: SegmentState = SegmentState.COPY_FINISHED,
    event_ms: int = 0,
    size_bytes: int = 1000,
    max_timestamp_ms: int = 0,
    partition: TopicIdPartition = PARTITION,
) -> RemoteSegment:
    return RemoteSegment(
        partition=partition,
        id=SegmentId(number.to_bytes(16, "big")),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=BrokerId(1),
        event_timestamp_ms=event_ms,
        size_bytes=size_bytes,
        epochs=tuple(SegmentEpoch(*each) for each in epochs or [(0, start)]),
        state=state,
    )


def objects_of(
    described: RemoteSegment,
    *,
    without: Iterable[ObjectKind] = (),
    modified_ms: int = 0,
) -> list[StoredObject]:
    missing = set(without)
    kinds = {ObjectKind.LOG: described.size_bytes} | dict.fromkeys(BESIDES_LOG, 10)
    return [
        StoredObject(object_key(described, kind), size_bytes, modified_ms)
        for kind, size_bytes in kinds.items()
        if kind not in missing
    ]
