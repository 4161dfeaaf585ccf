"""Produce: API key 0, versions 3 to 13.

KIP-98 (idempotence), KIP-467 (record errors), KIP-516 (topic ids, from 13), KIP-951 (the new leader
in the response). Each partition has its own result. acks=1 is answered once the records are in the
log, acks=all once the high watermark has passed them, acks=0 never: an error then closes the
connection, which is the only way to report it. When flush.messages is reached, all of them wait for
the disk too.

A batch that takes long to validate is validated in a thread, and so are those behind it in the
request, one after the other. Later produces of the connection wait until it is in the log: see
`Request.hold`.

Transactional batches are appended once the coordinator has their partition in the transaction
(KIP-890): up to version 11 it is asked, from 12 on the partition joins with the records.

Headrace's own: `acks=-64` appends batches at offsets of another cluster (`produce_kept_offsets`).

The work is in `log.log`, `records.validation`, `log.producers` (the idempotent dedup window) and
`txn.verification`.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final

from headrace.api.produce_costly import Costly, validate_anywhere
from headrace.api.produce_kept_offsets import keep_offsets
from headrace.api.produce_pending import PendingProduce
from headrace.api.produce_rows import ACKS_ALL, ACKS_NONE, accept, refuse
from headrace.api.produce_transactional import (
    FIRST_JOINING,
    Joining,
    check_first_sequence,
    joining_producer,
    refusal_of,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId, TopicName
from headrace.records.compression import Compression
from headrace.records.errors import CostlyBatch, RefusedBatch
from headrace.records.header import (
    COMPRESSION_MASK,
    FLAGS_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)
from headrace.records.validation import validate_batch
from headrace.replication.partition import Partition
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.topics.validation import INTERNAL_TOPICS
from headrace.txn.state import Place, Producer
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
from headrace.wire.mirror_records import ACKS_KEEP_OFFSETS
from headrace.wire.schema import Buffer, Message

TURN_COST_MAX: Final = 64
"""How much of a request is done before others have their turn: a partition costs 1, and as much for
each 32 KiB."""
BYTES_SHIFT: Final = 15
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The one client id that may write to internal topics, as in Kafka."""
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 7

logger = logging.getLogger(__name__)


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: ProduceRequest = request.body
    acks, version = body.acks, request.version
    if acks == ACKS_KEEP_OFFSETS:
        return keep_offsets(broker, request)
    now_ms = broker.clock.now_ms()
    response = ProduceResponse(responses=[])
    pending: PendingProduce | None = None
    joining: list[Joining] = []
    costly: list[Costly] = []
    left = TURN_COST_MAX
    for topic in body.topic_data:
        rows: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            left -= _cost(data)
            if costly or left < 0:  # what is behind a batch is appended behind it
                costly.append(Costly.behind(topic, data, rows))
                continue
            index = data.index
            partition = _find(broker, version, topic, index)
            try:
                partition, records = _admit(broker, request, topic, partition, data)
                if records[FLAGS_AT] & TRANSACTIONAL_BIT and (
                    producer := joining_producer(broker, request, partition, records)
                ):
                    header, batch = validate_batch(records, partition.log.settings.rules, now_ms)
                    joining.append(Joining(producer, partition, header, batch, rows, len(rows)))
                    rows.append(PartitionProduceResponse(index=index))
                    continue
                appended = partition.append(records, now_ms, needs_replicas=acks == ACKS_ALL)
            except CostlyBatch as late:
                costly.append(Costly.behind(topic, data, rows, late.header))
                continue
            except KafkaError as error:
                refused = partition or (TopicName(topic.name), index)
                rows.append(refuse(broker, request, response, refused, data.records, error))
                continue
            row = PartitionProduceResponse(index=index)
            rows.append(row)
            if (wait := accept(request, partition, appended, row)) is not None:
                pending = pending or PendingProduce(request, response if acks else None)
                pending.add(wait)
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    if joining or costly:
        pending = pending or PendingProduce(request, response if acks else None)
        _append_later(broker, request, response, pending, joining, costly, now_ms)
        return LATER
    if acks == ACKS_NONE or pending is None:
        return response if acks else None
    pending.start(body.timeout_ms)
    return LATER


def _cost(data: PartitionProduceData) -> int:
    return 1 + (len(data.records) >> BYTES_SHIFT) if data.records else 1


def _find(broker: Broker, version: int, topic: TopicProduceData, index: int) -> Partition | None:
    if version >= FIRST_WITH_TOPIC_IDS:
        return broker.replicas.find_by_id(TopicId(topic.topic_id), index)
    return broker.replicas.find(TopicName(topic.name), index)


def _admit(
    broker: Broker,
    request: Request,
    topic: TopicProduceData,
    partition: Partition | None,
    data: PartitionProduceData,
) -> tuple[Partition, memoryview]:
    """Return the partition and its records; KafkaError if they may not be appended there."""
    body: ProduceRequest = request.body
    if partition is None or not partition.is_leader or not -1 <= body.acks <= 1:
        raise _explain(broker, body, request.version, topic, data.index)
    records = _check(data.records, request.version)
    if partition.topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
        raise _internal(partition)
    if partition.log.settings.mirror_source is not None:
        raise partition.is_mirror()
    return partition, records


