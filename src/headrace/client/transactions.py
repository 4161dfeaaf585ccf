"""What an administrator asks of transactions: which are open, what they hold, an end to them."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.client.errors import raise_for
from headrace.client.nodes import describe_producers
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.list_transactions_response import ListTransactionsResponse
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

_FENCING_TIMEOUT_MS: Final = 1
"""No producer writes with the epoch that fencing returns, so its transaction may end at once."""


class ListedTransaction(msgspec.Struct, frozen=True):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(msgspec.Struct, frozen=True):
    """A transactional id and its transaction; the start is -1 if none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


async def list_transactions(
    cluster: Cluster, states: Iterable[str] = (), duration_ms: int | None = None
) -> list[ListedTransaction]:
    """Return the transactional ids of all nodes, sorted; those open for `duration_ms` if given."""
    await cluster.refresh()
    body = ListTransactionsRequest(
        state_filters=list(states), duration_filter=-1 if duration_ms is None else duration_ms
    )
    node_ids = sorted(cluster.view.nodes)
    answers = await asyncio.gather(
        *(
            cluster.ask(
                body,
                ListTransactionsResponse,
                node_id=node_id,
                code_of=lambda answer: answer.error_code,
            )
            for node_id in node_ids
        )
    )
    found = []
    for node_id, answer in zip(node_ids, answers, strict=True):
        raise_for(answer.error_code, None, f"the transactions of node {node_id}")
        found += [
            ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state, node_id)
            for row in answer.transaction_states
        ]
    return sorted(found, key=lambda row: row.transactional_id)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Return what the coordinator knows of a transactional id."""
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        code_of=lambda answer: answer.transaction_states[0].error_code,
    )
    row = answer.transaction_states[0]
    raise_for(row.error_code, None, f"transactional id {transactional_id!r}")
    return TransactionDescription(
        row.transactional_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms,
        tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in row.topics
                for index in topic.partitions
            )
        ),
    )


async def fence_producer(cluster: Cluster, transactional_id: str) -> None:
    """Abort the open transaction of an id and shut its producer out.

    Returns when the coordinator has ended it: from then on the old epoch is refused.
    """
    body = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_FENCING_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.TRANSACTION,
        transactional_id,
        body,
        InitProducerIdResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, None, f"transactional id {transactional_id!r}")


async def abort_transaction(cluster: Cluster, transactional_id: str) -> None:
    """Abort the open transaction of a used id, and fence its producer."""
    await describe_transaction(cluster, transactional_id)  # fencing would create an unused id
    await fence_producer(cluster, transactional_id)


async def abort_hanging(cluster: Cluster, partition: TopicPartition, producer_id: int) -> None:
    """Abort what a producer has open in one partition; INVALID_TXN_STATE if it has nothing."""
    producers = values_of(await describe_producers(cluster, [partition]))[partition]
    for row in producers:
        if row.producer_id == producer_id and row.transaction_start_offset >= 0:
            await abort_in_partition(
                cluster, partition, producer_id, row.producer_epoch, row.coordinator_epoch
            )
            return
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {producer_id} has no open transaction in {partition}",
    )


async def abort_in_partition(
    cluster: Cluster,
    partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Write an abort marker into one partition: for a transaction that no coordinator knows."""
    leader = await cluster.leader(*partition)
    topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    body = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=max(coordinator_epoch, 0),
            )
        ]
    )
    connection = await cluster.connection(leader.leader_id)
    answer = await connection.request(body, WriteTxnMarkersResponse)
    row = answer.markers[0].topics[0].partitions[0]
    raise_for(row.error_code, None, f"the transaction of producer {producer_id} in {partition}")
