"""AddPartitionsToTxn (versions 0 to 5), AddOffsetsToTxn (0 to 4) and EndTxn (0 to 5).

KIP-98; KIP-588 (a fenced producer is PRODUCER_FENCED from version 2 on, INVALID_PRODUCER_EPOCH
before); KIP-890: AddPartitionsToTxn from 4 on is what brokers say of many transactions, and may
only ask (`verify_only`); EndTxn from 5 on gives the producer a new epoch for its next transaction.

EndTxn is answered when the decision is committed; the markers follow. A producer that is quicker
than they are gets CONCURRENT_TRANSACTIONS, at which it tries again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import answer_each
from headrace.broker.handlers.topic_validation import INTERNAL_TOPICS
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.coordinator.machine import Operation, Outcome, Reply
from headrace.coordinator.placement import partition_for
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.records import GROUPS_TOPIC
from headrace.ids import NO_PRODUCER_ID, PartitionIndex, TopicName
from headrace.metadata.image import Image
from headrace.txn.ending import Ended, end, end_bumping, needs_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.partitions import add_partitions, verify_partitions
from headrace.txn.state import BUMPING, Place, Producer
from headrace.wire import ApiKey
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.schema import Message

FIRST_OF_BROKERS: Final = 4
"""The version of AddPartitionsToTxn from which on it has many transactions."""
FIRST_WITH_FENCED: Final = 2
FIRST_BUMPING: Final = 5
UNBUMPING: Final = 0

Codes = Mapping[Place, ErrorCode]


def handle_add_partitions_to_txn(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
    body: AddPartitionsToTxnRequest = request.body
    if request.version < FIRST_OF_BROKERS:
        return _add_for_client(broker, request)

    def row(asked: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
        return AddPartitionsToTxnResult(
            transactional_id=asked.transactional_id, topic_results=_rows(asked.topics, codes)
        )

    return answer_each(
        request,
        body.transactions,
        partial(_add_for_broker, broker),
        row,
        lambda rows: AddPartitionsToTxnResponse(results_by_transaction=rows),
    )


def _add_for_client(broker: Broker, request: Request) -> Answer:
    body: AddPartitionsToTxnRequest = request.body
    topics = body.v3_and_below_topics
    places = _places(topics)

    def reply(answer: KafkaError | None) -> None:
        code = ErrorCode.NONE if answer is None else fenced_before(answer, request.version)
        respond(dict.fromkeys(places, code))

    def respond(codes: Codes) -> None:
        request.answer(
            AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(topics, codes))
        )

    refused = _refused(broker.image, places)
    for place in places:
        if place[0] in INTERNAL_TOPICS:
            refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if body.v3_and_below_transactional_id and refused:
        respond(dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        return LATER
    producer = Producer(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
    )

    def add(machine: TransactionsMachine, now_ms: int) -> Outcome:
        return add_partitions(machine.state, producer, places, UNBUMPING, now_ms, reply)

    _write(broker, producer.transactional_id, add, reply)
    return LATER


def _add_for_broker(
    broker: Broker, asked: AddPartitionsToTxnTransaction, respond: Callable[[Codes], None]
) -> None:
    places = _places(asked.topics)
    producer = Producer(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    refused = _refused(broker.image, places)
    if producer.transactional_id and refused:
        respond(dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        return

    def reply(answer: dict[Place, ErrorCode] | KafkaError | None) -> None:
        if isinstance(answer, dict):
            respond(answer)
        else:
            code = ErrorCode.NONE if answer is None else answer.code
            respond(dict.fromkeys(places, code))

    def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
        if asked.verify_only:
            return verify_partitions(machine.state, producer, places, reply)
        return add_partitions(machine.state, producer, places, BUMPING, now_ms, reply)

    _write(broker, producer.transactional_id, operate, reply)


def handle_add_offsets_to_txn(broker: Broker, request: Request) -> Answer:
    """Let the partition of `__consumer_offsets` that a group is in join a transaction."""
    body: AddOffsetsToTxnRequest = request.body
    producer = Producer(body.transactional_id, body.producer_id, body.producer_epoch)

    def reply(answer: KafkaError | None) -> None:
        code = ErrorCode.NONE if answer is None else fenced_before(answer, request.version)
        request.answer(AddOffsetsToTxnResponse(error_code=code))

    topic = broker.image.topic(GROUPS_TOPIC)
    # What is not there yet will be made with as many partitions as the setting says.
    count = (
        broker.settings[config.OFFSETS_TOPIC_NUM_PARTITIONS]
        if topic is None
        else len(topic.partitions)
    )
    place = GROUPS_TOPIC, partition_for(body.group_id, count)

    def add(machine: TransactionsMachine, now_ms: int) -> Outcome:
        return add_partitions(machine.state, producer, (place,), UNBUMPING, now_ms, reply)

    _write(broker, producer.transactional_id, add, reply)
    return LATER


def handle_end_txn(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, EndTxnResponse]:
    body: EndTxnRequest = request.body
    if request.version >= FIRST_BUMPING and _needs_producer_id(broker, body.transactional_id):
        return _end_with_new_id(broker, request)
    _end(broker, request, NO_PRODUCER_ID, request.answer)
    return LATER


async def _end_with_new_id(broker: Broker, request: Request) -> EndTxnResponse:
    """End the last transaction that a producer id has epochs for."""
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    answer: asyncio.Future[EndTxnResponse] = asyncio.get_running_loop().create_future()

    def respond(response: EndTxnResponse) -> None:
        if not answer.done():
            answer.set_result(response)

    _end(broker, request, producer_id, respond)
    return await answer


def _end(
    broker: Broker,
    request: Request,
    new_producer_id: int,
    respond: Callable[[EndTxnResponse], None],
) -> None:
    body: EndTxnRequest = request.body
    producer = Producer(body.transactional_id, body.producer_id, body.producer_epoch)

    def reply(answer: Ended | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            response = EndTxnResponse(error_code=fenced_before(answer, request.version))
        elif request.version >= FIRST_BUMPING:
            response = EndTxnResponse(
                producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
            )
        else:
            response = EndTxnResponse()
        respond(response)

    def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
        state, is_commit = machine.state, body.committed
        if request.version >= FIRST_BUMPING:
            return end_bumping(state, producer, is_commit, new_producer_id, now_ms, reply)
        return end(state, producer, is_commit, now_ms, reply)

    _write(broker, producer.transactional_id, operate, reply)


def _needs_producer_id(broker: Broker, transactional_id: str) -> bool:
    try:
        shard = broker.transactions.shard(transactional_id)
    except KafkaError:
        return False
    return needs_producer_id(shard.machine.state, transactional_id)


def _write(broker: Broker, transactional_id: str, operation: Operation, reply: Reply) -> None:
    """Do an operation at the coordinator of a transactional id, or tell `reply` why not."""
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        shard = broker.transactions.shard(transactional_id)
    except KafkaError as error:
        reply(error)
        return
    shard.write(operation, reply)


def fenced_before(error: KafkaError, version: int) -> ErrorCode:
    """Give a code that clients of a version know."""
    if error.code == ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


def _places(topics: Iterable[AddPartitionsToTxnTopic]) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(image: Image, places: Iterable[Place]) -> dict[Place, ErrorCode]:
    """Give the partitions that do not exist: if there is one, none joins."""
    return {
        (topic, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic, index in places
        if image.partition(TopicName(topic), PartitionIndex(index)) is None
    }


def _rows(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Codes
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: handle_add_offsets_to_txn,
    ApiKey.END_TXN: handle_end_txn,
}
