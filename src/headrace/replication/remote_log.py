"""The port through which partitions reach the part of their logs that is in the tier.

`headrace.tier` is behind it, if this node has a tier. Every failure is a KafkaError that clients
retry; OFFSET_OUT_OF_RANGE is raised only if no segment of the tier has the offset.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.log.lookup import Found, Run, find_off_loop
from headrace.log.truncating import History
from headrace.records.aborted import AbortedTransaction
from headrace.replication.partition import Partition

ATTEMPTS_MAX: Final = 5
"""How often a look-up by time begins again as segments left the disk meanwhile."""


class RemoteRecords(NamedTuple):
    """Records of the tier; none if there is no room for them now, and the client comes again."""

    records: memoryview
    aborted: list[AbortedTransaction]


class RemoteLog(Protocol):
    """The logs of this node's partitions, as far as they are in the tier."""

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

    async def find_time(self, partition: Partition, timestamp: int) -> Found | None:
        """Find the first record of the tier that is as late, from the log's start on."""

    async def history(
        self, partition: Partition, offset: int, start_offset: int, epoch: int
    ) -> History:
        """Return what the tier knows about the records before `offset`, where a log is to begin.

        `epoch` is the leader epoch of the last one of them.
        """


class NoTier:
    """The tier of a node that has none."""

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
        raise self._missing(partition)

    async def find_time(self, partition: Partition, timestamp: int) -> Found | None:
        raise self._missing(partition)

    async def history(
        self, partition: Partition, offset: int, start_offset: int, epoch: int
    ) -> History:
        raise self._missing(partition)

    def _missing(self, partition: Partition) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{partition.name} has records in a tier, and this node has none: start it with "
            "remote.log.storage.system.enable=true",
        )


class RemoteRead:
    """A read of the tier for one partition of a fetch."""

    __slots__ = ("_error", "_found", "_partition", "_terms", "bytes_max", "offset")

    def __init__(
        self,
        partition: Partition,
        offset: int,
        bytes_max: int,
        *,
        up_to: int,
        is_first_whole: bool,
        with_aborted: bool,
    ) -> None:
        self.offset = offset
        self.bytes_max = bytes_max
        self._partition = partition
        self._terms = up_to, is_first_whole, with_aborted
        self._found: RemoteRecords | None = None
        self._error: KafkaError | None = None

    async def run(self, remote: RemoteLog) -> None:
        """Read; what comes of it is in `result`."""
        up_to, is_first_whole, with_aborted = self._terms
        try:
            self._found = await remote.read(
                self._partition,
                self.offset,
                self.bytes_max,
                up_to=up_to,
                is_first_whole=is_first_whole,
                with_aborted=with_aborted,
            )
        except KafkaError as error:
            self._error = error

    def result(self) -> RemoteRecords | None:
        """Return what was read, None if it is not there yet; raise KafkaError if that failed."""
        if self._error is not None:
            raise self._error
        return self._found


async def find_by_time(
    remote: RemoteLog, partition: Partition, timestamp: int, run: Run
) -> Found | None:
    """Find the first record that is as late: in the tier, then on the disk (`find_off_loop`).

    What leaves the disk meanwhile is in neither then, so both are asked again.
    """
    log = partition.log
    for _ in range(ATTEMPTS_MAX):
        local_start = log.local_start_offset
        if timestamp >= 0 and log.start_offset < local_start:
            found = await remote.find_time(partition, timestamp)
            if found is not None:
                return found
        found = await find_off_loop(log, timestamp, run)
        if timestamp < 0 or log.local_start_offset == local_start:
            return found
    raise KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{partition.name}: segments left the disk during {ATTEMPTS_MAX} look-ups",
    )


async def read_remote(remote: RemoteLog, reads: Sequence[RemoteRead], wait_ms: int) -> None:
    """Read from the tier, all at once; return when all are done, or the time is up.

    A read that takes longer is given up; what it has begun to fetch is there for the next one.
    """
    tasks = [asyncio.ensure_future(each.run(remote)) for each in reads]
    try:
        _, late = await asyncio.wait(tasks, timeout=wait_ms / 1000)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    for task in late:
        task.cancel()
    for task in tasks:
        if task not in late:
            task.result()  # an error that is nobody's is reported to the caller
