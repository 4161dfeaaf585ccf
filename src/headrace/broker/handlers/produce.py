"""Produce, versions 3 to 13.

KIP-98 (idempotence), KIP-467 (record errors), KIP-516 (topic ids from 13), KIP-951 (the new leader
in the answer). Each partition is answered for itself. acks=1 is answered once it is in the log,
acks=all once the high watermark has passed it, acks=0 never: an error then ends the connection, as
that is the only way to say so. With flush.messages reached, all of them wait for the disk too.

Transactional batches are appended once the coordinator has their partition in the transaction
(KIP-890): until version 11 it is asked, from 12 on the partition joins by the records themselves.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.handlers.pending_produce import NO_OFFSET, PendingProduce
from headrace.broker.handlers.topic_validation import INTERNAL_TOPICS
from headrace.broker.handlers.transactional_produce import (
    FIRST_JOINING,
    Joining,
    check_first_sequence,
    joining_producer,
    refusal_of,
)
from headrace.broker.leaders import current_leader, endpoints
from headrace.broker.partition import Partition
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.broker.verification import Unverified
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId, TopicName
from headrace.records.compression import Compression
from headrace.records.errors import RefusedBatch, UnsupportedBatch
from headrace.records.header import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from headrace.txn.state import Place, Producer
from headrace.wire import ApiKey
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.schema import Buffer

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics, as in Kafka."""
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 7
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
"""The low byte of a batch's attributes."""
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
_LEADER_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle_produce(broker: Broker, request: Request) -> Answer:
    body: ProduceRequest = request.body
    acks, version = body.acks, request.version
    replicas, now_ms = broker.replicas, broker.clock.now_ms()
    response = ProduceResponse(responses=[])
    pending: PendingProduce | None = None
    joining: list[Joining] = []
    for topic in body.topic_data:
        rows: list[PartitionProduceResponse] = []
        name, topic_id = TopicName(topic.name), TopicId(topic.topic_id)
        for data in topic.partition_data:
            index = data.index
            if version >= FIRST_WITH_TOPIC_IDS:
                partition = replicas.find_by_id(topic_id, index)
            else:
                partition = replicas.find(name, index)
            try:
                if partition is None or not partition.is_leader or not -1 <= acks <= 1:
                    raise _explain(broker, body, version, topic_id, name, index)
                records = _check(data.records, version)
                if partition.topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
                    raise _internal(partition)
                if records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT and (
                    producer := joining_producer(broker, request, partition, records)
                ):
                    joining.append(Joining(producer, partition, records, rows, len(rows)))
                    rows.append(PartitionProduceResponse(index=index))
                    continue
                appended = partition.append(records, now_ms, needs_replicas=acks == ACKS_ALL)
            except KafkaError as error:
                refused = partition or (name, index)
                rows.append(_refuse(broker, request, response, refused, data.records, error))
                continue
            log = partition.log
            row = PartitionProduceResponse(
                index=index,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.append_time_ms,
                log_start_offset=log.start_offset,
            )
            rows.append(row)
            partition.counters.produce_requests += 1
            is_flush_awaited = log.wants_flush and partition.is_flush_awaited
            if is_flush_awaited or (
                acks == ACKS_ALL and log.high_watermark <= appended.last_offset
            ):
                if pending is None:
                    pending = PendingProduce(request, response if acks else None)
                pending.add(
                    partition, appended.last_offset + 1, row, is_flush_awaited=is_flush_awaited
                )
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    if joining:
        return _join(broker, request, response, pending, joining)
    if acks == ACKS_NONE or pending is None:
        return response if acks else None
    pending.start(body.timeout_ms)
    return LATER


def _check(records: Buffer | None, version: int) -> memoryview:
    """Refuse what Kafka refuses before it looks at the log."""
    if records is None or len(records) < HEADER_BYTES:
        size_bytes = 0 if records is None else len(records)
        raise RefusedBatch(
            ErrorCode.INVALID_RECORD,
            f"{size_bytes} bytes hold no record batch, and a partition must be sent exactly one",
        )
    assert isinstance(records, memoryview)
    if records[_MAGIC_AT] != MAGIC:
        return records  # what else it says has another meaning there
    if version < FIRST_WITH_ZSTD and records[_ATTRIBUTES_AT] & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{FIRST_WITH_ZSTD}, this is v{version}: use a newer client",
        )
    return records


