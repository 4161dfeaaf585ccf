"""The part of this node's logs that is in the tier, for those who read partitions.

It joins the two parts of a log: what the tier has below the local start, and where the local part
goes on (`replication.remote_log` is the port that this is behind).
"""

from collections.abc import Callable
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import LogError, OffsetInTier
from headrace.log.log import Log
from headrace.log.lookup import Found
from headrace.log.truncating import History
from headrace.records.aborted import AbortedTransaction
from headrace.remote.segments import TopicIdPartition
from headrace.replication.partition import Partition
from headrace.replication.remote_log import RemoteRecords
from headrace.tier.history import IndexSource, read_history
from headrace.tier.ports import RemoteMetadata
from headrace.tier.reading import RemoteReader

NOTHING: Final = RemoteRecords(memoryview(b""), [])


def remote_partition(partition: Partition) -> TopicIdPartition:
    """Return the name of a partition in the tier."""
    return TopicIdPartition(partition.topic_id, partition.topic, partition.index)


class TierLog:
    """Reads partitions from the tier (`replication.remote_log.RemoteLog`)."""

    def __init__(
        self,
        metadata: RemoteMetadata,
        reader: RemoteReader,
        source: IndexSource,
        may_skip: Callable[[], bool],
    ) -> None:
        """`may_skip` says whether offsets may be missing between the tier and the local log.

        That is so where records are dropped that were not copied (headrace.tier.drop.uncopied).
        """
        self.history_requests = 0
        """How often a follower had to begin behind what is in the tier, and how often not."""
        self.history_errors = 0
        self._metadata = metadata
        self._reader = reader
        self._source = source
        self._may_skip = may_skip

    async def read(
        self,
        partition: Partition,
        offset: int,
        bytes_max: int,
        *,
        up_to: int,
        is_first_whole: bool,
        with_aborted: bool,
    ) -> RemoteRecords:
        """Read batches from the one with `offset` on, none that starts at `up_to`."""
        log = partition.log
        local_start = log.local_start_offset
        found = await self._reader.read(
            remote_partition(partition),
            log.epochs,
            offset,
            bytes_max,
            up_to=min(up_to, local_start),
            is_first_whole=is_first_whole,
            with_aborted=with_aborted,
        )
        if found.gap_offset is not None:
            self._check_gap(log, found.gap_offset)
        if found.is_past_tier:
            if log.local_start_offset != local_start:
                return NOTHING  # what left the disk meanwhile may be in the tier: it is asked again
            return await self._read_local(
                log, bytes_max, up_to, is_first_whole=is_first_whole, with_aborted=with_aborted
            )
        aborted = list(found.aborted)
        if found.asks_local is not None:
            begin, end = found.asks_local
            local_start = log.local_start_offset
            await log.look_first(begin, end)
            if log.local_start_offset != local_start:
                return NOTHING  # the markers that left the disk meanwhile are in the tier
            aborted += log.aborted_transactions(begin, end)
        return RemoteRecords(found.records, aborted)

    def _check_gap(self, log: Log, offset: int) -> None:
        """Raise KafkaError if an offset may not be missing between the log's start and its disk."""
        if offset >= log.start_offset and not self._may_skip():
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{log.folder}: offset {offset} is neither in the tier nor on this disk, which "
                f"begins at {log.local_start_offset}; `headrace tier fsck` tells more",
            )

    async def _read_local(
        self, log: Log, bytes_max: int, up_to: int, *, is_first_whole: bool, with_aborted: bool
    ) -> RemoteRecords:
        """Read on where the local log begins."""
        offset = log.local_start_offset
        if offset >= up_to:
            return NOTHING
        if with_aborted:
            await log.look_first(offset, up_to, bytes_max)
        try:
            records = await log.read_cold(
                offset, bytes_max, up_to=up_to, is_first_whole=is_first_whole
            )
        except OffsetInTier:  # it has left the disk meanwhile
            return NOTHING
        aborted: list[AbortedTransaction] = []
        if records and with_aborted:
            aborted = log.aborted_in(records, offset, up_to)
        return RemoteRecords(records, aborted)

    async def find_time(self, partition: Partition, timestamp: int) -> Found | None:
        """Find the first record of the tier that is as late, from the log's start on."""
        log = partition.log
        found = await self._reader.find_time(
            remote_partition(partition),
            log.epochs,
            timestamp,
            start_offset=log.start_offset,
            up_to=log.local_start_offset,
        )
        return None if found is None else Found(*found)

    async def history(
        self, partition: Partition, offset: int, start_offset: int, epoch: int
    ) -> History:
        """Return what the tier knows about the records before `offset`."""
        self.history_requests += 1
        try:
            return await self._history(partition, offset, start_offset, epoch)
        except BaseException:
            self.history_errors += 1
            raise

    async def _history(
        self, partition: Partition, offset: int, start_offset: int, epoch: int
    ) -> History:
        name = remote_partition(partition)
        segment = self._metadata.find(name.key, epoch, offset - 1)
        if segment is None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.name}: the tier has no segment with offset {offset - 1} of leader "
                f"epoch {epoch} yet",
            )
        try:
            return await read_history(self._source, segment, start_offset)
        except LogError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.message) from error
