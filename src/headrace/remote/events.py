"""Events of the metadata topic, in the bytes of Kafka's RemoteLogMetadataSerde. Pure.

    frame version 1 | record type | record version | the record, a flexible message

Each of the first three is an unsigned varint. Crabka writes the same bytes. Reading is strict: what
this version does not know, and what is left over, is an error that names it. To skip an event could
mean to lose a segment, or to read one whose objects are deleted. Only what no version can have
written is told apart: any client with the right may write to the topic.
"""

from typing import Final, TypeVar

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.remote.segments import (
    DeleteState,
    MetadataEvent,
    PartitionDelete,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TierError,
    TopicIdPartition,
)
from headrace.wire import WireError, decode, encode
from headrace.wire.errors import Fault
from headrace.wire.messages import (
    remote_log_segment_metadata_record as added,
)
from headrace.wire.messages import (
    remote_log_segment_metadata_update_record as updated,
)
from headrace.wire.messages import (
    remote_partition_delete_metadata_record as deleted,
)
from headrace.wire.primitives import read_varint
from headrace.wire.schema import Buffer, Message

FRAME_VERSION: Final = 1
NUMBER_MAX: Final = 15
"""What later versions may have in each part of the head, if ever: text has 32 or more."""
RECORD_VERSION: Final = 0
_SNAPSHOT_TYPE: Final = 3

Added = added.RemoteLogSegmentMetadataRecord
Updated = updated.RemoteLogSegmentMetadataUpdateRecord
Deleted = deleted.RemotePartitionDeleteMetadataRecord

_HEADS: Final = frozenset(
    bytes((FRAME_VERSION, kind.API_KEY, RECORD_VERSION)) for kind in (Added, Updated, Deleted)
)

S = TypeVar("S", SegmentState, DeleteState)


class UnreadableEvent(TierError):
    """Bytes that are not an event which this version knows."""


class NoEvent(UnreadableEvent):
    """Bytes that no version wrote as an event: all nodes pass over them."""


def encode_event(event: MetadataEvent) -> bytes:
    """Return the bytes of an event; WireError for a value that has no form there."""
    if isinstance(event, RemoteSegment):
        message: Message = _added(event)
    elif isinstance(event, SegmentUpdate):
        message = _updated(event)
    else:
        message = _deleted(event)
    return bytes((FRAME_VERSION, message.API_KEY, RECORD_VERSION)) + encode(message, RECORD_VERSION)


def decode_event(data: Buffer) -> MetadataEvent:
    """Read an event. Raise UnreadableEvent for bytes that are none here, NoEvent if nowhere.

    Raise InvalidSegment if it can be read, and describes a segment that cannot be.
    """
    view = memoryview(data)
    try:
        if bytes(view[:3]) in _HEADS:  # all that is known
            return _decode_known(view[1], view[3:])
        frame_version, position = read_varint(view, 0)
        record_type, position = read_varint(view, position)
        record_version, position = read_varint(view, position)
    except (WireError, Fault, IndexError) as error:
        raise NoEvent(f"an event of {len(view)} bytes has no header") from error
    if max(frame_version, record_type, record_version) > NUMBER_MAX:
        raise NoEvent(
            f"{len(view)} bytes are no event: frame version {frame_version}, type {record_type}, "
            f"version {record_version}"
        )
    if frame_version != FRAME_VERSION:
        raise UnreadableEvent(f"an event has frame version {frame_version}, not {FRAME_VERSION}")
    if record_version != RECORD_VERSION:
        raise UnreadableEvent(
            f"an event of type {record_type} has version {record_version}, not {RECORD_VERSION}"
        )
    what = ", a snapshot of Kafka's, which does not belong here" * (record_type == _SNAPSHOT_TYPE)
    raise UnreadableEvent(f"an event has type {record_type}{what}; types 0 to 2 are known")


def _decode_known(record_type: int, body: memoryview) -> MetadataEvent:
    try:
        return _decode_record(record_type, body)
    except (WireError, Fault, IndexError) as error:
        raise NoEvent(f"an event cannot be read: {error}") from error


