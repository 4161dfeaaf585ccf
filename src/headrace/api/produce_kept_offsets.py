"""Produce with kept offsets: batches of another cluster, for topics that are its mirrors.

Headrace's own, see `wire.mirror_records`. Each partition of a request is answered for itself, when
its in-sync replicas have what it was sent. The work is in `replication.mirrored`.
"""

import asyncio
from typing import Final

from headrace.api.produce_rows import refuse
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId, TopicName
from headrace.replication import mirrored
from headrace.replication.partition import Partition
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.mirror_records import decode_front

FIRST_WITH_TOPIC_IDS: Final = 13


async def keep_offsets(broker: Broker, request: Request) -> ProduceResponse:
    """Append the batches of a request; return when their replicas have them, or were too late."""
    body: ProduceRequest = request.body
    response = ProduceResponse(responses=[])
    appended: list[tuple[Partition, PartitionProduceResponse, Uncommitted]] = []
    for topic in body.topic_data:
        rows: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition = _find(broker, request.version, topic, data.index)
            try:
                if partition is None or not partition.is_leader:
                    raise _explain(broker, request.version, topic, data.index)
                await _append(broker, partition, data)
            except KafkaError as error:
                place = partition or (TopicName(topic.name), data.index)
                row = refuse(broker, request, response, place, None, error)
            else:
                row = PartitionProduceResponse(index=data.index)
                appended.append((partition, row, Uncommitted(partition)))
            if partition is not None:
                row.base_offset = partition.log.end_offset
                row.log_start_offset = partition.log.start_offset
            rows.append(row)
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    deadline = asyncio.get_running_loop().time() + max(body.timeout_ms, 0) / 1000
    for partition, row, uncommitted in appended:
        late = await uncommitted.wait(deadline)
        partition.counters.produce_requests += 1
        if late is not None:
            row.error_code, row.error_message = late.code, late.message
    return response


class Uncommitted:
    """What was appended to a partition, until its in-sync replicas have it."""

    __slots__ = ("_done", "_leader_epoch", "_offset", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = partition.log.end_offset
        self._done: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        waits_for_disk = partition.is_flush_awaited
        partition.produce_waiters[self] = None if waits_for_disk else self._offset
        if waits_for_disk:
            partition.flush_soon()
        self.on_progress()

    def on_progress(self) -> None:
        partition, log = self._partition, self._partition.log
        name = partition.name
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} has another leader now")
        elif log.high_watermark >= self._offset:
            self._end()
        elif log.failure is not None:
            self._end(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: {log.failure}")

    async def wait(self, deadline: float) -> KafkaError | None:
        """Return None when all in-sync replicas have it, or why they do not by a loop's time."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._done
        except TimeoutError:
            name = self._partition.name
            return KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the replicas of {name} did not follow in time"
            )
        finally:
            self._partition.produce_waiters.pop(self, None)

    def _end(self, code: ErrorCode = ErrorCode.NONE, message: str = "") -> None:
        self._partition.produce_waiters.pop(self, None)
        if not self._done.done():
            self._done.set_result(KafkaError(code, message) if code else None)


async def _append(broker: Broker, partition: Partition, data: PartitionProduceData) -> None:
    """Append the batches of one partition that its log lacks; raise KafkaError if refused."""
    leader_epoch = partition.leader_epoch
    try:
        assert isinstance(data.records, memoryview)
        front, batches = decode_front(data.records)
    except (AssertionError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error) or "there are no records") from None
    mirrored.check_front(partition, front)
    cut = mirrored.begin_elsewhere(partition, front)
    if cut is not None:
        if not await broker.fetchers.finish_cut(partition, cut):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name}: {partition.log.failure}"
            )
        _check_leading(partition, leader_epoch)
        partition.on_adopted()
    copying = mirrored.Copying(partition, front, batches)
    while not copying.is_done:
        copying.append_some(broker.clock.now_ms())
        await asyncio.sleep(0)  # others have their turn
        _check_leading(partition, leader_epoch)
        mirrored.check_front(partition, front)
    if copying.has_markers:
        partition.on_transactions_ended()


def _check_leading(partition: Partition, leader_epoch: int) -> None:
    if not partition.is_leader or partition.leader_epoch != leader_epoch:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has another leader now"
        )


def _find(broker: Broker, version: int, topic: TopicProduceData, index: int) -> Partition | None:
    if version >= FIRST_WITH_TOPIC_IDS:
        return broker.replicas.find_by_id(TopicId(topic.topic_id), index)
    return broker.replicas.find(TopicName(topic.name), index)


def _explain(broker: Broker, version: int, topic: TopicProduceData, index: int) -> KafkaError:
    if version >= FIRST_WITH_TOPIC_IDS:
        return broker.replicas.explain_missing_id(TopicId(topic.topic_id), index)
    return broker.replicas.explain_missing(TopicName(topic.name), index)
