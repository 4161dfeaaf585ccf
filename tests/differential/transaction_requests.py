"""Requests of transactional producers, in few words, and the wait for their coordinator."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from tests.differential.conversation import Conversation
from tests.differential.requests import Producer

TRANSACTION: Final = 1
FIRST_BATCHED: Final = 4

_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def transaction_coordinator(talk: Conversation) -> None:
    """Wait until transactions are served: the first who asks has their topic created."""
    talk.until(
        FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[talk.name("any")]),
        FindCoordinatorResponse,
        lambda m: m.coordinators[0].error_code == 0,
    )
    talk.until(
        DescribeTransactionsRequest(transactional_ids=[talk.name("any")]),
        DescribeTransactionsResponse,
        lambda m: m.transaction_states[0].error_code not in _NOT_READY,
    )


def init(
    transactional_id: str | None, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def begun(talk: Conversation, transactional_id: str) -> Producer:
    """Get an id and an epoch for a transactional producer."""
    got = talk.until(init(transactional_id), InitProducerIdResponse, lambda m: m.error_code == 0)
    talk.plain(got)  # numbers its id, whatever the next answers say
    return Producer(got.producer_id, got.producer_epoch, 0)


def add_partitions(
    transactional_id: str,
    producer: Producer,
    topics: dict[str, list[int]],
    version: int = 3,
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    """The form of clients up to version 3, that of brokers from there on."""
    rows = [AddPartitionsToTxnTopic(name=name, partitions=p) for name, p in topics.items()]
    if version < FIRST_BATCHED:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=rows,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=rows,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def add_offsets(transactional_id: str, producer: Producer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group,
    )


def end(transactional_id: str, producer: Producer, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=committed,
    )
