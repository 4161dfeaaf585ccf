"""Rows of Fetch responses, for consumers and followers alike."""

from typing import Final

from headrace.errors import LEADER_MOVED, ErrorCode
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.log.errors import OffsetOutOfRange
from headrace.log.log import Log
from headrace.records.header import LENGTH_AT, LENGTH_PREFIX_BYTES
from headrace.replication.fetch_sessions import FIRST_WITH_TOPIC_IDS
from headrace.replication.leaders import current_leader
from headrace.replication.replicas import Replicas
from headrace.wire.messages.fetch_response import EpochEndOffset, LeaderIdAndEpoch, PartitionData

FIRST_WITH_LEADERS: Final = 16
UNKNOWN: Final = -1
EMPTY: Final = memoryview(b"")
_NOT_HERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors that need no lookup in a log."""


def log_row(log: Log, index: int, records: memoryview, stable_offset: int) -> PartitionData:
    """Return the row of a partition that was read."""
    return PartitionData(
        partition_index=index,
        high_watermark=log.high_watermark,
        last_stable_offset=stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=records,
    )


def failed_row(index: int, code: ErrorCode) -> PartitionData:
    """Return the row of a partition that cannot be read."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=UNKNOWN,
        aborted_transactions=[] if code in _NOT_HERE else None,
        records=EMPTY,
    )


def moved_row(
    replicas: Replicas, topic: TopicName, index: int, code: ErrorCode, version: int
) -> PartitionData:
    """Return an error row that names the leader, if the version has a field for it (KIP-951)."""
    row = failed_row(index, code)
    if code in LEADER_MOVED and version >= FIRST_WITH_LEADERS:
        leader = current_leader(replicas.image, topic, index)
        row.current_leader = LeaderIdAndEpoch(
            leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
        )
    return row


def missing_row(
    replicas: Replicas, topic_id: TopicId, topic: TopicName, index: int, version: int
) -> PartitionData:
    """Return the error row of a partition that is not here; an empty `topic` is unknown."""
    image = replicas.image
    if topic_id != ZERO_TOPIC_ID:
        known = image.topic_by_id(topic_id)
        if known is not None:
            topic = known.name
        elif not topic:
            return failed_row(index, ErrorCode.UNKNOWN_TOPIC_ID)
        elif image.topic(topic) is not None:
            # A session that outlived its topic, which was deleted and created again.
            return failed_row(index, ErrorCode.INCONSISTENT_TOPIC_ID)
    elif version >= FIRST_WITH_TOPIC_IDS:
        return failed_row(index, ErrorCode.UNKNOWN_TOPIC_ID)
    code = replicas.explain_missing(topic, index).code
    return moved_row(replicas, topic, index, code, version)


def find_divergence(log: Log, offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
    """Return where a reader's log diverges from this one, None if it does not (KIP-595).

    `last_fetched_epoch` is the epoch of the reader's last record. Raise OffsetOutOfRange if this
    log does not know the epoch, or begins later.
    """
    ended = log.epochs.end_offset_for(last_fetched_epoch, log.end_offset)
    if ended.end_offset < 0 or offset < log.start_offset:
        raise OffsetOutOfRange(log.folder, offset, log.start_offset, log.end_offset)
    if ended.epoch < last_fetched_epoch or ended.end_offset < offset:
        return EpochEndOffset(epoch=ended.epoch, end_offset=ended.end_offset)
    return None


def has_whole_batch(records: memoryview) -> bool:
    """Return whether the first batch is complete."""
    if len(records) < LENGTH_PREFIX_BYTES:
        return False
    length = int.from_bytes(records[LENGTH_AT:LENGTH_PREFIX_BYTES])
    return len(records) >= length + LENGTH_PREFIX_BYTES
