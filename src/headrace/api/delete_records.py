"""DeleteRecords: API key 21, versions 0 to 2.

KIP-107. The log begins at the offset asked for, at most at the high watermark; -1 stands for that.
The response has the low watermark, below which no replica in sync has records, when it has passed
the offset: followers learn of it with their fetches. After `timeout_ms` it is REQUEST_TIMED_OUT;
the records are deleted nevertheless. If a partition is named twice, the last offset counts. A topic
that is only compacted refuses with POLICY_VIOLATION, an internal one with INVALID_TOPIC_EXCEPTION.

The work is in `log.cutting`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.cutting import delete_records
from headrace.loop.slices import Slice, Slices, finish
from headrace.replication.partition import ANY_LEADER_EPOCH, Partition
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK: Final = -1
HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark."""
REFUSAL_COST: Final = 4
DELETION_COST: Final = 200
"""What it costs to cut off the beginning of a log, which renames files."""

logger = logging.getLogger(__name__)


async def handle(broker: Broker, request: Request) -> DeleteRecordsResponse:
    body: DeleteRecordsRequest = request.body
    wanted = await finish(offsets_of(body.topics))
    waits = Waits()
    deleted: list[DeleteRecordsPartitionResult] = []
    response = await finish(_delete_all(broker, wanted, waits, deleted))
    if deleted:
        await _make_durable(broker, deleted)
    await waits.wait(body.timeout_ms)
    return response


class Waits:
    """The partitions of a request whose followers still have records to delete."""

    def __init__(self) -> None:
        self._pending: dict[Wait, None] = {}
        self._is_over: asyncio.Future[None] | None = None

    def add(self, partition: Partition, offset: int, row: DeleteRecordsPartitionResult) -> None:
        """Answer a row once the low watermark of its partition has reached an offset."""
        wait = Wait(self, partition, offset, row)
        self._pending[wait] = None
        partition.produce_waiters[wait] = None

    async def wait(self, timeout_ms: int) -> None:
        """Wait until all rows are final; those that are late get REQUEST_TIMED_OUT."""
        self._is_over = asyncio.get_running_loop().create_future()
        try:
            for wait in tuple(self._pending):
                wait.on_progress()
            if self._pending:
                await asyncio.wait([self._is_over], timeout=max(timeout_ms, 0) / 1000)
            for wait in self._pending:
                if not wait.row.error_code:
                    wait.row.error_code = ErrorCode.REQUEST_TIMED_OUT
        finally:
            for wait in self._pending:
                wait.partition.produce_waiters.pop(wait, None)

    def remove(self, wait: "Wait") -> None:
        self._pending.pop(wait, None)
        if not self._pending and self._is_over is not None and not self._is_over.done():
            self._is_over.set_result(None)


class Wait:
    """One partition whose followers still have records to delete (`ProduceWaiter`)."""

    __slots__ = ("_offset", "_waits", "partition", "row")

    def __init__(
        self, waits: Waits, partition: Partition, offset: int, row: DeleteRecordsPartitionResult
    ) -> None:
        self._waits = waits
        self._offset = offset
        self.partition = partition
        self.row = row

    def on_progress(self) -> None:
        partition, row = self.partition, self.row
        if row.error_code:
            self._end()  # the disk has failed
        elif not partition.is_leader:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            row.low_watermark = NO_LOW_WATERMARK
            self._end()
        else:
            row.low_watermark = partition.low_watermark
            if row.low_watermark >= self._offset:
                self._end()

    def _end(self) -> None:
        self.partition.produce_waiters.pop(self, None)
        self._waits.remove(self)


def offsets_of(topics: Iterable[DeleteRecordsTopic]) -> Slices[dict[str, dict[int, int]]]:
    """Return the offsets that a request has, by topic and partition."""
    wanted: dict[str, dict[int, int]] = {}
    current = Slice()
    for topic in topics:
        offsets = wanted.setdefault(topic.name, {})
        for asked in topic.partitions:
            offsets[asked.partition_index] = asked.offset
            if current.spend():
                yield
        if current.spend():
            yield
    return wanted


def _delete_all(
    broker: Broker,
    wanted: Mapping[str, Mapping[int, int]],
    waits: Waits,
    deleted: list[DeleteRecordsPartitionResult],
) -> Slices[DeleteRecordsResponse]:
    """Return the response; `deleted` gets the rows of the partitions whose records are deleted."""
    current, topics = Slice(), []
    for name, offsets in wanted.items():
        rows: list[DeleteRecordsPartitionResult] = []
        topics.append(DeleteRecordsTopicResult(name=name, partitions=rows))
        for index, offset in offsets.items():
            row = _delete(broker, TopicName(name), index, offset, waits)
            rows.append(row)
            if not row.error_code:
                deleted.append(row)
            if current.spend(REFUSAL_COST if row.error_code else DELETION_COST):
                yield
        if current.spend():
            yield
    return DeleteRecordsResponse(topics=topics)


async def _make_durable(broker: Broker, deleted: list[DeleteRecordsPartitionResult]) -> None:
    """Write down where the logs begin: a crash must not bring back what is said to be deleted."""
    try:
        await broker.folder.checkpoint()
    except OSError as error:
        logger.error("the first offsets of logs were not written down: %s", error)
        for row in deleted:
            row.low_watermark = NO_LOW_WATERMARK
            row.error_code = ErrorCode.KAFKA_STORAGE_ERROR


def _delete(
    broker: Broker, topic: TopicName, index: int, offset: int, waits: Waits
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK)
    try:
        partition = _find(broker, topic, index)
        start_offset = partition.log.start_offset
        row.low_watermark = delete_records(partition.log, offset)
    except KafkaError as error:
        row.error_code = error.code
        return row
    if partition.log.start_offset > start_offset:
        partition.on_start_moved()
    if partition.low_watermark < row.low_watermark:
        waits.add(partition, row.low_watermark if offset == HIGH_WATERMARK else offset, row)
    return row


def _find(broker: Broker, topic: TopicName, index: int) -> Partition:
    """Return a partition whose records may be deleted, or raise KafkaError."""
    row = broker.image.topic(topic)
    if row is not None and row.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: its records are not deleted"
        )
    partition = broker.replicas.find_leader(topic, index, ANY_LEADER_EPOCH)
    if not partition.log.settings.is_deleted_by_age:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic} has a cleanup.policy without `delete`: its records are not deleted",
        )
    return partition