def _internal(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"Cannot append to internal topic {partition.topic}: only coordinators write to it",
    )


def _join(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    others: PendingProduce | None,
    joining: list[Joining],
) -> Answer:
    """Append transactional batches once their coordinator agrees; others are in the log already."""
    version = request.version
    pending = others or PendingProduce(request, response if request.body.acks else None)
    pending.start(request.body.timeout_ms)
    by_producer: dict[Producer, list[Joining]] = {}
    for each in joining:
        by_producer.setdefault(each.producer, []).append(each)
    pending.hold(len(joining))
    request.hold()  # a later batch of the producer must not be in the log before this one

    def on_verified(asked: list[Joining], refused: Mapping[Place, KafkaError]) -> None:
        for each in asked:
            error = refused.get((each.partition.topic, each.partition.index))
            _append_joined(broker, request, response, pending, each, error)
        pending.release(len(asked))

    for producer, asked in by_producer.items():
        places = [(each.partition.topic, each.partition.index) for each in asked]
        adds = version >= FIRST_JOINING
        broker.verification.ask(producer, places, partial(on_verified, asked), adds=adds)
    return LATER


def _append_joined(  # noqa: PLR0917  the request, and what became of it
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    pending: PendingProduce,
    joined: Joining,
    refused: KafkaError | None,
) -> None:
    partition, acks = joined.partition, request.body.acks
    log = partition.log
    try:
        if refused is not None:
            raise refusal_of(refused, request.version)
        if not partition.is_leader:
            raise broker.replicas.explain_missing(partition.topic, partition.index)
        check_first_sequence(joined, request.version)
        appended = partition.append(
            joined.records, broker.clock.now_ms(), needs_replicas=acks == ACKS_ALL
        )
    except KafkaError as error:
        row = _refuse(broker, request, response, partition, joined.records, error)
        joined.rows[joined.position] = row
        return
    row = joined.rows[joined.position]
    row.base_offset = appended.base_offset
    row.log_append_time_ms = appended.append_time_ms
    row.log_start_offset = log.start_offset
    partition.counters.produce_requests += 1
    is_flush_awaited = log.wants_flush and partition.is_flush_awaited
    if is_flush_awaited or (acks == ACKS_ALL and log.high_watermark <= appended.last_offset):
        pending.add(partition, appended.last_offset + 1, row, is_flush_awaited=is_flush_awaited)


def _start_offset(partition: Partition, error: KafkaError, records: Buffer | None) -> int:
    """Give the start of a log that refused records; -1 for what Kafka sees before its log does."""
    if error.code in _SEEN_BEFORE_THE_LOG or isinstance(error, Unverified):
        return NO_OFFSET
    if records is None or len(records) < HEADER_BYTES:
        return NO_OFFSET
    length = int.from_bytes(records[_LENGTH_AT:LENGTH_PREFIX_BYTES])
    is_one_batch = len(records) == length + LENGTH_PREFIX_BYTES
    return partition.log.start_offset if is_one_batch else NO_OFFSET


def _explain(  # noqa: PLR0917  what the error is about
    broker: Broker,
    body: ProduceRequest,
    version: int,
    topic_id: TopicId,
    name: TopicName,
    index: int,
) -> KafkaError:
    """Say why a partition cannot be produced to."""
    if not -1 <= body.acks <= 1:
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks={body.acks}: -1, 0 and 1 are allowed"
        )
    if version >= FIRST_WITH_TOPIC_IDS:
        return broker.replicas.explain_missing_id(topic_id, index)
    return broker.replicas.explain_missing(name, index)


def _refuse(  # noqa: PLR0917  what was asked, and why it is not done
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    refused: Partition | tuple[TopicName, int],
    records: Buffer | None,
    error: KafkaError,
) -> PartitionProduceResponse:
    """Give the row of a partition that took no records; who wants no answer is cut off."""
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
    if code in _LEADER_MOVED and request.version >= 10:
        leader = current_leader(broker.image, topic, index)
        row.current_leader = LeaderIdAndEpoch(
            leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
        )
        known = {node.node_id for node in response.node_endpoints}
        for found in endpoints(broker.image, {leader.leader_id} - known, request.peer.listener):
            response.node_endpoints.append(NodeEndpoint(**found._asdict()))
    return row


HANDLERS: Final[dict[ApiKey, Handler]] = {ApiKey.PRODUCE: handle_produce}
