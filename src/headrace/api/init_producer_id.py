"""InitProducerId: API key 22, versions 0 to 5.

KIP-98, KIP-360 (a producer that goes on after an error names its id and epoch, from 3), KIP-588 (a
fenced producer is PRODUCER_FENCED from 4 on, INVALID_PRODUCER_EPOCH before). Without a
transactional id every call returns a new producer id with epoch 0: idempotence needs no more. With
one, its coordinator decides.

Left out: version 6 (KIP-939, two-phase commit), which is not final in Kafka either.
The work is in `txn.producer_ids` and `txn.initialization`.
"""

import asyncio
from typing import Final

from headrace import config
from headrace.coordinator.machine import Outcome
from headrace.coordinator.shard import State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_PRODUCER_ID
from headrace.records.builder import NO_PRODUCER_EPOCH
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.txn.initialization import Initialized, init_producer_id, needs_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.state import Producer
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse

FIRST_EPOCH: Final = 0
FIRST_WITH_FENCED: Final = 4


async def handle(broker: Broker, request: Request) -> InitProducerIdResponse:
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
