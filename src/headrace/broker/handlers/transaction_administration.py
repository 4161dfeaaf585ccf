"""WriteTxnMarkers (versions 1 and 2), DescribeTransactions (0) and ListTransactions (0 to 2).

WriteTxnMarkers: KIP-98, KIP-890 (the version of the transaction, from 2); coordinators say it to
the leaders of partitions, and administrators to end a transaction that nobody coordinates any
more (KIP-664). It is answered once all markers are committed.

DescribeTransactions and ListTransactions: KIP-664, KIP-994 (by duration, from 1), KIP-1152 (by a
pattern of RE2, from 2).
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import answer_each, ask_in_slices, ask_shard
from headrace.broker.request import Answer, Handler, Request
from headrace.broker.transaction_markers import Marker
from headrace.coordinator.machine import Reply
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.subscriptions import check_pattern, matching_topics
from headrace.txn.listing import STATUS_BY_LABEL, Filter, describe, select
from headrace.txn.machine import TransactionsMachine
from headrace.txn.records import group_by_topic
from headrace.txn.state import Transaction
from headrace.wire import ApiKey
from headrace.wire.messages import describe_transactions_response as described
from headrace.wire.messages import list_transactions_response as listed
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)
from headrace.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from headrace.wire.schema import Message

TRANSACTIONS_AT_ONCE: Final = 1000
"""How many transactional ids are looked at in one turn of the loop."""
_COORDINATOR_AWAY: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def handle_write_txn_markers(broker: Broker, request: Request) -> WriteTxnMarkersResponse:
    body: WriteTxnMarkersRequest = request.body
    response = WriteTxnMarkersResponse(markers=[])
    asked: list[tuple[WritableTxnMarker, str, WritableTxnMarkerPartitionResult]] = []
    for each in body.markers:
        if not any(topic.partition_indexes for topic in each.topics):
            continue  # Kafka says nothing of it either
        result = WritableTxnMarkerResult(producer_id=each.producer_id, topics=[])
        response.markers.append(result)
        for topic in each.topics:
            rows = [
                WritableTxnMarkerPartitionResult(partition_index=index)
                for index in topic.partition_indexes
            ]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
            asked += [(each, topic.name, row) for row in rows]

    def write(
        marker: tuple[WritableTxnMarker, str, WritableTxnMarkerPartitionResult], reply: Reply
    ) -> None:
        each, topic, row = marker
        if (refused := _refused(each)) is not None:
            reply(refused)
        else:
            broker.markers.write((topic, row.partition_index), _marker(each), reply)

    errors = await ask_in_slices(asked, write)
    for (_, _, row), error in zip(asked, errors, strict=True):
        if error is not None:
            # Those who send markers look for another leader then.
            is_away = error.code in _COORDINATOR_AWAY
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_away else error.code
    return response


def _refused(asked: WritableTxnMarker) -> KafkaError | None:
    if asked.producer_id >= 0 and asked.producer_epoch >= 0:
        return None
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"producer {asked.producer_id} with epoch {asked.producer_epoch} has no transactions",
    )


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )


def handle_describe_transactions(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
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


def _describe(broker: Broker, transactional_id: str, reply: Reply) -> None:
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


async def handle_list_transactions(
    broker: Broker, request: Request
) -> listed.ListTransactionsResponse:
    """Answer with those that this node coordinates; clients ask every node."""
    body: ListTransactionsRequest = request.body
    try:
        wanted = _filter(body)
    except KafkaError as error:
        return listed.ListTransactionsResponse(error_code=error.code)
    known = [label for label in body.state_filters if label in STATUS_BY_LABEL]
    response = listed.ListTransactionsResponse(
        unknown_state_filters=list(
            dict.fromkeys(label for label in body.state_filters if label not in STATUS_BY_LABEL)
        ),
        transaction_states=[],
    )
    if body.state_filters and not known:
        return response
    now_ms = broker.clock.now_ms()
    shards = tuple(broker.transactions)
    if any(shard.state is State.LOADING for shard in shards):
        return listed.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for shard in shards:
        ids = tuple(shard.machine.state.transactions)
        for start in range(0, len(ids), TRANSACTIONS_AT_ONCE):
            # One that ended since is passed over.
            state, some = shard.machine.state, ids[start : start + TRANSACTIONS_AT_ONCE]
            response.transaction_states += [
                listed.TransactionState(
                    transactional_id=found.transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.status.label,
                )
                for found in select(state, wanted, now_ms, some)
            ]
            await asyncio.sleep(0)
    return response


def _filter(body: ListTransactionsRequest) -> Filter:
    """Give what is asked for; INVALID_REGULAR_EXPRESSION if the pattern is none."""
    statuses = frozenset(
        STATUS_BY_LABEL[label] for label in body.state_filters if label in STATUS_BY_LABEL
    )
    wanted = Filter(statuses, frozenset(body.producer_id_filters), body.duration_filter)
    pattern = body.transactional_id_pattern
    if not pattern:
        return wanted
    check_pattern(pattern)
    return wanted._replace(matches=lambda each: bool(matching_topics(pattern, (each,))))


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.WRITE_TXN_MARKERS: handle_write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
}
