"""Fetching one range of a partition on an executor, with one prefetch.

As soon as a response is here, the next request is sent; its response gathers in the socket while
the caller decodes and Spark takes the rows. Nothing runs in between: the loop runs only in
`next_chunk`. It waits for unavailable brokers, follows leaders that move, and distinguishes kinds
of loss (`loss`).
"""

import asyncio
from collections.abc import Sequence

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable, refusal
from headrace.client.offsets import (
    CONSUMER_REPLICA_ID,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    list_offsets,
)
from headrace.client.outcomes import values_of
from headrace.client.retrying import Retries
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, topic_id_text
from headrace.records.compression import ReadableBuffer
from headrace.records.errors import CorruptBatch, RecordsError
from headrace.records.header import read_headers
from headrace.spark import loss
from headrace.spark.offsets import EARLIEST, LATEST
from headrace.spark.planning import Range
from headrace.spark.read_options import FetchLimits
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse, PartitionData

_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Chunk(msgspec.Struct, frozen=True):
    """Bytes of batches, and which of their records are wanted."""

    records: ReadableBuffer
    aborted: Sequence[tuple[int, int]]
    start: int
    next_offset: int
    """Where the next chunk begins."""


class RangeFetch:
    """The chunks of one range, in order."""

    def __init__(self, cluster: Cluster, wanted: Range, limits: FetchLimits) -> None:
        self._cluster = cluster
        self._range = wanted
        self._limits = limits
        self.position = wanted.start
        """The offset that the next chunk begins at."""
        self._ahead: asyncio.Task[PartitionData] | None = None
        self._retries: Retries | None = None
        self._stalled_since: float | None = None

    async def next_chunk(self) -> Chunk | None:
        """Wait for the next bytes of the range; None at its end."""
        while self.position < self._range.stop:
            try:
                row = await self._answer()
                if row.error_code:
                    raise refusal(row.error_code, None, f"partition {self._range.topic_partition}")
            except (NotReachable, KafkaError) as error:
                await self._recover(error)
                continue
            self._retries = None
            if row.records:
                return await self._take(row)
            await self._wait(row)
        return None

    async def close(self) -> None:
        """Drop the fetch in flight."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
            self._ahead = None

    async def _answer(self) -> PartitionData:
        task, self._ahead = self._ahead, None
        return await (self._ask(self.position) if task is None else task)

    async def _take(self, row: PartitionData) -> Chunk:
        records = memoryview(row.records or b"")
        start, self._stalled_since = self.position, None
        wanted_bytes = self._walk(records)
        if self.position <= start:
            raise CorruptBatch(f"{len(records)} bytes hold no whole batch")
        if self.position < self._range.stop:
            self._ahead = asyncio.get_running_loop().create_task(self._ask(self.position))
            await asyncio.sleep(0)  # it writes its request,
            await asyncio.sleep(0)  # and the loop hands that to the socket
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        return Chunk(records[:wanted_bytes], aborted, start, self.position)

    def _walk(self, records: memoryview) -> int:
        """Advance past the wanted batches; return their size in bytes."""
        wanted_bytes = 0
        try:
            for at, header in read_headers(records):
                if header.base_offset >= self._range.stop:
                    self.position = self._range.stop
                    break
                # Of this batch alone: one before it that is damaged may say anything.
                self.position = max(header.next_offset, header.base_offset + 1)
                wanted_bytes = at + header.size_bytes
        except RecordsError:
            if not wanted_bytes:
                raise
            # What lies before is read, and the next fetch begins with what cannot be.
        return wanted_bytes

    async def _ask(self, position: int) -> PartitionData:
        topic, partition = self._range.topic_partition
        leader = await self._cluster.leader(topic, partition)
        connection = await self._cluster.connection(leader.leader_id)
        limits = self._limits
        body = FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=1,
            max_bytes=limits.fetch_bytes,
            isolation_level=READ_COMMITTED if limits.is_committed else READ_UNCOMMITTED,
            topics=[
                FetchTopic(
                    topic=topic,
                    # The topic that was planned, not the one of that name now.
                    topic_id=self._range.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            current_leader_epoch=leader.leader_epoch,
                            fetch_offset=position,
                            partition_max_bytes=limits.fetch_bytes,
                        )
                    ],
                )
            ],
        )
        answer = await connection.request(body, FetchResponse, patience_ms=limits.max_wait_ms)
        if answer.error_code:
            raise refusal(answer.error_code, None, f"a fetch from {connection.address}")
        if not answer.responses:
            raise NotReachable(f"{connection.address} said nothing of {topic}-{partition}")
        return answer.responses[0].partitions[0]

    async def _wait(self, row: PartitionData) -> None:
        """Bear that nothing comes, up to the stall timeout: the range was planned to be there."""
        now = asyncio.get_running_loop().time()
        if self._stalled_since is None:
            self._stalled_since = now
        if (now - self._stalled_since) * 1000 < self._limits.stall_timeout_ms:
            return
        seconds, where = self._limits.stall_timeout_ms // 1000, self._range.topic_partition
        if row.high_watermark >= self._range.stop:
            stable = row.last_stable_offset
            what = loss.held_by_transaction(where, self._range.stop, stable, seconds)
        else:
            what = loss.cut_off(where, self._range.stop, row.high_watermark)
        self._give_up(what)

    async def _recover(self, error: HeadraceError) -> None:
        """Find out whether another attempt can help; leave the range where none can."""
        await self.close()
        topic = self._range.topic
        if isinstance(error, KafkaError):
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._leave_what_is_gone()
                return
            if error.code in _GONE and await self._is_gone():
                return
            if not error.is_retriable:
                raise error
        self._cluster.suspect(topic)
        if self._retries is None:
            self._retries = Retries(self._cluster.settings)
        if not await self._retries.pause():
            raise error

    async def _is_gone(self) -> bool:
        topic, planned = self._range.topic, TopicId(self._range.topic_id)
        self._cluster.forget(topic)
        try:
            now = (await self._cluster.topic(topic)).topic_id
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._give_up(loss.deleted(topic))
            return True
        if planned in (ZERO_TOPIC_ID, now):
            return False
        self._give_up(loss.recreated(topic, topic_id_text(planned), topic_id_text(now)))
        return True

    async def _leave_what_is_gone(self) -> None:
        where = self._range.topic_partition
        earliest = await self._end(EARLIEST)
        if self.position < earliest:
            what = loss.expired(where, self.position, min(earliest, self._range.stop))
            loss.report(what, fails=self._limits.fails_on_data_loss)
            self.position = earliest
        else:
            self._give_up(loss.cut_off(where, self.position, await self._end(LATEST)))

    async def _end(self, which: int) -> int:
        where = self._range.topic_partition
        return values_of(await list_offsets(self._cluster, {where: which}))[where].offset

    def _give_up(self, what: str) -> None:
        loss.report(what, fails=self._limits.fails_on_data_loss)
        self.position = self._range.stop
