"""DeleteRecords: API key 21, versions 0 to 2.

KIP-107. The log begins at the offset asked for, at most at the high watermark; -1 stands for that.
The response has the low watermark: where the log begins now. If a partition is named twice, the
last offset counts. A topic that is only compacted refuses with POLICY_VIOLATION, an internal one
with INVALID_TOPIC_EXCEPTION.

Left out: `timeout_ms` bounds the wait for followers; there are none yet, and the leader is done at
once.
The work is in `log.cutting`.
"""

import logging
from collections.abc import Mapping
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.cutting import delete_records
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.delete_records_request import DeleteRecordsRequest
from headrace.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK: Final = -1
REFUSAL_COST: Final = 4
DELETION_COST: Final = 200
"""What it costs to cut off the beginning of a log, which renames files."""

logger = logging.getLogger(__name__)


async def handle(broker: Broker, request: Request) -> DeleteRecordsResponse:
    body: DeleteRecordsRequest = request.body
    wanted: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update({asked.partition_index: asked.offset for asked in topic.partitions})
    response = await finish(_delete_all(broker, wanted))
    deleted = [row for topic in response.topics for row in topic.partitions if not row.error_code]
    if deleted:
        await _make_durable(broker, deleted)
    return response


def _delete_all(
    broker: Broker, wanted: Mapping[str, Mapping[int, int]]
) -> Slices[DeleteRecordsResponse]:
    current, topics = Slice(), []
    for name, offsets in wanted.items():
        rows: list[DeleteRecordsPartitionResult] = []
        topics.append(DeleteRecordsTopicResult(name=name, partitions=rows))
        for index, offset in offsets.items():
            row = _delete(broker, TopicName(name), index, offset)
            rows.append(row)
            if current.spend(REFUSAL_COST if row.error_code else DELETION_COST):
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
    broker: Broker, topic: TopicName, index: int, offset: int
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK)
    try:
        result.low_watermark = _delete_before(broker, topic, index, offset)
    except KafkaError as error:
        result.error_code = error.code
    return result


def _delete_before(broker: Broker, topic: TopicName, index: int, offset: int) -> int:
    """Move a partition's start to an offset; return the new start."""
    row = broker.image.topic(topic)
    if row is not None and row.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: its records are not deleted"
        )
    partition = broker.replicas.find(topic, index)
    if partition is None:
        raise broker.replicas.explain_missing(topic, index)
    if not partition.is_leader:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is led by {partition.leader}"
        )
    if not partition.log.settings.is_deleted_by_age:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic} has a cleanup.policy without `delete`: its records are not deleted",
        )
    return delete_records(partition.log, offset)
