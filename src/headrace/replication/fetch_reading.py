"""Reading partitions for a consumer's fetch: the records that it may have, or the error.

A leader serves every consumer, a follower those of version 11 and above (KIP-392); both up to their
own high watermark. `replica_reading` is for followers.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import LogError, OffsetInTier
from headrace.log.fetch import ColdRead
from headrace.loop.turns import BYTES_SHIFT, TURN_COST_MAX
from headrace.records.aborted import AbortedTransaction as Aborted
from headrace.replication.fetch_rows import (
    EMPTY,
    UNKNOWN,
    failed_row,
    find_divergence,
    has_whole_batch,
    log_row,
    missing_row,
    moved_row,
)
from headrace.replication.fetch_sessions import WantedPartition
from headrace.replication.partition import ANY_LEADER_EPOCH, Partition
from headrace.replication.remote_log import RemoteRead
from headrace.replication.replica_selection import preferred_replica
from headrace.replication.replicas import Replicas
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import AbortedTransaction, PartitionData

FIRST_FROM_FOLLOWERS: Final = 11
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
READS_PER_THREAD: Final = 16
"""How many cold partitions a thread reads in sequence."""
ABORTED_SHIFT: Final = 3
"""This power of two of aborted transactions in a row costs as much as a partition."""


class ColdPartition(NamedTuple):
    """A partition whose records a thread has to read, or the tier."""

    wanted: WantedPartition
    partition: Partition
    bytes_max: int
    """The bytes of the fetch reserved for it."""
    is_first: bool
    work: ColdRead | RemoteRead


class FetchReader:
    """Reads the partitions of one request, each once, and keeps what it read."""

    __slots__ = (
        "_has_told",
        "_is_committed",
        "_listener",
        "_rack",
        "_remaining_bytes",
        "_replicas",
        "_version",
        "byte_count",
        "cold",
        "cost",
        "found",
        "given",
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
        self._rack = ""
        self._listener: str
        self.rows: dict[WantedPartition, PartitionData] = {}
        self.found: list[tuple[WantedPartition, Partition]] = []
        """The response rows read since this was last cleared."""
        self.given: list[tuple[WantedPartition, Partition]] = []
        """The rows with records."""
        self.cold: list[ColdPartition] = []
        """The partitions that threads or the tier have yet to read."""
        self.byte_count = 0
        self.is_urgent = False
        """Whether the client must get a response at once: an error, or a truncation."""
        self.cost: int
        """The cost of the last `read`, in units of `Turns`."""

    def prefer(self, rack: str, listener: str) -> None:
        """Send the consumer to replicas in its rack that it can reach at a listener."""
        self._rack, self._listener = rack, listener

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
            if partition is None or not (partition.is_leader or self._may_follow(partition)):
                row = self._refused(each, partition)
            elif (self._rack and self._is_sent_elsewhere(each, partition)) or (
                self._has_told and _is_quiet(partition, each)
            ):
                row = None
            else:
                bytes_max = min(each.max_bytes, self._remaining_bytes)
                is_first = self.byte_count == 0 and not self.cold
                try:
                    row = self._read_one(partition, each, bytes_max, is_first=is_first)
                except OffsetInTier:
                    self._read_tier(partition, each, bytes_max, is_first=is_first)
                    row = None
                except LogError as error:
                    row = failed_row(each.index, error.code)
            cost += 1 if row is None else self._take(each, partition, row)
            if cost >= TURN_COST_MAX:
                self.cost = cost
                return False
        self.cost = cost
        return True

    def missing(self, wanted: WantedPartition) -> PartitionData:
        """Return the error row of a partition of a topic that there is not."""
        return self._refused(wanted, None)

    def refuse(self, refused: Mapping[WantedPartition, PartitionData]) -> None:
        """Answer for partitions with errors, whatever was read of them."""
        given = []
        for each in self.given:
            if each[0] in refused:
                count = len(self.rows[each[0]].records or EMPTY)
                self.byte_count -= count
                self._remaining_bytes += count
            else:
                given.append(each)
        self.given = given
        self.cold = [each for each in self.cold if each.wanted not in refused]
        self.rows.update(refused)
        self.is_urgent = True

    def take_cold(self, each: ColdPartition) -> bool:
        """Add what a thread or the tier gave; return whether there is nothing more to read now."""
        wanted, partition, bytes_max, is_first, work = each
        self._remaining_bytes += work.bytes_max
        is_whole = True
        is_readable = partition.is_leader or self._may_follow(partition)
        if is_readable and self.find(wanted) is partition:
            try:
                if isinstance(work, RemoteRead):
                    self.cost += self._take_remote(each, work)
                    return True
                log = partition.log
                log.check_offset(wanted.fetch_offset)  # its segment may have been deleted
                # The segment may have nothing from the offset on; then the next one does. Or it has
                # left the disk, with its index of aborted transactions: then the tier has both.
                is_here = wanted.fetch_offset >= log.local_start_offset
                records = (work.result(log.cuts) if is_here else None) or EMPTY
                is_whole = bool(records)
                row = self._read_one(
                    partition, wanted, bytes_max, is_first=is_first, records=records
                )
                assert row is not None
            except KafkaError as error:
                row = failed_row(wanted.index, error.code)
            except OSError:
                row = failed_row(wanted.index, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            row = self._refused(wanted, self.find(wanted))
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
            self.rows[wanted].records = EMPTY
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
        """Read from one partition; None, with an entry in `cold`, if that would wait for the disk,
        or if there are many aborted transactions that nobody has looked at.

        `records` are those that a thread has read.
        """
        is_warm = records is not None
        log, offset = partition.log, wanted.fetch_offset
        if 0 <= wanted.current_leader_epoch != partition.leader_epoch:
            code = partition.check_leader_epoch(wanted.current_leader_epoch)
            return self._moved(wanted, partition, code)
        if wanted.last_fetched_epoch >= 0:
            diverging = find_divergence(log, offset, wanted.last_fetched_epoch)
            if diverging is not None:
                row = log_row(log, wanted.index, EMPTY, log.last_stable_offset)
                row.diverging_epoch = diverging
                return row
        stable_offset = log.last_stable_offset
        up_to = stable_offset if self._is_committed else log.high_watermark
        if records is not None:
            log.check_offset(offset)
        elif offset >= up_to or (bytes_max <= 0 and not is_first):
            log.check_offset(offset)
            records = EMPTY
        else:
            records = log.read(offset, bytes_max, up_to=up_to, is_first_whole=is_first)
            if records is None:
                self._leave_cold(partition, wanted, bytes_max, up_to, is_first=is_first)
                return None
        if not is_first and not has_whole_batch(records):
            records = EMPTY
        row = log_row(log, wanted.index, records, stable_offset)
        if self._is_committed:
            aborted: Sequence[Aborted] | None = ()
            if records and is_warm:
                aborted = log.aborted_in(records, offset, up_to)
            elif records:
                aborted = log.aborted_in_at_once(records, offset, up_to)
            if aborted is None:
                self._leave_cold(partition, wanted, bytes_max, up_to, is_first=is_first)
                return None
            row.aborted_transactions = _aborted_rows(aborted)
        return row

    def _leave_cold(
        self,
        partition: Partition,
        wanted: WantedPartition,
        bytes_max: int,
        up_to: int,
        *,
        is_first: bool,
    ) -> None:
        """Leave a partition for a thread to be read."""
        work = partition.log.cold_read(
            wanted.fetch_offset,
            bytes_max,
            up_to=up_to,
            is_first_whole=is_first,
            with_aborted=self._is_committed,
        )
        self._remaining_bytes -= work.bytes_max
        self.cold.append(ColdPartition(wanted, partition, bytes_max, is_first, work))

    def _read_tier(
        self, partition: Partition, wanted: WantedPartition, bytes_max: int, *, is_first: bool
    ) -> None:
        """Leave a partition, whose records are not on this disk, for the tier to be read."""
        log = partition.log
        up_to = log.last_stable_offset if self._is_committed else log.high_watermark
        work = RemoteRead(
            partition,
            wanted.fetch_offset,
            bytes_max,
            up_to=up_to,
            is_first_whole=is_first,
            with_aborted=self._is_committed,
        )
        self._remaining_bytes -= bytes_max
        self.cold.append(ColdPartition(wanted, partition, bytes_max, is_first, work))

    def _take_remote(self, each: ColdPartition, work: RemoteRead) -> int:
        """Add what the tier gave, or that it gave nothing in time; return the cost."""
        log, wanted = each.partition.log, each.wanted
        log.check_offset(wanted.fetch_offset)  # it may have been deleted
        code = each.partition.check_leader_epoch(wanted.current_leader_epoch)
        if code != ErrorCode.NONE:
            return self._take(wanted, each.partition, self._moved(wanted, each.partition, code))
        found = work.result()
        records = EMPTY if found is None else found.records
        if not each.is_first and not has_whole_batch(records):
            records = EMPTY
        if not records:
            self.is_urgent = True  # the client comes again, for what may be there by then
        row = log_row(log, wanted.index, records, log.last_stable_offset)
        if self._is_committed:
            row.aborted_transactions = (
                _aborted_rows(found.aborted) if found is not None and records else []
            )
        return self._take(wanted, each.partition, row)

    def _may_follow(self, partition: Partition) -> bool:
        """Return whether a consumer may read from a follower, whose log is in order."""
        return self._version >= FIRST_FROM_FOLLOWERS and not partition.log.is_being_cut

    def _refused(self, wanted: WantedPartition, partition: Partition | None) -> PartitionData:
        """Return the error row of a partition that is not here, or not to be read here."""
        if partition is None:
            return missing_row(
                self._replicas, wanted.topic_id, wanted.topic, wanted.index, self._version
            )
        code = partition.check_leader_epoch(wanted.current_leader_epoch)
        return self._moved(wanted, partition, code or ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _moved(
        self, wanted: WantedPartition, partition: Partition, code: ErrorCode
    ) -> PartitionData:
        return moved_row(self._replicas, partition.topic, wanted.index, code, self._version)

    def _is_sent_elsewhere(self, wanted: WantedPartition, partition: Partition) -> bool:
        """Return whether the consumer is told to read from a replica in its rack."""
        if not partition.is_leader:
            return False
        replica = preferred_replica(
            partition, self._replicas.image, self._rack, self._listener, wanted.fetch_offset
        )
        code = partition.check_leader_epoch(wanted.current_leader_epoch)
        if replica is None or code != ErrorCode.NONE:
            return False
        row = log_row(partition.log, wanted.index, EMPTY, partition.log.last_stable_offset)
        row.preferred_read_replica = replica
        self.rows[wanted] = row
        self.is_urgent = True
        return True


def _aborted_rows(aborted: Iterable[Aborted]) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in aborted
    ]


def split_reads(cold: Sequence[ColdPartition]) -> tuple[list[ColdRead], list[RemoteRead]]:
    """Return the reads that threads do, and those of the tier."""
    remote = [each.work for each in cold if isinstance(each.work, RemoteRead)]
    return [each.work for each in cold if not isinstance(each.work, RemoteRead)], remote


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


def _is_quiet(partition: Partition, wanted: WantedPartition) -> bool:
    """Return whether there is nothing to read and no news for the client."""
    log = partition.log
    return (
        wanted.high_watermark == log.high_watermark == wanted.fetch_offset
        and wanted.log_start_offset == log.start_offset
        and wanted.current_leader_epoch in (ANY_LEADER_EPOCH, partition.leader_epoch)
        and wanted.last_fetched_epoch in (UNKNOWN, log.epochs.latest_epoch)
    )
