"""The transactions of a cluster as the sink needs them: begun here, ended there, swept up later.

A transaction is begun by a task and ended by the driver, which has nothing of it but the id, the
producer id and the epoch. What a process left open is found by listing (KIP-664, Kafka 3.0).
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.client.cluster import ANY_NODE, Cluster
from headrace.client.configs import Resource, ResourceType, describe_configs
from headrace.client.connection import Connection
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.client.errors import ClientError, NotReachable, raise_for, refusal
from headrace.client.outcomes import values_of
from headrace.client.retrying import Retries
from headrace.client.transactions import describe_transaction, fence_producer
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.spark.sink.decisions import Slot
from headrace.spark.sink.protocol import TIMEOUT_NAME
from headrace.wire import ApiKey
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.list_transactions_response import ListTransactionsResponse

_BROKERS_LIMIT: Final = "transaction.max.timeout.ms"
_BROKERS_LIMIT_DEFAULT_MS: Final = 15 * 60 * 1000
_BUMPING_FEATURE: Final = "transaction.version", 2
"""From here on every end of a transaction gives its id a new epoch (KIP-890)."""
_END_TXN_UNBUMPING_MAX: Final = 4
_PATTERNS_FROM: Final = 2
_FENCED_TIMEOUT_MS: Final = 1
"""What `fence_producer` leaves: an id with it has no producer that could write."""
_IS_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
_ONGOING: Final = "Ongoing"
_EMPTY: Final = "Empty"


class Coordination:
    """The transactions of one cluster."""

    def __init__(self, cluster: Cluster, timeout_ms: int | None) -> None:
        """`timeout_ms` is when the cluster aborts a transaction; as late as it allows if None."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def begin(self, transactional_id: str) -> tuple[int, int]:
        """Fence the id's previous producer, abort what it left, return producer id and epoch."""
        if self._timeout_ms is None:
            self._timeout_ms = await timeout_max_ms(self._cluster)
        answer = await ask_coordinator(
            self._cluster,
            CoordinatorType.TRANSACTION,
            transactional_id,
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms
            ),
            InitProducerIdResponse,
            code_of=lambda answer: answer.error_code,
        )
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"option {TIMEOUT_NAME!r} is {self._timeout_ms}, more than the cluster's "
                f"{_BROKERS_LIMIT} allows: set a smaller one, or raise that setting of the brokers",
            )
        raise_for(answer.error_code, None, f"transactional id {transactional_id!r}")
        return answer.producer_id, answer.producer_epoch

    async def commit(self, slots: Mapping[str, Slot]) -> list[bool]:
        """Commit transactions, maybe again; return False for each that was aborted meanwhile."""
        return await asyncio.gather(*(self._commit_one(*each) for each in slots.items()))

    async def _commit_one(self, transactional_id: str, slot: Slot) -> bool:
        code = await self._end(
            transactional_id, slot.producer_id, slot.producer_epoch, is_committed=True
        )
        if code == ErrorCode.NONE:
            return True
        error = refusal(code, None, f"transactional id {transactional_id!r}")
        if error.is_retriable:
            raise error
        try:
            found = await describe_transaction(self._cluster, transactional_id)
        except KafkaError as missing:
            if missing.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False
        return found.state in _IS_COMMITTED

    async def abort(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Abort a transaction that is open; one that is not stays as it is."""
        await self._end(transactional_id, producer_id, producer_epoch, is_committed=False)

    async def ended(self, slots: Mapping[str, Slot]) -> list[str]:
        """Return those of these transactions that are no longer open."""
        found = await asyncio.gather(
            *(describe_transaction(self._cluster, each) for each in slots), return_exceptions=True
        )
        ended = []
        for (name, slot), row in zip(slots.items(), found, strict=True):
            if isinstance(row, KafkaError) and row.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                ended.append(name)
            elif isinstance(row, BaseException):
                raise row
            else:
                producer = row.producer_id, row.producer_epoch
                is_same = producer == (slot.producer_id, slot.producer_epoch)
                if row.state != _ONGOING or not is_same:
                    ended.append(name)
        return ended

    async def sweep(self, prefixes: tuple[str, ...], kept: frozenset[str] = frozenset()) -> None:
        """Shut out every producer whose id begins so, and abort what it left open."""
        if prefixes:
            ids = await self.left_open(prefixes, kept)
            await asyncio.gather(*(fence_producer(self._cluster, each) for each in ids))

    async def left_open(
        self, prefixes: tuple[str, ...], kept: frozenset[str] = frozenset()
    ) -> list[str]:
        """Return the ids that begin so and whose producers write, or still could."""
        await self._cluster.refresh()
        nodes = sorted(self._cluster.view.nodes)
        found = await asyncio.gather(*(self._left_open(node, prefixes, kept) for node in nodes))
        return [transactional_id for some in found for transactional_id in some]

    async def _left_open(
        self, node_id: int, prefixes: tuple[str, ...], kept: frozenset[str]
    ) -> list[str]:
        """Return those ids of one coordinator."""
        connection = await _reach(self._cluster, node_id)
        body = ListTransactionsRequest(state_filters=[_ONGOING, _EMPTY])
        if connection.version_of(ApiKey.LIST_TRANSACTIONS) >= _PATTERNS_FROM:
            body.transactional_id_pattern = "|".join(f"{re.escape(each)}.*" for each in prefixes)
        answer = await self._cluster.ask(
            body,
            ListTransactionsResponse,
            node_id=node_id,
            code_of=lambda answer: answer.error_code,
        )
        raise_for(answer.error_code, None, f"the transactions of node {node_id}")
        states = {
            row.transactional_id: row.transaction_state
            for row in answer.transaction_states
            if row.transactional_id.startswith(prefixes) and row.transactional_id not in kept
        }
        idle = [name for name, state in states.items() if state == _EMPTY]
        ongoing = [name for name, state in states.items() if state == _ONGOING]
        return [*ongoing, *(await self._still_writable(node_id, idle))]

    async def _still_writable(self, node_id: int, idle: list[str]) -> Iterable[str]:
        if not idle:
            return ()
        answer = await self._cluster.ask(
            DescribeTransactionsRequest(transactional_ids=idle),
            DescribeTransactionsResponse,
            node_id=node_id,
        )
        return [
            row.transactional_id
            for row in answer.transaction_states
            if row.transaction_timeout_ms != _FENCED_TIMEOUT_MS
        ]

    async def _end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_committed: bool
    ) -> int:
        answer = await ask_coordinator(
            self._cluster,
            CoordinatorType.TRANSACTION,
            transactional_id,
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=is_committed,
            ),
            EndTxnResponse,
            code_of=lambda answer: answer.error_code,
            version_max=None if await has_bumps(self._cluster) else _END_TXN_UNBUMPING_MAX,
        )
        return answer.error_code


async def has_bumps(cluster: Cluster) -> bool:
    """Return whether brokers add partitions to transactions, and ends bump epochs (KIP-890)."""
    name, level = _BUMPING_FEATURE
    connection = await _reach(cluster, ANY_NODE)
    return connection.features.get(name, 0) >= level


async def _reach(cluster: Cluster, node_id: int) -> Connection:
    """Return a connection to a node, waiting for an unavailable one up to the API timeout."""
    retries = Retries(cluster.settings)
    while True:
        try:
            return await cluster.connection(node_id)
        except NotReachable:
            if not await retries.pause():
                raise


async def timeout_max_ms(cluster: Cluster) -> int:
    """Return the longest transaction timeout; Kafka's default if we may not look it up."""
    if not cluster.view.nodes:
        await cluster.refresh()
    broker = Resource(ResourceType.BROKER, str(min(cluster.view.nodes)))
    try:
        found = values_of(await describe_configs(cluster, [broker], names=[_BROKERS_LIMIT]))
        value = next(row.value for row in found[broker] if row.name == _BROKERS_LIMIT)
        return int(value or _BROKERS_LIMIT_DEFAULT_MS)
    except (HeadraceError, ClientError, StopIteration, ValueError):
        return _BROKERS_LIMIT_DEFAULT_MS
