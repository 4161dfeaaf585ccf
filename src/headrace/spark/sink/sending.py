"""Sending the batches of one transaction to the leaders of their partitions.

Each leader gets one request at a time, with at most one batch per partition, so that retries keep
the order of sequences.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec

from headrace.client.cluster import MOVED, Cluster
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.client.errors import NotReachable, raise_for, refusal
from headrace.client.leaders import by_topic
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.spark.sink.coordination import has_bumps
from headrace.spark.sink.decisions import Fenced, Slot
from headrace.spark.sink.protocol import TIMEOUT_NAME
from headrace.spark.sink.write_options import WriteOptions
from headrace.wire import ApiKey
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse

WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
"""What may wait to be sent before a task stops to take rows."""
_TOPIC_IDS_FROM: Final = 13
_PRODUCE_UNBUMPING_MAX: Final = 11
_ADD_PARTITIONS_CLIENT_MAX: Final = 3
_LOST: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Codes that say: this transaction is over."""
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class _Waiting(msgspec.Struct):
    """A batch, and until when it is tried."""

    data: memoryview
    retries: Retries | None = None


class Sending:
    """What a task sends in its transaction."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, slot: Slot, options: WriteOptions
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._slot = slot
        self._options = options
        self._queues: dict[TopicPartition, deque[_Waiting]] = {}
        self._waiting_bytes = 0
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._on_their_way: set[TopicPartition] = set()
        self._added: set[TopicPartition] = set()
        self._failure: HeadraceError | None = None

    def add(self, partition: TopicPartition, data: memoryview) -> None:
        """Add a batch."""
        self._queues.setdefault(partition, deque()).append(_Waiting(data))
        self._waiting_bytes += len(data)

    async def pump(self) -> None:
        """Send what can be sent now; wait only while too much waits."""
        await self._start()
        await asyncio.sleep(0)  # the requests go to their sockets
        while self._waiting_bytes > WAITING_BYTES_MAX:
            await self._step()

    async def flush(self) -> None:
        """Wait until everything is acknowledged."""
        await self._start()
        while self._queues:
            await self._step()
        self._check()

    async def stop(self) -> None:
        """Cancel requests in flight."""
        for task in self._busy.values():
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)
        self._busy.clear()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _step(self) -> None:
        if self._busy:
            await asyncio.wait(self._busy.values(), return_when=asyncio.FIRST_COMPLETED)
        await self._start()

    async def _start(self) -> None:
        """Start a request to every leader with waiting batches and no request in flight."""
        self._busy = {node: task for node, task in self._busy.items() if not task.done()}
        self._check()
        groups: dict[int, list[TopicPartition]] = {}
        sizes: dict[int, int] = {}
        for partition in [each for each in self._queues if each not in self._on_their_way]:
            leader = self._cluster.known_leader(*partition)
            if leader is None:
                leader = await self._cluster.leader(*partition)
            node_id, size = leader.leader_id, len(self._queues[partition][0].data)
            total = sizes.get(node_id, 0) + size
            is_too_much = node_id in groups and total > self._options.request_bytes
            if node_id in self._busy or is_too_much:
                continue
            groups.setdefault(node_id, []).append(partition)
            sizes[node_id] = total
        for node_id, partitions in groups.items():
            self._on_their_way.update(partitions)
            self._busy[node_id] = asyncio.ensure_future(self._send(node_id, partitions))

    async def _send(self, node_id: int, partitions: list[TopicPartition]) -> None:
        try:
            await self._attempt(node_id, partitions)
        except NotReachable as error:
            for partition in partitions:
                await self._settle(partition, error)
        except HeadraceError as error:
            self._failure = self._failure or error
        finally:
            self._on_their_way.difference_update(partitions)

    async def _attempt(self, node_id: int, partitions: list[TopicPartition]) -> None:
        version = None
        connection = await self._cluster.connection(node_id)
        newest = connection.version_of(ApiKey.PRODUCE)
        if not await has_bumps(self._cluster):
            version = newest = min(newest, _PRODUCE_UNBUMPING_MAX)
            await self._add_partitions(partitions)
        answer = await connection.request(
            self._request(partitions),
            ProduceResponse,
            version=version,
            patience_ms=self._cluster.settings.request_timeout_ms,
        )
        has_topic_ids = newest >= _TOPIC_IDS_FROM
        rows = {
            (topic.topic_id if has_topic_ids else topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for partition in partitions:
            name: str | bytes = partition.topic
            if has_topic_ids:
                name = self._cluster.view.topic_id(partition.topic)
            row = rows.get((name, partition.partition))
            code = ErrorCode.UNKNOWN_TOPIC_ID if row is None else row.error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._finish(partition)
            else:
                message = None if row is None else row.error_message
                await self._settle(partition, refusal(code, message, f"partition {partition}"))

    def _request(self, partitions: list[TopicPartition]) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=self._cluster.view.topic_id(name),
                    partition_data=[
                        PartitionProduceData(
                            index=index,
                            records=self._queues[TopicPartition(name, index)][0].data,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )

    async def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the transaction at the coordinator."""
        new = [partition for partition in partitions if partition not in self._added]
        if not new:
            return
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._slot.producer_id,
            v3_and_below_producer_epoch=self._slot.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in by_topic(new).items()
            ],
        )
        answer = await ask_coordinator(
            self._cluster,
            CoordinatorType.TRANSACTION,
            self._transactional_id,
            body,
            AddPartitionsToTxnResponse,
            code_of=_first_code,
            version_max=_ADD_PARTITIONS_CLIENT_MAX,
        )
        code = _first_code(answer)
        if code in _LOST:
            raise self._lost(refusal(code, None, self._transactional_id))
        raise_for(code, None, f"the transaction {self._transactional_id}")
        self._added.update(new)

    def _finish(self, partition: TopicPartition) -> None:
        queue = self._queues[partition]
        self._waiting_bytes -= len(queue.popleft().data)
        if not queue:
            del self._queues[partition]

    async def _settle(self, partition: TopicPartition, error: NotReachable | KafkaError) -> None:
        """Leave a batch to be sent again after a pause, or give up."""
        waiting = self._queues[partition][0]
        if isinstance(error, NotReachable) or error.code in MOVED:
            self._cluster.suspect(partition.topic)
        if waiting.retries is None:
            waiting.retries = Retries(self._cluster.settings, self._options.delivery_timeout_ms)
        is_hopeless = isinstance(error, KafkaError) and not error.is_retriable
        if is_hopeless or not await waiting.retries.pause():
            self._failure = self._failure or self._explained(error, len(waiting.data))

    def _explained(self, error: NotReachable | KafkaError, size: int) -> HeadraceError:
        if isinstance(error, NotReachable):
            return error
        if error.code in _LOST:
            return self._lost(error)
        if error.code in _TOO_LARGE:
            return KafkaError(
                error.code,
                f"{error.message} (a batch of {size} bytes). Raise the topic's max.message.bytes, "
                f"or lower the option 'kafka.batch.size', now {self._options.batch_bytes}, unless "
                "a single record is so large",
            )
        return error

    def _lost(self, error: KafkaError) -> Fenced:
        return Fenced(
            f"the transaction of this task was ended by another process ({error}): a newer run of "
            f"the query took over, or it was open for longer than {TIMEOUT_NAME}"
        )


def _first_code(answer: AddPartitionsToTxnResponse) -> int:
    codes = (
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    )
    return next((code for code in codes if code), 0)
