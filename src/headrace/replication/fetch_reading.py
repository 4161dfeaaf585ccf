"""Reading partitions for a fetch: the records that a client may have, or the error."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headrace.errors import LEADER_MOVED, ErrorCode
from headrace.ids import ZERO_TOPIC_ID, TopicName
from headrace.log.errors import LogError
from headrace.log.fetch import ColdRead
from headrace.log.log import Log
from headrace.loop.turns import BYTES_SHIFT, TURN_COST_MAX
from headrace.records.header import LENGTH_AT, LENGTH_PREFIX_BYTES
from headrace.replication.fetch_sessions import FIRST_WITH_TOPIC_IDS, WantedPartition
from headrace.replication.leaders import current_leader
from headrace.replication.partition import ANY_LEADER_EPOCH, Partition
from headrace.replication.replicas import Replicas
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
READS_PER_THREAD: Final = 16
"""How many cold partitions a thread reads in sequence."""
ABORTED_SHIFT: Final = 3
"""This power of two of aborted transactions in a row costs as much as a partition."""
_EMPTY: Final = memoryview(b"")
_NOT_HERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors that need no lookup in a log."""


class ColdPartition(NamedTuple):
    """A partition whose records a thread has to read."""

    wanted: WantedPartition
    partition: Partition
    bytes_max: int
    """The bytes of the fetch reserved for it."""
    is_first: bool
    work: ColdRead