def _check(records: Buffer | None, version: int) -> memoryview:
    """Refuse what Kafka refuses before it accesses the log."""
    if records is None or len(records) < HEADER_BYTES:
        size_bytes = 0 if records is None else len(records)
        raise RefusedBatch(
            ErrorCode.INVALID_RECORD,
            f"{size_bytes} bytes hold no record batch, and a partition must be sent exactly one",
        )
    assert isinstance(records, memoryview)
    if records[MAGIC_AT] != MAGIC:
        return records  # what else it says has another meaning there
    if version < FIRST_WITH_ZSTD and records[FLAGS_AT] & COMPRESSION_MASK == Compression.ZSTD:
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


def _append_later(  # noqa: PLR0917  the request, and what became of it
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    pending: PendingProduce,
    joining: list[Joining],
    costly: list[Costly],
    now_ms: int,
) -> None:
    """Append what has to be validated or verified first; later produces wait until it is."""
    pending.start(request.body.timeout_ms)
    if costly:
        pending.hold(len(costly))
        request.hold()  # the records of a later produce must not be in the log before these
        work = _append_costly(broker, request, response, pending, joining, costly, now_ms)
        broker.inflating.start(work)
    else:
        _join(broker, request, response, pending, joining)


async def _append_costly(  # noqa: PLR0917  the request, and what became of it
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    pending: PendingProduce,
    joining: list[Joining],
    costly: list[Costly],
    now_ms: int,
) -> None:
    """Validate batches one after the other, in threads if they are costly, and append them so.

    What a topic's settings were when the request came counts, as does the time.
    """
    acks, left = request.body.acks, 0
    for each in costly:
        if left <= 0:
            await asyncio.sleep(0)
            left = TURN_COST_MAX
        left -= _cost(each.data)
        place = TopicName(each.topic.name), each.data.index
        partition = _find(broker, request.version, each.topic, each.data.index)
        try:
            if request.peer.is_closed and acks != ACKS_NONE:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the client did not wait")
            partition, records = _admit(broker, request, each.topic, partition, each.data)
            rules = partition.log.settings.rules
            header, batch = await validate_anywhere(
                broker.inflating, records, each.header, rules, now_ms
            )
            if not partition.is_leader:
                raise broker.replicas.explain_missing(partition.topic, partition.index)
            if header.is_transactional and (
                producer := joining_producer(broker, request, partition, records)
            ):
                rows, position = each.rows, each.position
                joining.append(Joining(producer, partition, header, batch, rows, position))
                continue
            appended = partition.append_validated(
                header, batch, now_ms, needs_replicas=acks == ACKS_ALL
            )
        except KafkaError as error:
            refused = partition or place
            row = refuse(broker, request, response, refused, each.data.records, error)
            each.rows[each.position] = row
        except Exception:
            logger.exception("%s-%d: records could not be appended", *place)
            failed = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the broker failed at these records; its log has the reason",
            )
            refused = partition or place
            row = refuse(broker, request, response, refused, each.data.records, failed)
            each.rows[each.position] = row
        else:
            wait = accept(request, partition, appended, each.rows[each.position])
            if wait is not None:
                pending.add(wait)
    if joining:
        _join(broker, request, response, pending, joining)
    pending.release(len(costly))


def _join(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    pending: PendingProduce,
    joining: list[Joining],
) -> None:
    """Append transactional batches once their coordinator agrees; others are in the log already."""
    version = request.version
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


def _append_joined(  # noqa: PLR0917  the request, and what became of it
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    pending: PendingProduce,
    joined: Joining,
    refused: KafkaError | None,
) -> None:
    partition, acks = joined.partition, request.body.acks
    try:
        if refused is not None:
            raise refusal_of(refused, request.version)
        if not partition.is_leader:
            raise broker.replicas.explain_missing(partition.topic, partition.index)
        check_first_sequence(joined, request.version)
        now_ms = broker.clock.now_ms()
        appended = partition.append_validated(
            joined.header, joined.batch, now_ms, needs_replicas=acks == ACKS_ALL
        )
    except KafkaError as error:
        row = refuse(broker, request, response, partition, joined.batch, error)
        joined.rows[joined.position] = row
        return
    wait = accept(request, partition, appended, joined.rows[joined.position])
    if wait is not None:
        pending.add(wait)


def _explain(
    broker: Broker, body: ProduceRequest, version: int, topic: TopicProduceData, index: int
) -> KafkaError:
    """Return why a partition cannot be produced to."""
    if not -1 <= body.acks <= 1:
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks={body.acks}: -1, 0 and 1 are allowed"
        )
    if version >= FIRST_WITH_TOPIC_IDS:
        return broker.replicas.explain_missing_id(TopicId(topic.topic_id), index)
    return broker.replicas.explain_missing(TopicName(topic.name), index)
