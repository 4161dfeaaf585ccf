"""EndTxn: API key 26, versions 0 to 5.

KIP-98, KIP-588 (a fenced producer is PRODUCER_FENCED from 2 on, INVALID_PRODUCER_EPOCH before),
KIP-890 (the producer gets a new epoch for its next transaction, from 5). The response is sent when
the decision is committed; the markers follow. A producer that is quicker than they are gets
CONCURRENT_TRANSACTIONS and retries.

The work is in `txn.ending` and `txn.markers`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.api.transactions import ask_coordinator, fenced_before
from headrace.coordinator.machine import Outcome
from headrace.errors import KafkaError
from headrace.ids import NO_PRODUCER_ID
from headrace.server.broker import Broker
from headrace.server.request import LATER, Answer, Request
from headrace.txn.ending import Ended, end, end_bumping, needs_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.state import Producer
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse

FIRST_BUMPING: Final = 5


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, EndTxnResponse]:
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

    ask_coordinator(broker, producer.transactional_id, operate, reply)


def _needs_producer_id(broker: Broker, transactional_id: str) -> bool:
    try:
        shard = broker.transactions.shard(transactional_id)
    except KafkaError:
        return False
    return needs_producer_id(shard.machine.state, transactional_id)
