"""AddPartitionsToTxn: API key 24, versions 0 to 5.

KIP-98, KIP-588 (a fenced producer is PRODUCER_FENCED from 2 on, INVALID_PRODUCER_EPOCH before),
KIP-890 (from 4 on brokers send it, for many transactions, and may only ask: `verify_only`).

The work is in `txn.partitions`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.api.transactions import UNBUMPING, ask_coordinator, fenced_before
from headrace.config import MIRROR_SOURCE
from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, TopicName
from headrace.loop.slices import Slice, Slices, finish, run_whole
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
PLACES_AT_ONCE: Final = 200
"""More partitions of a transaction are looked at in slices."""

logger = logging.getLogger(__name__)

Codes: TypeAlias = Mapping[Place, ErrorCode]
Rows: TypeAlias = list[AddPartitionsToTxnTopicResult]
Topics: TypeAlias = Sequence[AddPartitionsToTxnTopic]
Add: TypeAlias = Callable[[list[Place], Callable[[Codes], None]], None]
"""Adds partitions to a transaction, and tells what became of each."""


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: AddPartitionsToTxnRequest = request.body
    if request.version < FIRST_OF_BROKERS:
        return _add_for_client(broker, request)

    def row(asked: AddPartitionsToTxnTransaction, rows: Rows | KafkaError) -> Any:
        if isinstance(rows, KafkaError):  # else errors are in the rows
            codes = dict.fromkeys(run_whole(places_of(asked.topics)), rows.code)
            rows = run_whole(rows_of(asked.topics, codes))
        return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=rows)

    return answer_each(
        request,
        body.transactions,
        partial(_add_for_broker, broker),
        row,
        lambda rows: AddPartitionsToTxnResponse(results_by_transaction=rows),
    )


def _add_for_client(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: AddPartitionsToTxnRequest = request.body
    producer = Producer(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
    )

    def add(places: list[Place], tell: Callable[[Codes], None]) -> None:
        def reply(answer: KafkaError | None) -> None:
            code = ErrorCode.NONE if answer is None else fenced_before(answer, request.version)
            tell(dict.fromkeys(places, code))

        def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
            return add_partitions(machine.state, producer, places, UNBUMPING, now_ms, reply)

        ask_coordinator(broker, producer.transactional_id, operate, reply)

    adding = _Adding(broker, body.v3_and_below_topics, producer, add, is_client=True)
    if is_large(adding.topics):
        return _answer_large(adding)
    adding.do_at_once(lambda rows: request.answer(_response(rows)))
    return LATER


async def _answer_large(adding: "_Adding") -> Message:
    return _response(await adding.do_in_slices())


def _response(rows: Rows) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def _add_for_broker(
    broker: Broker, asked: AddPartitionsToTxnTransaction, respond: Reply[Rows]
) -> None:
    producer = Producer(asked.transactional_id, asked.producer_id, asked.producer_epoch)

    def add(places: list[Place], tell: Callable[[Codes], None]) -> None:
        def reply(answer: dict[Place, ErrorCode] | KafkaError | None) -> None:
            if isinstance(answer, dict):
                tell(answer)
            else:
                code = ErrorCode.NONE if answer is None else answer.code
                tell(dict.fromkeys(places, code))

        def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
            if asked.verify_only:
                return verify_partitions(machine.state, producer, places, reply)
            return add_partitions(machine.state, producer, places, BUMPING, now_ms, reply)

        ask_coordinator(broker, producer.transactional_id, operate, reply)

    adding = _Adding(broker, asked.topics, producer, add, is_client=False)
    if is_large(adding.topics):
        broker.tasks.start(_respond_large(adding, respond))
    else:
        adding.do_at_once(respond)


async def _respond_large(adding: "_Adding", respond: Reply[Rows]) -> None:
    try:
        rows = await adding.do_in_slices()
    except Exception:  # whoever asked must not wait for ever
        logger.exception("partitions of transaction %r", adding.producer.transactional_id)
        respond(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; see its log"))
    else:
        respond(rows)


class _Adding(NamedTuple):
    """Partitions that a transaction is to have: all of them, or none if one cannot be had."""

    broker: Broker
    topics: Topics
    producer: Producer
    add: Add
    is_client: bool

    def do_at_once(self, respond: Callable[[Rows], None]) -> None:
        places = run_whole(places_of(self.topics))
        refused = run_whole(refused_of(self.broker.image, places, is_client=self.is_client))

        def tell(codes: Codes) -> None:
            respond(run_whole(rows_of(self.topics, codes)))

        self._add(places, refused, tell)

    async def do_in_slices(self) -> Rows:
        places = await finish(places_of(self.topics))
        refused = await finish(refused_of(self.broker.image, places, is_client=self.is_client))
        told: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()

        def tell(codes: Codes) -> None:
            if not told.done():
                told.set_result(codes)

        self._add(places, refused, tell)
        return await finish(rows_of(self.topics, await told))

    def _add(
        self, places: list[Place], refused: dict[Place, ErrorCode], tell: Callable[[Codes], None]
    ) -> None:
        if self.producer.transactional_id and refused:
            tell(dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        else:
            self.add(places, tell)


def is_large(topics: Topics) -> bool:
    """Return whether these are too many partitions to be looked at in one turn."""
    left = PLACES_AT_ONCE
    for topic in topics:
        left -= 1 + len(topic.partitions)
        if left < 0:
            return True
    return False


def places_of(topics: Topics) -> Slices[list[Place]]:
    places: list[Place] = []
    current = Slice()
    for topic in topics:
        for index in topic.partitions:
            places.append((topic.name, index))
            if current.spend():
                yield
        if current.spend():
            yield
    return places


def refused_of(
    image: Image, places: list[Place], *, is_client: bool
) -> Slices[dict[Place, ErrorCode]]:
    """Return the partitions that no transaction can have.

    They do not exist, are mirrors, or clients want them of an internal topic.
    """
    refused: dict[Place, ErrorCode] = {}
    current = Slice()
    for place in places:
        topic, index = place
        if is_client and topic in INTERNAL_TOPICS:
            refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(TopicName(topic), PartitionIndex(index)) is None:
            refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif MIRROR_SOURCE.name in image.configs(ResourceType.TOPIC, topic):
            refused[place] = ErrorCode.POLICY_VIOLATION
        if current.spend():
            yield
    return refused


def rows_of(topics: Topics, codes: Codes) -> Slices[Rows]:
    rows: Rows = []
    current = Slice()
    for topic in topics:
        results: list[AddPartitionsToTxnPartitionResult] = []
        rows.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
        for index in topic.partitions:
            code = codes[topic.name, index]
            results.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
            if current.spend():
                yield
        if current.spend():
            yield
    return rows
