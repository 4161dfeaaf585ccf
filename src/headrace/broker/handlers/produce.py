"""Produce, versions 3 to 13.

KIP-98 (idempotence), KIP-467 (record errors), KIP-516 (topic ids from 13), KIP-951 (the new leader
in the answer). Each partition is answered for itself. acks=1 is answered once it is in the log,
acks=all once the high watermark has passed it, acks=0 never: an error then ends the connection, as
that is the only way to say so. With flush.messages reached, all of them wait for the disk too.

Left out: transactional batches are refused, as nobody coordinates transactions here yet.
"""

import asyncio
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.leaders import current_leader, endpoints
from headrace.broker.partition import Partition
from headrace.broker.request import LATER, Answer, Handler, Request
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
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 7
NO_OFFSET: Final = -1
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
    has_error = False
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
                records = _check(data.records, body, version)
                appended = partition.append(records, now_ms, needs_replicas=acks == ACKS_ALL)
            except KafkaError as error:
                has_error = True
                if partition is not None:
                    partition.counters.produce_failures += 1
                    name = partition.topic
                row = _refusal(broker, request, response, (name, index), error)
                row.log_start_offset = _start_offset(partition, error, data.records)
                rows.append(row)
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
                    pending = PendingProduce(request, response)
                pending.add(
                    partition, appended.last_offset + 1, row, is_flush_awaited=is_flush_awaited
                )
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    if acks == ACKS_NONE:
        if has_error:
            request.peer.close("a produce with acks=0 failed, which cannot be said otherwise")
        return None
    if pending is None:
        return response
    pending.start(body.timeout_ms)
    return LATER


def _check(records: Buffer | None, body: ProduceRequest, version: int) -> memoryview:
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
    attributes = records[_ATTRIBUTES_AT]
    if attributes & TRANSACTIONAL_BIT:
        if body.transactional_id is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records in a request without a transactional id",
            )
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, "no transaction of this producer is under way here"
        )
    if version < FIRST_WITH_ZSTD and attributes & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{FIRST_WITH_ZSTD}, this is v{version}: use a newer client",
        )
    return records


def _start_offset(partition: Partition | None, error: KafkaError, records: Buffer | None) -> int:
    """Give the start of a log that refused records; -1 for what Kafka sees before its log does."""
    if partition is None or error.code in _SEEN_BEFORE_THE_LOG:
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


class PendingProduce:
    """A produce that is in the log and waits for replicas or for the disk."""

    __slots__ = ("_request", "_response", "_timer", "_waits")

    def __init__(self, request: Request, response: ProduceResponse) -> None:
        self._request = request
        self._response = response
        self._waits: list[_Wait] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self,
        partition: Partition,
        offset: int,
        row: PartitionProduceResponse,
        *,
        is_flush_awaited: bool,
    ) -> None:
        """Wait until a partition has everything below `offset`, on disk or in all replicas."""
        self._waits.append(_Wait(partition, offset, row, is_flush_awaited))

    def start(self, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for wait in self._waits:
            wait.partition.produce_waiters.add(self)
            if wait.is_flush_awaited:
                wait.partition.flush_soon()

    def on_progress(self) -> None:
        if all(wait.is_over() for wait in self._waits):
            self._finish()

    def _time_out(self) -> None:
        for wait in self._waits:
            if not wait.is_over():
                wait.fail(ErrorCode.REQUEST_TIMED_OUT, "the replicas did not follow in time")
        self._finish()

    def _finish(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for wait in self._waits:
            wait.partition.produce_waiters.discard(self)
        self._request.answer(self._response)


class _Wait:
    """One partition of a pending produce."""

    __slots__ = ("is_flush_awaited", "leader_epoch", "offset", "partition", "row")

    def __init__(
        self, partition: Partition, offset: int, row: PartitionProduceResponse, is_flushed: bool
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.row = row
        self.is_flush_awaited = is_flushed
        self.leader_epoch = partition.leader_epoch

    def is_over(self) -> bool:
        partition, log = self.partition, self.partition.log
        if self.row.error_code:
            return True
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has another leader now")
            return True
        if self.is_flush_awaited and log.recovery_point < self.offset:
            if log.failure is None:
                return False
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name}: {log.failure}")
            return True
        return log.high_watermark >= self.offset

    def fail(self, code: ErrorCode, message: str) -> None:
        self.row.error_code = code
        self.row.base_offset = NO_OFFSET
        self.row.log_append_time_ms = self.row.log_start_offset = NO_OFFSET
        self.row.error_message = message


HANDLERS: Final[dict[ApiKey, Handler]] = {ApiKey.PRODUCE: handle_produce}
