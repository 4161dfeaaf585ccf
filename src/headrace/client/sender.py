"""The way of batches to the leaders of their partitions, and of the answers back.

`wake` looks what is due and starts a request to each leader that it concerns; whatever changes (an
answer, a timer, a new batch) wakes it again. There is no task but that of a request.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any

from headrace.client.accumulator import Accumulator
from headrace.client.batches import UNKNOWN_OFFSET, Batch
from headrace.client.cluster import MOVED, Cluster
from headrace.client.errors import ClientError, NotReachable, refusal
from headrace.client.identity import Identity, request_identity
from headrace.client.retrying import pause_ms
from headrace.client.settings import ProducerSettings
from headrace.errors import ErrorCode, KafkaError
from headrace.wire import ApiKey
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

_TOPIC_IDS_FROM = 13
_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Codes after which the broker expects another sequence than we have."""


class Sender:
    """Sends what an accumulator has."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        *,
        acks: int,
        is_idempotent: bool,
        limits: ProducerSettings,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._limits = limits
        self._random = Random()
        self._identity: Identity | None = None
        self._identity_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._something_finished = asyncio.Event()
        self._pressing = 0
        self._failure: Exception | None = None

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wake(self) -> None:
        """Send what is due, and come back when more is."""
        groups: dict[int, list[Batch]] = {}
        for batch in self._accumulator.take_ready(self.now()):
            leader = self._cluster.known_leader(*batch.partition)
            if leader is None:
                self._start(self._find_leader(batch))
            else:
                groups.setdefault(leader.leader_id, []).append(batch)
        for node_id, batches in groups.items():
            for some in self._portions(batches):
                self._start(self._send(node_id, some))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._accumulator.next_due()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self.wake)

    async def wait_for_room(self, record_bytes: int) -> None:
        """Wait until a record of this size fits; what lingers goes out meanwhile."""
        with _Pressure(self):
            while not self._accumulator.has_room(record_bytes):
                self._something_finished.clear()
                await self._something_finished.wait()

    async def flush(self) -> None:
        """Wait for everything that is unfinished; raise what nobody was told of."""
        with _Pressure(self):
            waiting = {batch.origin.done for batch in self._accumulator.unfinished()}
            if waiting:
                await asyncio.wait(waiting)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def stop(self) -> None:
        """Give up what is unfinished."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in self._accumulator.unfinished():
            batch.fail(ClientError("the producer was closed before the record was acknowledged"))

    def press(self, change: int) -> None:
        """Count those who cannot wait for `linger_ms`."""
        self._pressing += change
        self._accumulator.is_pressed = self._pressing > 0
        if change > 0:
            self.wake()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _portions(self, batches: list[Batch]) -> Iterable[list[Batch]]:
        """Cut what goes to one node into requests of a bounded size."""
        portion: list[Batch] = []
        size_bytes = 0
        for batch in batches:
            batch_bytes = batch.builder.size_bytes
            if portion and size_bytes + batch_bytes > self._limits.request_bytes_max:
                yield portion
                portion, size_bytes = [], 0
            portion.append(batch)
            size_bytes += batch_bytes
        yield portion

    async def _find_leader(self, batch: Batch) -> None:
        try:
            await self._cluster.leader(*batch.partition)
        except (NotReachable, KafkaError) as error:
            self._settle(batch, error)
        else:
            self._accumulator.put_back([batch], self.now())
        self.wake()

    async def _send(self, node_id: int, batches: list[Batch]) -> None:
        try:
            identity = await self._current_identity() if self._is_idempotent else None
            connection = await self._cluster.connection(node_id)
            has_topic_ids = connection.version_of(ApiKey.PRODUCE) >= _TOPIC_IDS_FROM
            body = self._request(batches, identity)
            if self._acks == 0:
                await connection.send_unanswered(body)
                for batch in batches:
                    self._succeed(batch, UNKNOWN_OFFSET, -1)
            else:
                answer = await connection.request(
                    body, ProduceResponse, patience_ms=body.timeout_ms
                )
                self._take_answers(batches, answer, has_topic_ids=has_topic_ids)
        except (NotReachable, KafkaError) as error:
            for batch in batches:
                self._settle(batch, error)
        except Exception as error:  # whatever it is, whoever waits for the records must know
            for batch in batches:
                if self._accumulator.is_on_its_way(batch):
                    self._fail(batch, error)
        self.wake()

    def _request(self, batches: list[Batch], identity: Identity | None) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            if identity is None:
                data = batch.encode()
            else:
                if batch.encoded is None:
                    sequence = identity.take(batch.partition, batch.record_count)
                else:
                    sequence = batch.base_sequence
                data = batch.encode(identity.producer_id, identity.producer_epoch, sequence)
            row = PartitionProduceData(index=batch.partition.partition, records=data)
            topics.setdefault(batch.partition.topic, []).append(row)
            batch.attempts += 1
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=self._cluster.view.topic_id(name),
                    partition_data=rows,
                )
                for name, rows in topics.items()
            ],
        )

    def _take_answers(
        self, batches: list[Batch], answer: ProduceResponse, *, has_topic_ids: bool
    ) -> None:
        rows: dict[tuple[str | bytes, int], PartitionProduceResponse] = {
            (topic.topic_id if has_topic_ids else topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for batch in batches:
            name, index = batch.partition
            key = self._cluster.view.topic_id(name) if has_topic_ids else name
            row = rows.get((key, index))
            if row is None:
                about = f"partition {batch.partition}: the broker's answer leaves it out"
                self._settle(batch, refusal(ErrorCode.UNKNOWN_TOPIC_ID, about, ""))
            elif row.error_code == ErrorCode.NONE:
                self._succeed(batch, row.base_offset, row.log_append_time_ms)
            elif row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._succeed(batch, UNKNOWN_OFFSET, -1)
            else:
                self._settle(batch, _explained(batch, row))

    def _settle(self, batch: Batch, error: NotReachable | KafkaError) -> None:
        """Decide what becomes of a batch that was not taken: again, in halves, or given up."""
        if isinstance(error, KafkaError):
            if error.code in MOVED:
                self._cluster.forget(batch.partition.topic)
            if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
                self._split(batch)
                return
            if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
                self._start_over(batch)
            elif not error.is_retriable:
                self._fail(batch, error)
                return
        else:
            self._cluster.forget(batch.partition.topic)
        now = self.now()
        pause = pause_ms(batch.attempts, self._cluster.settings, self._random) / 1000
        if now + pause > batch.opened_at + self._limits.delivery_timeout_ms / 1000:
            self._fail(batch, error)
        else:
            self._accumulator.put_back([batch], now + pause)

    def _split(self, batch: Batch) -> None:
        self._give_back_sequence(batch)
        self._accumulator.put_back(list(batch.halves()), self.now())

    def _give_back_sequence(self, batch: Batch) -> None:
        identity = self._identity
        if identity is not None and identity.producer_id == batch.producer_id:
            identity.give_back(batch.partition, batch.base_sequence)

    def _start_over(self, batch: Batch) -> None:
        """Send a batch under a new identity: the broker has forgotten the one that it had."""
        self._identity = None
        batch.encoded = None

    def _succeed(self, batch: Batch, base_offset: int, timestamp: int) -> None:
        self._accumulator.finish(batch)
        batch.succeed(base_offset, timestamp)
        self._something_finished.set()

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._accumulator.finish(batch)
        if batch.encoded is not None and batch.producer_id >= 0:
            is_refused = isinstance(error, KafkaError) and error.code not in _SEQUENCE_LOST
            if is_refused and batch.attempts == 1:
                self._give_back_sequence(batch)
            else:
                # Whether it was written is not known: the sequence has a hole that only a new
                # identity gets over.
                self._identity = None
        if not batch.origin.is_watched and self._failure is None:
            self._failure = error
        batch.fail(error)
        self._something_finished.set()

    async def _current_identity(self) -> Identity:
        async with self._identity_lock:
            if self._identity is None:
                self._identity = await request_identity(self._cluster)
            return self._identity


class _Pressure:
    """While it is held, nothing lingers."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __enter__(self) -> None:
        self._sender.press(1)

    def __exit__(self, *failure: object) -> None:
        self._sender.press(-1)


def _explained(batch: Batch, row: PartitionProduceResponse) -> KafkaError:
    reasons = "; ".join(
        f"record {error.batch_index}: {error.batch_index_error_message}"
        for error in row.record_errors
        if error.batch_index_error_message
    )
    message = row.error_message or None
    if reasons:
        message = f"{message} ({reasons})" if message else reasons
    return refusal(row.error_code, message, f"partition {batch.partition}")
