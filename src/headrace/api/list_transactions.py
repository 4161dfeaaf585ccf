"""ListTransactions: API key 66, versions 0 to 2.

KIP-664, KIP-994 (by duration, from 1), KIP-1152 (by an RE2 pattern, from 2).

The work is in `txn.listing`.
"""

import asyncio
from typing import Final

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.regular_expressions import (
    QUICK_COST_MAX,
    check_pattern,
    is_quick_to_compile,
    matching_cost,
    matching_parts,
    matching_topics,
)
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.gathering import ask_in_slices
from headrace.server.request import Request
from headrace.txn.listing import STATUS_BY_LABEL, Filter, select
from headrace.txn.machine import TransactionsMachine
from headrace.txn.state import Status
from headrace.wire.messages import list_transactions_response as listed
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest

TRANSACTIONS_AT_ONCE: Final = 1000
"""How many transactional ids are checked in one turn of the loop."""


async def handle(broker: Broker, request: Request) -> listed.ListTransactionsResponse:
    """Answer with those that this node coordinates; clients ask every node."""
    body: ListTransactionsRequest = request.body
    pattern = body.transactional_id_pattern
    try:
        if pattern and is_quick_to_compile((pattern,)):
            check_pattern(pattern)
        elif pattern:
            await broker.matching.run(check_pattern, pattern)
    except KafkaError as error:
        return listed.ListTransactionsResponse(error_code=error.code)
    wanted, unknown = await finish(_filter(body))
    response = listed.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=[])
    if body.state_filters and not wanted.statuses:
        return response
    now_ms = broker.clock.now_ms()
    shards = [shard for shard in broker.transactions if shard.state is not State.FAILED]
    if not all(shard.is_serving for shard in shards):
        return listed.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for shard in shards:
        ids = tuple(shard.machine.state.transactions)
        for start in range(0, len(ids), TRANSACTIONS_AT_ONCE):
            # One that ended since is passed over.
            some = ids[start : start + TRANSACTIONS_AT_ONCE]
            rows = [
                listed.TransactionState(
                    transactional_id=found.transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.status.label,
                )
                for found in select(shard.machine.state, wanted, now_ms, some)
            ]
            if pattern:
                names = await _match(broker, pattern, [row.transactional_id for row in rows])
                rows = [row for row in rows if row.transactional_id in names]
            response.transaction_states += rows
            await asyncio.sleep(0)
    # What was seen may not be committed yet, and then it may be lost with its leader.
    if any(await ask_in_slices(shards, _wait_until_committed)):
        return listed.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return response


def _wait_until_committed(shard: Shard[TransactionsMachine], reply: Reply[None]) -> None:
    shard.write(lambda machine, now_ms: Outcome(replies=(told(reply, None),)), reply)


async def _match(broker: Broker, pattern: str, names: list[str]) -> frozenset[str]:
    """Return the names that a pattern matches; in a thread if that may take long."""
    if matching_cost(pattern, names) <= QUICK_COST_MAX:
        return matching_topics(pattern, names)
    found: frozenset[str] = frozenset()
    for some in matching_parts(pattern, names):
        found |= await broker.matching.run(matching_topics, pattern, some)
    return found


def _filter(body: ListTransactionsRequest) -> Slices[tuple[Filter, list[str]]]:
    """Return what is asked for, and the states that there are not, each once."""
    statuses: set[Status] = set()
    unknown: dict[str, None] = {}
    producer_ids: set[int] = set()
    current = Slice()
    for label in body.state_filters:
        status = STATUS_BY_LABEL.get(label)
        if status is None:
            unknown[label] = None
        else:
            statuses.add(status)
        if current.spend():
            yield
    for producer_id in body.producer_id_filters:
        producer_ids.add(producer_id)
        if current.spend():
            yield
    return Filter(statuses, producer_ids, body.duration_filter), list(unknown)
