"""Sending batches to the leaders of their partitions, and handling the responses.

`wake` collects what is due and starts a request to each leader; every change (a response, a timer,
a new batch) calls it again. The only tasks are those of requests.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from headrace.client.accumulator import Accumulator
from headrace.client.batches import UNKNOWN_OFFSET, Batch
from headrace.client.cluster import MOVED, Cluster
from headrace.client.errors import ClientError, NotReachable, TransactionAborted, refusal
from headrace.client.identity import Identity, request_identity
from headrace.client.produce_requests import (
    TOPIC_IDS_FROM,
    explained,
    produce_request,
    response_rows,
)
from headrace.client.retrying import pause_ms
from headrace.client.settings import ProducerSettings
from headrace.client.transactional.producer import TransactionalProducer
from headrace.client.transactional.requests import CONCURRENT_PAUSE_MS, FENCING, fenced
from headrace.errors import ErrorCode, KafkaError
from headrace.surroundings import new_random
from headrace.wire import ApiKey
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import ProduceResponse

T = TypeVar("T")

_SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Codes after which the broker expects another sequence than we have."""
_WITHOUT_REPLICAS = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Codes of a leader that may be cut off from the others, which may have another leader."""
_FAILED_MAX: Final = 100
"""How many batches that failed are remembered for the next flush, which raises one failure."""
CLOSED: Final = "the producer was closed before the record was acknowledged"


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
        transactions: TransactionalProducer | None = None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._limits = limits
        self._transactions = transactions
        self._random = new_random()
        self._identity: Identity | None = None
        self._identity_lock = asyncio.Lock()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._something_finished = asyncio.Event()
        self._pressing = 0
        self._failed: list[Batch] = []
        """Batches with failures that may be unreported."""
        self._entering = 0
        """How many calls of `send` wait before their record is accepted."""
        self._is_stopped = False
        self._stopped: asyncio.Future[None] | None = None

    def now(self) -> float:
        """Return the loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def wake(self) -> None:
        """Send what is due, and come back when more is."""
        if self._is_stopped:
            return
        if self._is_transaction_over():
            # Nothing more goes out; what was to be sent again must not wait for ever.
            self._drop_waiting(TransactionAborted("the transaction has failed before it was sent"))
            return
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

    async def enter(self, wait: Coroutine[Any, Any, T]) -> T:
        """Wait on behalf of a `send`; raise ClientError if the producer is closed first."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(wait)
        self._entering += 1
        try:
            ends: set[asyncio.Future[Any]] = {waiting, self._stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._is_stopped:
                raise ClientError("the producer was closed before the record was accepted")
            return waiting.result()
        finally:
            self._entering -= 1
            self._something_finished.set()
            if not waiting.cancel() and not waiting.cancelled():
                waiting.exception()  # seen, though the caller may hear of something else

    async def wait_for_room(self, record_bytes: int) -> None:
        """Wait until a record of this size fits; what lingers goes out meanwhile."""
        with _Pressure(self):
            while not self._accumulator.has_room(record_bytes) and not self._is_transaction_over():
                self._something_finished.clear()
                await self._something_finished.wait()

    async def flush(self) -> None:
        """Wait for all unfinished batches; raise an unreported failure."""
        with _Pressure(self):
            waiting = {batch.origin.done for batch in self._accumulator.unfinished()}
            if waiting:
                await asyncio.wait(waiting)
        failed = self._failed
        self._failed = [batch for batch in failed if not batch.done.done()]
        for batch in failed:
            failure = batch.untold_failure()
            if failure is not None and batch.done.done():
                raise failure

    async def drain(self) -> None:
        """Wait for everything, calls of `send` that have begun included, or for a failure."""
        with _Pressure(self):
            while not self._is_transaction_over():
                waiting = {batch.origin.done for batch in self._accumulator.unfinished()}
                if waiting:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
                elif self._entering:
                    self._something_finished.clear()
                    await self._something_finished.wait()
                else:
                    return

    async def drop(self, error: ClientError, *, cancel_requests: bool) -> None:
        """Drop all unfinished batches; requests in flight complete or are cancelled."""
        self._drop_waiting(error)
        while self._entering and not cancel_requests:
            self._something_finished.clear()
            await self._something_finished.wait()
        tasks = tuple(self._tasks)
        if cancel_requests:
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._drop_all(error)

    def forget_failure(self) -> None:
        """Forget failures so far: the next flush reports only later ones."""
        self._failed.clear()

    async def stop(self) -> None:
        """Drop unfinished batches, and fail waiting calls of `send`."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            error = ClientError(CLOSED)
            for batch in self._accumulator.unfinished():
                self._note_failed(batch.origin)  # for a flush that waits
            self._drop_all(error)

    def _is_transaction_over(self) -> bool:
        return self._transactions is not None and self._transactions.is_over

    def _drop_waiting(self, error: Exception) -> None:
        for batch in self._accumulator.take_waiting():
            batch.fail(error)
        self._something_finished.set()

    def _drop_all(self, error: Exception) -> None:
        self._drop_waiting(error)
        for batch in self._accumulator.unfinished():
            self._accumulator.finish(batch)
            batch.fail(error)
        self._something_finished.set()

    def press(self, change: int) -> None:
        """Count callers that cannot wait for `linger_ms`."""
        self._pressing += change
        self._accumulator.is_pressed = self._pressing > 0
        if change > 0:
            self.wake()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

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
            identity = await self._identify(batches)
            connection = await self._cluster.connection(node_id)
            version = (
                connection.version_of(ApiKey.PRODUCE)
                if self._transactions is None
                else self._transactions.produce_version(connection)
            )
            has_topic_ids = version >= TOPIC_IDS_FROM
            body = self._request(batches, identity)
            if self._acks == 0:
                await connection.send_unanswered(body)
                for batch in batches:
                    self._succeed(batch, UNKNOWN_OFFSET, -1)
            else:
                answer = await connection.request(
                    body, ProduceResponse, version=version, patience_ms=body.timeout_ms
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
        transactions = self._transactions
        for batch in batches:
            if identity is None:
                batch.encode()
            elif batch.encoded is None:
                batch.encode(
                    identity.producer_id,
                    identity.producer_epoch,
                    identity.take(batch.partition, batch.record_count),
                    is_transactional=transactions is not None,
                )
            batch.attempts += 1
        return produce_request(
            batches,
            self._cluster.view,
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=self._acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )

    def _take_answers(
        self, batches: list[Batch], answer: ProduceResponse, *, has_topic_ids: bool
    ) -> None:
        rows = response_rows(answer, self._cluster.view, batches, has_topic_ids=has_topic_ids)
        for batch, row in zip(batches, rows, strict=True):
            if row is None:
                about = f"partition {batch.partition}: the broker's response lacks it"
                self._settle(batch, refusal(ErrorCode.UNKNOWN_TOPIC_ID, about, ""))
            elif row.error_code == ErrorCode.NONE:
                self._succeed(batch, row.base_offset, row.log_append_time_ms)
            elif row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._succeed(batch, UNKNOWN_OFFSET, -1)
            else:
                self._settle(batch, explained(batch, row))

    def _settle(self, batch: Batch, error: NotReachable | KafkaError) -> None:
        """Decide what becomes of a batch that was not taken: again, in halves, or given up."""
        if isinstance(error, KafkaError):
            if error.code in MOVED or error.code in _WITHOUT_REPLICAS:
                self._cluster.suspect(batch.partition.topic)
            if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
                self._split(batch)
                return
            if self._transactions is not None and error.code in FENCING:
                self._fail(batch, fenced(self._transactions.transactional_id))
                return
            if error.code == ErrorCode.UNKNOWN_PRODUCER_ID and self._transactions is None:
                self._start_over(batch)
            elif not error.is_retriable:
                self._fail(batch, error)
                return
        else:
            self._cluster.suspect(batch.partition.topic)
        now = self.now()
        pause = pause_ms(batch.attempts, self._cluster.settings, self._random) / 1000
        if isinstance(error, KafkaError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            pause = CONCURRENT_PAUSE_MS / 1000
        if now + pause > batch.opened_at + self._limits.delivery_timeout_ms / 1000:
            self._fail(batch, error)
        else:
            self._accumulator.put_back([batch], now + pause)

    def _split(self, batch: Batch) -> None:
        self._give_back_sequence(batch)
        self._accumulator.put_back(list(batch.halves()), self.now())

    def _give_back_sequence(self, batch: Batch) -> None:
        identity = self._identity
        if self._transactions is not None:
            identity = self._transactions.sequences
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
        transactions = self._transactions
        is_news = transactions is None or transactions.may_abort
        if transactions is not None:
            # A part of a transaction is nothing: it gets a new epoch with the abort.
            transactions.fail(error)
            self._drop_waiting(error)
        elif batch.encoded is not None and batch.producer_id >= 0:
            is_refused = isinstance(error, KafkaError) and error.code not in _SEQUENCE_LOST
            if is_refused and batch.attempts == 1:
                self._give_back_sequence(batch)
            else:
                # Whether it was written is not known: the sequence has a hole that only a new
                # identity gets over.
                self._identity = None
        if is_news:
            self._note_failed(batch.origin)
        batch.fail(error)
        self._something_finished.set()

    def _note_failed(self, batch: Batch) -> None:
        """Remember a failed batch for the next flush, which raises unreported failures."""
        if len(self._failed) >= _FAILED_MAX:
            self._failed = [
                each for each in self._failed if not each.done.done() or each.untold_failure()
            ]
        if len(self._failed) < _FAILED_MAX and batch not in self._failed:
            self._failed.append(batch)

    async def _identify(self, batches: list[Batch]) -> Identity | None:
        """Return the identity under which batches go out, if they have one."""
        if self._transactions is not None:
            return await self._transactions.prepare([batch.partition for batch in batches])
        if not self._is_idempotent:
            return None
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
