"""InitProducerId, versions 0 to 5, and DescribeProducers, version 0.

InitProducerId: KIP-98, KIP-360 (a producer that goes on after an error names its id and epoch,
from 3), KIP-588 (a fenced one is PRODUCER_FENCED from 4 on, INVALID_PRODUCER_EPOCH before).
Without a transactional id every call gives a new producer id with epoch 0: idempotence needs no
more. With one, its coordinator is asked. Version 6 (KIP-939, two-phase commit) is not final in
Kafka either, and is not served.

DescribeProducers: KIP-664; what a partition's leader knows of its producers.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from headrace import config
from headrace.broker.broker import Broker
from headrace.broker.handlers.topic_validation import explain_illegal_name
from headrace.broker.request import Handler, Request
from headrace.broker.slices import Slice, Slices, in_slices
from headrace.coordinator.machine import Outcome
from headrace.coordinator.shard import State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_PRODUCER_ID, TopicName
from headrace.log.log import Log
from headrace.records.builder import NO_PRODUCER_EPOCH
from headrace.txn.initialization import Initialized, init_producer_id, needs_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.state import Producer
from headrace.wire import ApiKey
from headrace.wire.messages.describe_producers_request import DescribeProducersRequest
from headrace.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse

NO_OFFSET: Final = -1
FIRST_EPOCH: Final = 0
FIRST_WITH_FENCED: Final = 4
PARTITION_COST: Final = 3
"""What a partition of DescribeProducers costs, in units of `slices`."""


async def handle_init_producer_id(broker: Broker, request: Request) -> InitProducerIdResponse:
    try:
        initialized = await _init(broker, request.body)
    except KafkaError as error:
        code = error.code
        if code == ErrorCode.PRODUCER_FENCED and request.version < FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    return InitProducerIdResponse(
        producer_id=initialized.producer_id, producer_epoch=initialized.producer_epoch
    )


async def _init(broker: Broker, body: InitProducerIdRequest) -> Initialized:
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {body.producer_id} with epoch {body.producer_epoch}: both or none",
        )
    if body.transactional_id is None:
        return Initialized(await broker.producer_ids.next(), FIRST_EPOCH)
    if not body.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
    timeout_ms_max = broker.settings[config.TRANSACTION_MAX_TIMEOUT_MS]
    if not 0 < body.transaction_timeout_ms <= timeout_ms_max:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"a transaction timeout of {body.transaction_timeout_ms} ms; "
            f"transaction.max.timeout.ms is {timeout_ms_max}",
        )
    shard = broker.transactions.shard(body.transactional_id)
    asked = Producer(body.transactional_id, body.producer_id, body.producer_epoch)
    new_producer_id = NO_PRODUCER_ID
    if shard.state is State.ACTIVE and needs_producer_id(
        shard.machine.state, body.transactional_id
    ):
        new_producer_id = await broker.producer_ids.next()
    answer: asyncio.Future[Initialized] = asyncio.get_running_loop().create_future()

    def reply(initialized: Initialized | KafkaError) -> None:
        if answer.done():
            return
        if isinstance(initialized, KafkaError):
            answer.set_exception(initialized)
        else:
            answer.set_result(initialized)

    def operate(machine: TransactionsMachine, now_ms: int) -> Outcome:
        timeout_ms = body.transaction_timeout_ms
        return init_producer_id(machine.state, asked, timeout_ms, new_producer_id, now_ms, reply)

    shard.write(operate, reply)
    return await answer


def handle_describe_producers(
    broker: Broker, request: Request
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    return in_slices(_describe_all(broker, request.body))


def _describe_all(
    broker: Broker, body: DescribeProducersRequest
) -> Slices[DescribeProducersResponse]:
    """Describe partitions, one that is asked for twice once: it may have very many producers."""
    current = Slice()
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in wanted.items():
        rows: list[PartitionResponse] = []
        topics.append(TopicResponse(name=name, partitions=rows))
        for index in indexes:
            row = _describe(broker, TopicName(name), index)
            rows.append(row)
            if current.spend(PARTITION_COST + len(row.active_producers)):
                yield
    return DescribeProducersResponse(topics=topics)


def _describe(broker: Broker, topic: TopicName, index: int) -> PartitionResponse:
    partition = broker.replicas.find(topic, index)
    if partition is not None and partition.is_leader:
        producers = _active_producers(partition.log)
        return PartitionResponse(partition_index=index, active_producers=producers)
    code, message = ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is led elsewhere"
    if reason := explain_illegal_name(topic):
        code, message = ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    elif partition is None:
        missing = broker.replicas.explain_missing(topic, index)
        code, message = missing.code, missing.message
    # Kafka has a message only for topics that it does not know or could not.
    text = message if broker.image.topic(topic) is None else None
    return PartitionResponse(partition_index=index, error_code=code, error_message=text)


def _active_producers(log: Log) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=(
                NO_OFFSET
                if state.transaction_first_offset is None
                else state.transaction_first_offset
            ),
        )
        for state in log.producers
    ]


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
}
