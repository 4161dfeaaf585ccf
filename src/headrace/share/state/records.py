"""The records of `__share_group_state` as Kafka writes them: snapshots and updates."""

from collections.abc import Iterable
from typing import Any, Final

from headrace.coordinator.records import CoordinatorRecord, RecordTypes
from headrace.ids import PartitionIndex, SharePartitionKey, TopicId
from headrace.share.durable import StateBatch, StateWrite
from headrace.share.state.states import ShareState
from headrace.wire.messages.share_snapshot_key import ShareSnapshotKey
from headrace.wire.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.messages.share_snapshot_value import StateBatch as SnapshotBatch
from headrace.wire.messages.share_update_key import ShareUpdateKey
from headrace.wire.messages.share_update_value import ShareUpdateValue
from headrace.wire.messages.share_update_value import StateBatch as UpdateBatch

RECORD_TYPES: Final[RecordTypes] = {
    ShareSnapshotKey.API_KEY: (ShareSnapshotKey, ShareSnapshotValue),
    ShareUpdateKey.API_KEY: (ShareUpdateKey, ShareUpdateValue),
}


def snapshot(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    """Return the record of a whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=[SnapshotBatch(*batch) for batch in state.batches],
    )
    return CoordinatorRecord(ShareSnapshotKey(*key), value)


def update(key: SharePartitionKey, snapshot_epoch: int, write: StateWrite) -> CoordinatorRecord:
    """Return the record of a change; it has no state epoch: that is in the snapshot."""
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=write.leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=[UpdateBatch(*batch) for batch in write.batches],
    )
    return CoordinatorRecord(ShareUpdateKey(*key), value)


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    return CoordinatorRecord(ShareSnapshotKey(*key), None)


def to_key(key: ShareSnapshotKey | ShareUpdateKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, TopicId(key.topic_id), PartitionIndex(key.partition))


def to_state(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        to_batches(value.state_batches),
    )


def to_batches(rows: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Return the state batches of a message."""
    return tuple(
        StateBatch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count)
        for row in rows
    )
