"""AddPartitionsToTxn: API key 24, versions 0 to 5.

KIP-98, KIP-588 (a fenced producer is PRODUCER_FENCED from 2 on, INVALID_PRODUCER_EPOCH before),
KIP-890 (from 4 on brokers send it, for many transactions, and may only ask: `verify_only`).

The work is in `txn.partitions`.
"""

from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

from headrace.api.transactions import UNBUMPING, ask_coordinator, fenced_before
from headrace.config import MIRROR_SOURCE
from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.server.gathering import answer_each
from headrace.server.request import LATER, Answer, Request
from headrace.topics.validation import INTERNAL_TOPICS
from headrace.txn.machine import TransactionsMachine
from headrace.txn.partitions import add_partitions, verify_partitions
from headrace.txn.state import BUMPING, Place, Producer
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
from headrace.wire.schema import Message

FIRST_OF_BROKERS: Final = 4
"""The version of AddPartitionsToTxn from which on it has many transactions."""
Codes = Mapping[Place, ErrorCode]


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: AddPartitionsToTxnRequest = request.body
    if request.version < FIRST_OF_BROKERS:
        return _add_for_client(broker, request)

    def row(
        asked: AddPartitionsToTxnTransaction, codes: Codes | KafkaError
    ) -> AddPartitionsToTxnResult:
        if isinstance(codes, KafkaError):
            codes = dict.fromkeys(_places(asked.topics), codes.code)
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

    ask_coordinator(broker, producer.transactional_id, add, reply)
    return LATER


def _add_for_broker(
    broker: Broker, asked: AddPartitionsToTxnTransaction, respond: Reply[Codes]
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

    ask_coordinator(broker, producer.transactional_id, operate, reply)


def _places(topics: Iterable[AddPartitionsToTxnTopic]) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(image: Image, places: Iterable[Place]) -> dict[Place, ErrorCode]:
    """Return the partitions that do not exist or are mirrors: if there is one, none is added."""
    refused: dict[Place, ErrorCode] = {}
    for topic, index in places:
        if image.partition(TopicName(topic), PartitionIndex(index)) is None:
            refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif MIRROR_SOURCE.name in image.configs(ResourceType.TOPIC, topic):
            refused[topic, index] = ErrorCode.POLICY_VIOLATION
    return refused


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
