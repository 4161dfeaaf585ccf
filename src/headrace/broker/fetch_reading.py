"""Reading partitions for a fetch: what of each a client may have, and why not if it may not."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.fetch_sessions import FIRST_WITH_TOPIC_IDS, WantedPartition
from headrace.broker.leaders import current_leader
from headrace.broker.partition import Partition
from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID, TopicName
from headrace.log.errors import LogError
from headrace.log.log import Log
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
)

FIRST_WITH_LEADERS: Final = 16
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
UNKNOWN: Final = -1
_EMPTY: Final = memoryview(b"")
_LENGTH_AT: Final = 8
_LENGTH_PREFIX_BYTES: Final = 12
_NOT_HERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors of what is not looked for in a log."""
_LEADER_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Read(NamedTuple):
    """What one look at all partitions gave."""

    rows: list[tuple[WantedPartition, PartitionData]]
    byte_count: int
    is_urgent: bool
    """Whether there is something that a client must hear at once: an error, or a truncation."""
    cold: tuple[WantedPartition, Partition] | None
    """The first whose records are not in the page cache."""


class FetchReader:
    """Reads partitions as one request asks for."""

    __slots__ = ("_broker", "_bytes_max", "_is_committed", "_version", "is_stranger")

    def __init__(self, broker: Broker, body: FetchRequest, version: int) -> None:
        self._broker = broker
        self._version = version
        self._is_committed = body.isolation_level == READ_COMMITTED
        self._bytes_max = min(body.max_bytes, broker.fetch_bytes_max)
        # Nobody replicates from here yet, so whoever says that it does is no replica of anything.
        self.is_stranger = body.replica_id >= 0 or body.replica_state.replica_id >= 0

    def find(self, wanted: WantedPartition) -> Partition | None:
        replicas = self._broker.replicas
        partition = replicas.find_wanted(wanted.topic_id, wanted.topic, wanted.index)
        if partition is not None:
            wanted.topic = partition.topic
        return partition

    def read(self, wanted: Iterable[WantedPartition], *, may_block: bool = False) -> Read:
        """Read what is wanted, up to the first that would wait for the disk."""
        rows: list[tuple[WantedPartition, PartitionData]] = []
        remaining = self._bytes_max
        total, is_urgent, cold = 0, False, None
        for each in wanted:
            partition = self.find(each)
            if partition is None or not partition.is_leader or self.is_stranger:
                row = self._missing(each)
            else:
                try:
                    found = self._read_one(
                        partition,
                        each,
                        min(each.max_bytes, remaining),
                        is_first=total == 0,
                        may_block=may_block,
                    )
                except LogError as error:
                    found = _failed(each.index, error.code)
                if found is None:
                    cold = each, partition
                    break
                row = found
            count = len(row.records)  # type: ignore[arg-type]
            if row.error_code or row.diverging_epoch.end_offset >= 0:
                is_urgent = True
            total += count
            remaining -= count
            rows.append((each, row))
        return Read(rows, total, is_urgent, cold)

    def _read_one(
        self,
        partition: Partition,
        wanted: WantedPartition,
        bytes_max: int,
        *,
        is_first: bool,
        may_block: bool,
    ) -> PartitionData | None:
        """Read from one partition; None if that would wait for the disk."""
        log, offset = partition.log, wanted.fetch_offset
        if 0 <= wanted.current_leader_epoch != partition.leader_epoch:
            code = partition.check_leader_epoch(wanted.current_leader_epoch)
            return self._moved(wanted, partition.topic, code)
        if wanted.last_fetched_epoch >= 0:
            ended = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.end_offset)
            if ended.end_offset < 0:
                return _failed(wanted.index, ErrorCode.OFFSET_OUT_OF_RANGE)
            if ended.epoch < wanted.last_fetched_epoch or ended.end_offset < offset:
                row = self._row(log, wanted.index, _EMPTY)
                row.diverging_epoch = EpochEndOffset(epoch=ended.epoch, end_offset=ended.end_offset)
                return row
        up_to = log.last_stable_offset if self._is_committed else log.high_watermark
        records = log.read(
            offset, max(bytes_max, 0), up_to=up_to, is_first_whole=is_first, may_block=may_block
        )
        if records is None:
            return None
        if not is_first and not _has_whole_batch(records):
            records = _EMPTY
        row = self._row(log, wanted.index, records)
        if self._is_committed:
            row.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in (log.aborted_transactions(offset, up_to) if records else ())
            ]
        return row

    def _row(self, log: Log, index: int, records: memoryview) -> PartitionData:
        return PartitionData(
            partition_index=index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=records,
        )

    def _missing(self, wanted: WantedPartition) -> PartitionData:
        """Say why a partition cannot be read here."""
        image, name = self._broker.image, wanted.topic
        if wanted.topic_id != ZERO_TOPIC_ID:
            topic = image.topic_by_id(wanted.topic_id)
            if topic is not None:
                name = topic.name
            elif not name:
                return _failed(wanted.index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif image.topic(name) is not None:
                # A session that goes on after its topic was deleted and made again.
                return _failed(wanted.index, ErrorCode.INCONSISTENT_TOPIC_ID)
        elif self._version >= FIRST_WITH_TOPIC_IDS:
            return _failed(wanted.index, ErrorCode.UNKNOWN_TOPIC_ID)
        code = self._broker.replicas.explain_missing(name, wanted.index).code
        return self._moved(wanted, name, code)

    def _moved(self, wanted: WantedPartition, topic: TopicName, code: ErrorCode) -> PartitionData:
        row = _failed(wanted.index, code)
        if code in _LEADER_MOVED and self._version >= FIRST_WITH_LEADERS:
            leader = current_leader(self._broker.image, topic, wanted.index)
            row.current_leader = LeaderIdAndEpoch(
                leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
            )
        return row


def _has_whole_batch(records: memoryview) -> bool:
    if len(records) < _LENGTH_PREFIX_BYTES:
        return False
    length = int.from_bytes(records[_LENGTH_AT:_LENGTH_PREFIX_BYTES])
    return len(records) >= length + _LENGTH_PREFIX_BYTES


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=UNKNOWN,
        aborted_transactions=[] if code in _NOT_HERE else None,
        records=_EMPTY,
    )