def _decode_record(record_type: int, body: memoryview) -> MetadataEvent:
    if record_type == Added.API_KEY:
        return _read_added(decode(Added, body, RECORD_VERSION))
    if record_type == Updated.API_KEY:
        return _read_updated(decode(Updated, body, RECORD_VERSION))
    return _read_deleted(decode(Deleted, body, RECORD_VERSION))


def _added(segment: RemoteSegment) -> Added:
    partition = segment.partition
    return Added(
        remote_log_segment_id=added.RemoteLogSegmentIdEntry(
            topic_id_partition=added.TopicIdPartitionEntry(
                name=partition.topic, id=partition.topic_id, partition=partition.index
            ),
            id=segment.id,
        ),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            added.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset)
            for epoch, offset in segment.epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.is_txn_index_empty,
    )


def _updated(update: SegmentUpdate) -> Updated:
    partition = update.partition
    return Updated(
        remote_log_segment_id=updated.RemoteLogSegmentIdEntry(
            topic_id_partition=updated.TopicIdPartitionEntry(
                name=partition.topic, id=partition.topic_id, partition=partition.index
            ),
            id=update.id,
        ),
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        remote_log_segment_state=update.state,
    )


def _deleted(delete: PartitionDelete) -> Deleted:
    partition = delete.partition
    return Deleted(
        topic_id_partition=deleted.TopicIdPartitionEntry(
            name=partition.topic, id=partition.topic_id, partition=partition.index
        ),
        broker_id=delete.broker_id,
        event_timestamp_ms=delete.event_timestamp_ms,
        remote_partition_delete_state=delete.state,
    )


def _read_added(record: Added) -> RemoteSegment:
    which = record.remote_log_segment_id
    epochs = [SegmentEpoch(row.leader_epoch, row.offset) for row in record.segment_leader_epochs]
    if len(epochs) > 1:
        # Kafka reads them into a sorted map: what is last of an epoch counts.
        epochs = [SegmentEpoch(*row) for row in sorted(dict(epochs).items())]
    return RemoteSegment(
        partition=_read_partition(which.topic_id_partition),
        id=SegmentId(bytes(which.id)),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        max_timestamp_ms=record.max_timestamp_ms,
        broker_id=BrokerId(record.broker_id),
        event_timestamp_ms=record.event_timestamp_ms,
        size_bytes=record.segment_size_in_bytes,
        epochs=tuple(epochs),
        custom_metadata=_read_bytes(record.custom_metadata),
        state=_read_state(SegmentState, record.remote_log_segment_state),
        is_txn_index_empty=record.txn_index_empty,
    )


def _read_updated(record: Updated) -> SegmentUpdate:
    which = record.remote_log_segment_id
    return SegmentUpdate(
        partition=_read_partition(which.topic_id_partition),
        id=SegmentId(bytes(which.id)),
        event_timestamp_ms=record.event_timestamp_ms,
        state=_read_state(SegmentState, record.remote_log_segment_state),
        broker_id=BrokerId(record.broker_id),
        custom_metadata=_read_bytes(record.custom_metadata),
    )


def _read_deleted(record: Deleted) -> PartitionDelete:
    return PartitionDelete(
        partition=_read_partition(record.topic_id_partition),
        event_timestamp_ms=record.event_timestamp_ms,
        state=_read_state(DeleteState, record.remote_partition_delete_state),
        broker_id=BrokerId(record.broker_id),
    )


def _read_partition(
    entry: added.TopicIdPartitionEntry
    | updated.TopicIdPartitionEntry
    | deleted.TopicIdPartitionEntry,
) -> TopicIdPartition:
    return TopicIdPartition(
        TopicId(bytes(entry.id)), TopicName(entry.name), PartitionIndex(entry.partition)
    )


def _read_bytes(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)


def _read_state(kind: type[S], value: int) -> S:
    try:
        return kind(value)
    except ValueError:
        raise UnreadableEvent(f"an event has the unknown state {value}") from None
