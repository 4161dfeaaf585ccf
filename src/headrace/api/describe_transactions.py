"""DescribeTransactions: API key 65, version 0.

KIP-664.

The work is in `txn.listing`.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.server.broker import Broker
from headrace.server.gathering import answer_each, ask_shard
from headrace.server.request import Answer, Request
from headrace.txn.listing import describe
from headrace.txn.machine import TransactionsMachine
from headrace.txn.records import group_by_topic
from headrace.txn.state import Transaction
from headrace.wire.messages import describe_transactions_response as described
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.schema import Message


def handle(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    body: DescribeTransactionsRequest = request.body

    def row(transactional_id: str, answer: Transaction | KafkaError) -> described.TransactionState:
        if isinstance(answer, KafkaError):
            return described.TransactionState(
                transactional_id=transactional_id, error_code=answer.code
            )
        return _described(answer)

    return answer_each(
        request,
        body.transactional_ids,
        partial(_describe, broker),
        row,
        lambda rows: described.DescribeTransactionsResponse(transaction_states=rows),
    )


def _describe(broker: Broker, transactional_id: str, reply: Reply[Transaction]) -> None:
    def find() -> Shard[TransactionsMachine]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        return broker.transactions.shard(transactional_id)

    ask_shard(
        find,
        lambda reply: lambda machine, _: describe(machine.state, transactional_id, reply),
        reply,
    )


def _described(found: Transaction) -> described.TransactionState:
    return described.TransactionState(
        transactional_id=found.transactional_id,
        transaction_state=found.status.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            described.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in group_by_topic(found.partitions).items()
        ],
    )
