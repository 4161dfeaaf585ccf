"""The rows of a Produce response: where records are, or why they were refused."""

from typing import Final

from headrace.api.produce_pending import NO_OFFSET, Wait
from headrace.errors import LEADER_MOVED, ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.log import Appended
from headrace.records.errors import RefusedBatch, UnsupportedBatch
from headrace.records.header import HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX_BYTES
from headrace.replication.leaders import current_leader, endpoints
from headrace.replication.partition import Partition
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.txn.verification import Unverified
from headrace.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from headrace.wire.schema import Buffer

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
_SEEN_BEFORE_THE_LOG: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Errors with which Kafka does not say where the log starts."""


def accept(
    request: Request,
    partition: Partition,
    appended: Appended,
    row: PartitionProduceResponse,
) -> Wait | None:
    """Fill in the row of records that were appended; return what they wait for, if anything."""
    acks, log = request.body.acks, partition.log
    row.base_offset = appended.base_offset
    row.log_append_time_ms = appended.append_time_ms
    row.log_start_offset = log.start_offset
    partition.counters.produce_requests += 1
    if request.is_answered_early:
        return None
    is_flush_awaited = (log.wants_flush or appended.is_duplicate) and partition.is_flush_awaited
    if is_flush_awaited or (acks == ACKS_ALL and log.high_watermark <= appended.last_offset):
        return Wait(
            partition,
            appended.last_offset + 1,
            row,
            is_flush_awaited=is_flush_awaited,
            is_all=acks == ACKS_ALL,
        )
    return None


def refuse(  # noqa: PLR0917  what was asked, and why it is not done
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    refused: Partition | tuple[TopicName, int],
    records: Buffer | None,
    error: KafkaError,
) -> PartitionProduceResponse:
    """Return the row of a partition that took no records; with acks=0 close the connection."""
    if request.body.acks == ACKS_NONE:
        request.peer.close("a produce with acks=0 failed, which cannot be said otherwise")
    if isinstance(refused, tuple):
        row = _refusal(broker, request, response, refused, error)
        row.log_start_offset = NO_OFFSET
        return row
    refused.counters.produce_failures += 1
    row = _refusal(broker, request, response, (refused.topic, refused.index), error)
    row.log_start_offset = _start_offset(refused, error, records)
    return row


def _refusal(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    place: tuple[TopicName, int],
    error: KafkaError,
) -> PartitionProduceResponse:
    topic, index = place
    code, record_errors = error.code, []
    if isinstance(error, UnsupportedBatch):
        code = ErrorCode.INVALID_RECORD  # Kafka sees an old format before its log does
    if isinstance(error, RefusedBatch):
        record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=each.batch_index, batch_index_error_message=each.message
            )
            for each in error.record_errors
        ]
    row = PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=NO_OFFSET,
        record_errors=record_errors,
        error_message=error.message,
    )
    if code in LEADER_MOVED and request.version >= 10:
        leader = current_leader(broker.image, topic, index)
        row.current_leader = LeaderIdAndEpoch(
            leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
        )
        known = {node.node_id for node in response.node_endpoints}
        for found in endpoints(broker.image, {leader.leader_id} - known, request.peer.listener):
            response.node_endpoints.append(NodeEndpoint(**found._asdict()))
    return row


def _start_offset(partition: Partition, error: KafkaError, records: Buffer | None) -> int:
    """Return the start of a log that refused records; -1 for what Kafka sees before its log."""
    if error.code in _SEEN_BEFORE_THE_LOG or isinstance(error, Unverified):
        return NO_OFFSET
    if records is None or len(records) < HEADER_BYTES:
        return NO_OFFSET
    length = int.from_bytes(records[LENGTH_AT:LENGTH_PREFIX_BYTES])
    is_one_batch = len(records) == length + LENGTH_PREFIX_BYTES
    return partition.log.start_offset if is_one_batch else NO_OFFSET