class FetchReader:
    """Reads the partitions of one request, each once, and keeps what it read."""

    __slots__ = (
        "_has_told",
        "_is_committed",
        "_remaining_bytes",
        "_replicas",
        "_version",
        "byte_count",
        "cold",
        "cost",
        "found",
        "given",
        "is_stranger",
        "is_urgent",
        "rows",
    )

    def __init__(
        self,
        replicas: Replicas,
        body: FetchRequest,
        version: int,
        *,
        bytes_max: int,
        is_incremental: bool,
    ) -> None:
        """`is_incremental` omits partitions without news."""
        self._replicas = replicas
        self._version = version
        self._has_told = is_incremental
        self._is_committed = body.isolation_level == READ_COMMITTED
        self._remaining_bytes = min(body.max_bytes, bytes_max)
        # Nothing replicates from here yet, so no request really comes from a replica.
        self.is_stranger = body.replica_id >= 0 or body.replica_state.replica_id >= 0
        self.rows: dict[WantedPartition, PartitionData] = {}
        self.found: list[tuple[WantedPartition, Partition]] = []
        """The response rows read since this was last cleared."""
        self.given: list[tuple[WantedPartition, Partition]] = []
        """The rows with records."""
        self.cold: list[ColdPartition] = []
        """The partitions that threads have yet to read."""
        self.byte_count = 0
        self.is_urgent = False
        """Whether the client must get a response at once: an error, or a truncation."""
        self.cost: int
        """The cost of the last `read`, in units of `Turns`."""

    def find(self, wanted: WantedPartition) -> Partition | None:
        replicas = self._replicas
        partition = replicas.find_wanted(wanted.topic_id, wanted.topic, wanted.index)
        if partition is not None:
            wanted.topic = partition.topic
        return partition

    def read(self, wanted: Iterator[WantedPartition]) -> bool:
        """Read the wanted partitions, as many as fit into one turn; return whether that is all.

        Partitions that would wait for the disk are left in `cold`. Their byte limits count as
        read, so that later partitions do not use them up.
        """
        cost = 0
        for each in wanted:
            partition = self.find(each)
            row: PartitionData | None
            if partition is not None:
                self.found.append((each, partition))
            if partition is None or not partition.is_leader or self.is_stranger:
                row = self._missing(each)
            elif self._has_told and _is_quiet(partition, each):
                row = None
            else:
                bytes_max = min(each.max_bytes, self._remaining_bytes)
                is_first = self.byte_count == 0 and not self.cold
                try:
                    row = self._read_one(partition, each, bytes_max, is_first=is_first)
                except LogError as error:
                    row = _failed(each.index, error.code)
            cost += 1 if row is None else self._take(each, partition, row)
            if cost >= TURN_COST_MAX:
                self.cost = cost
                return False
        self.cost = cost
        return True

    def take_cold(self, each: ColdPartition) -> bool:
        """Add what a thread has read; return whether there is nothing more to read now."""
        wanted, partition, bytes_max, is_first, work = each
        self._remaining_bytes += work.bytes_max
        is_whole = True
        if partition.is_leader and self.find(wanted) is partition:
            try:
                partition.log.check_offset(wanted.fetch_offset)  # its segment may have been deleted
                # The segment may have nothing from the offset on; then the next one does.
                records = work.result(partition.log.cuts) or _EMPTY
                is_whole = bool(records)
                row = self._read_one(
                    partition, wanted, bytes_max, is_first=is_first, records=records
                )
                assert row is not None
            except LogError as error:
                row = _failed(wanted.index, error.code)
            except OSError:
                row = _failed(wanted.index, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            row = self._missing(wanted)
        self.cost += self._take(wanted, partition, row)
        return is_whole

    def _take(
        self, wanted: WantedPartition, partition: Partition | None, row: PartitionData
    ) -> int:
        """Keep a row if it has news; return its cost."""
        if row.records:
            count = len(row.records)
            self.byte_count += count
            self._remaining_bytes -= count
            self.given.append((wanted, partition))  # type: ignore[arg-type]
            self.rows[wanted] = row
            cost = 1 + (count >> BYTES_SHIFT)
            if row.aborted_transactions:
                cost += len(row.aborted_transactions) >> ABORTED_SHIFT
            return cost
        if row.error_code or row.diverging_epoch.end_offset >= 0:
            self.is_urgent = True
        elif (
            self._has_told
            and row.high_watermark == wanted.high_watermark
            and row.log_start_offset == wanted.log_start_offset
        ):
            self.rows.pop(wanted, None)
            return 1
        self.rows[wanted] = row
        return 1

    @property
    def element_count(self) -> int:
        """The approximate number of elements to encode."""
        return len(self.rows) + sum(
            len(self.rows[wanted].aborted_transactions or ()) for wanted, _ in self.given
        )

    def let_go(self) -> list[WantedPartition]:
        """Drop the records that were read, as the fetch waits for more; return their partitions."""
        given = [wanted for wanted, _ in self.given]
        for wanted in given:
            self.rows[wanted].records = _EMPTY
        self.given.clear()
        self._remaining_bytes += self.byte_count
        self.byte_count = 0
        return given

    def _read_one(
        self,
        partition: Partition,
        wanted: WantedPartition,
        bytes_max: int,
        *,
        is_first: bool,
        records: memoryview | None = None,
    ) -> PartitionData | None:
        """Read from one partition; None, with an entry in `cold`, if that would wait for the disk.

        `records` are those that a thread has read.
        """
        log, offset = partition.log, wanted.fetch_offset
        if 0 <= wanted.current_leader_epoch != partition.leader_epoch:
            code = partition.check_leader_epoch(wanted.current_leader_epoch)
            return self._moved(wanted, partition.topic, code)
        if wanted.last_fetched_epoch >= 0:
            ended = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.end_offset)
            if ended.end_offset < 0:
                return _failed(wanted.index, ErrorCode.OFFSET_OUT_OF_RANGE)
            if ended.epoch < wanted.last_fetched_epoch or ended.end_offset < offset:
                row = _row(log, wanted.index, _EMPTY, log.last_stable_offset)
                row.diverging_epoch = EpochEndOffset(epoch=ended.epoch, end_offset=ended.end_offset)
                return row
        stable_offset = log.last_stable_offset
        up_to = stable_offset if self._is_committed else log.high_watermark
        if records is not None:
            log.check_offset(offset)
        elif offset >= up_to or (bytes_max <= 0 and not is_first):
            log.check_offset(offset)
            records = _EMPTY
        else:
            records = log.read(offset, bytes_max, up_to=up_to, is_first_whole=is_first)
            if records is None:
                work = log.cold_read(offset, bytes_max, up_to=up_to, is_first_whole=is_first)
                self._remaining_bytes -= work.bytes_max
                self.cold.append(ColdPartition(wanted, partition, bytes_max, is_first, work))
                return None
        if not is_first and not _has_whole_batch(records):
            records = _EMPTY
        row = _row(log, wanted.index, records, stable_offset)
        if self._is_committed:
            row.aborted_transactions = (
                [
                    AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                    for each in log.aborted_in(records, offset, up_to)
                ]
                if records
                else []
            )
        return row

    def _missing(self, wanted: WantedPartition) -> PartitionData:
        """Return the error row of a partition that cannot be read here."""
        image, name = self._replicas.image, wanted.topic
        if wanted.topic_id != ZERO_TOPIC_ID:
            topic = image.topic_by_id(wanted.topic_id)
            if topic is not None:
                name = topic.name
            elif not name:
                return _failed(wanted.index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif image.topic(name) is not None:
                # A session that outlived its topic, which was deleted and created again.
                return _failed(wanted.index, ErrorCode.INCONSISTENT_TOPIC_ID)
        elif self._version >= FIRST_WITH_TOPIC_IDS:
            return _failed(wanted.index, ErrorCode.UNKNOWN_TOPIC_ID)
        code = self._replicas.explain_missing(name, wanted.index).code
        return self._moved(wanted, name, code)

    def _moved(self, wanted: WantedPartition, topic: TopicName, code: ErrorCode) -> PartitionData:
        row = _failed(wanted.index, code)
        if code in LEADER_MOVED and self._version >= FIRST_WITH_LEADERS:
            leader = current_leader(self._replicas.image, topic, wanted.index)
            row.current_leader = LeaderIdAndEpoch(
                leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
            )
        return row


async def read_together(slots: asyncio.Semaphore, reads: Sequence[ColdRead]) -> None:
    """Run reads in threads, as many at a time as there are slots."""
    loop = asyncio.get_running_loop()

    async def run(some: Sequence[ColdRead]) -> None:
        async with slots:
            await loop.run_in_executor(None, _run_all, some)

    parts = [
        reads[first : first + READS_PER_THREAD] for first in range(0, len(reads), READS_PER_THREAD)
    ]
    if len(parts) == 1:
        await run(parts[0])
    else:
        await asyncio.gather(*map(run, parts))


def _run_all(reads: Sequence[ColdRead]) -> None:
    for each in reads:
        each.run()


def _row(log: Log, index: int, records: memoryview, stable_offset: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=log.high_watermark,
        last_stable_offset=stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=records,
    )


def _is_quiet(partition: Partition, wanted: WantedPartition) -> bool:
    """Return whether there is nothing to read and no news for the client."""
    log = partition.log
    return (
        wanted.high_watermark == log.high_watermark == wanted.fetch_offset
        and wanted.log_start_offset == log.start_offset
        and wanted.current_leader_epoch in (ANY_LEADER_EPOCH, partition.leader_epoch)
        and wanted.last_fetched_epoch in (UNKNOWN, log.epochs.latest_epoch)
    )


def _has_whole_batch(records: memoryview) -> bool:
    if len(records) < LENGTH_PREFIX_BYTES:
        return False
    length = int.from_bytes(records[LENGTH_AT:LENGTH_PREFIX_BYTES])
    return len(records) >= length + LENGTH_PREFIX_BYTES


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=UNKNOWN,
        aborted_transactions=[] if code in _NOT_HERE else None,
        records=_EMPTY,
    )
