"""The transactions of one producer: the table of `states`, driven by requests.

Knows the coordinator and the producer's identity, nothing of batches. `transaction` is the context
manager for users; `sender` gets the identity of records here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.coordinators import CoordinatorType
from headrace.client.errors import ClientError, NotReachable, ProducerFenced, TransactionAborted
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.identity import Identity
from headrace.client.retrying import Retries
from headrace.client.topics import TopicPartition
from headrace.client.transactional.requests import (
    ABORTABLE,
    PRODUCE_EXPLICIT_MAX,
    Coordinator,
    ProducerIdentity,
    add_group,
    add_partitions,
    commit_group_offsets,
    end_transaction,
    has_implicit_adds,
    init_producer_id,
)
from headrace.client.transactional.states import (
    MAY_ABORT,
    WITH_TRANSACTION,
    InvalidTransactionStep,
    State,
    Step,
    TransactionStates,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.wire import ApiKey

END_WAIT_SECONDS: Final = 5
"""How long an exception waits for the abort, which then continues in the background."""
CLOSED: Final = "the producer was closed"
DEFAULT_TIMEOUT_MS: Final = 60_000
"""When the coordinator aborts an unfinished transaction; the default of Kafka's clients."""


class TransactionalProducer:
    """The coordinator's view of one producer, and what it may do next."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self.states = TransactionStates()
        self.sequences = Identity(-1, -1)
        """The identity that batches carry."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._identity = ProducerIdentity(transactional_id)
        self._coordinator = Coordinator(cluster, CoordinatorType.TRANSACTION, transactional_id)
        self._group_coordinators: dict[str, Coordinator] = {}
        self._starting = asyncio.Lock()
        self._adding = asyncio.Lock()
        self._ending: asyncio.Task[None] | None = None

    @property
    def transactional_id(self) -> str:
        """The producer's identity across restarts."""
        return self._identity.transactional_id

    @property
    def number(self) -> int:
        """Which transaction is open, or was the last; counted from 1."""
        return self.states.number

    @property
    def is_open(self) -> bool:
        """Whether records may be sent."""
        return self.states.state is State.OPEN

    @property
    def may_abort(self) -> bool:
        """Whether a transaction is open and not being ended."""
        return self.states.state in MAY_ABORT

    @property
    def is_over(self) -> bool:
        """Whether a transaction that was open can only be aborted, or is being aborted."""
        return self.states.state in (State.DOOMED, State.ABORTING, State.BROKEN)

    @property
    def uses_implicit_adds(self) -> bool:
        """Whether brokers add partitions themselves, and old epochs cannot write late."""
        return self.states.uses_implicit_adds

    # Begin

    async def start(self) -> None:
        """Take over the transactional id, once: the predecessor's open transaction is aborted."""
        async with self._starting:
            if self.states.state is not State.NEW:
                return
            self._become(await self._next_epoch(self._identity))
            self.states.step(Step.START)

    async def begin(self) -> int:
        """Open a transaction and return its number, when the one before it has ended."""
        self.check_usable()
        if self.states.state in WITH_TRANSACTION and self._ending is None:
            raise InvalidTransactionStep(
                "this producer has an open transaction; it can have one at a time"
            )
        await self.settle()
        await self.start()
        uses_implicit_adds = await self._find_protocol()
        self.check_usable()
        self.states.begin(uses_implicit_adds=uses_implicit_adds)
        return self.states.number

    def check_usable(self) -> None:
        """Raise the error that broke this producer, if any."""
        if self.states.state is not State.BROKEN:
            return
        error = self.states.error
        if isinstance(error, ProducerFenced):
            raise ProducerFenced(error.message)
        raise ClientError(
            f"this producer is unusable: {error}; use a new Producer with the same "
            "transactional_id, which finds a definite state"
        ) from error

    def check_open(self) -> int:
        """Return the number of the open transaction; raise unless it may be sent to."""
        if self.states.state is State.OPEN:
            return self.states.number
        self.check_usable()
        if self.states.state is State.DOOMED:
            raise TransactionAborted(
                f"the transaction has failed and can only be aborted: {self.states.error}"
            ) from self.states.error
        raise ValueError(
            "a producer with a transactional_id sends within a transaction: "
            "use `async with producer.transaction()`"
        )

    def check_entering(self, number: int) -> None:
        """Raise unless a record sent in transaction `number` may still become part of it."""
        if self.states.number == number and self.states.state in (State.OPEN, State.CLOSING):
            return
        self.check_usable()
        raise TransactionAborted("the transaction was aborted before the record was accepted")

    def fail(self, error: Exception, number: int | None = None) -> None:
        """Doom the transaction to an abort: a part of it failed.

        Only while its end is undecided, and only that transaction if a number is given: a late
        failure must not hit the next one, and an epoch that an abort has ended does not mean that
        another producer fenced us.
        """
        if not self.may_abort or number not in (None, self.states.number):
            return
        if isinstance(error, ProducerFenced):
            self.states.break_down(error)
        else:
            self.states.fail(error)

    # What a transaction holds

    async def prepare(self, partitions: Iterable[TopicPartition]) -> Identity:
        """Make sure that the coordinator knows partitions; return the identity to write with."""
        states = self.states
        states.is_known = True
        if not states.uses_implicit_adds:
            async with self._adding:
                new = [partition for partition in partitions if partition not in states.partitions]
                if new:
                    await add_partitions(self._coordinator, self._identity, new)
                    states.partitions.update(new)
        return self.sequences

    def produce_version(self, connection: Connection) -> int:
        """Return the version of Produce that means what this transaction does."""
        version = connection.version_of(ApiKey.PRODUCE)
        return version if self.uses_implicit_adds else min(version, PRODUCE_EXPLICIT_MAX)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        """Make a group's offsets part of the transaction."""
        states = self.states
        states.is_known = True
        if not states.uses_implicit_adds and group.group_id not in states.groups:
            await add_group(self._coordinator, self._identity, group.group_id)
            states.groups.add(group.group_id)
        coordinator = self._group_coordinators.get(group.group_id)
        if coordinator is None:
            coordinator = Coordinator(self._cluster, CoordinatorType.GROUP, group.group_id)
            self._group_coordinators[group.group_id] = coordinator
        await commit_group_offsets(
            coordinator,
            self._identity,
            group,
            offsets,
            uses_implicit_adds=states.uses_implicit_adds,
        )

    # End

    def start_commit(self) -> "asyncio.Task[None]":
        """Commit in a separate task. A commit that becomes an abort leaves the state DOOMED."""
        self.states.step(Step.COMMIT)
        return self._run_end(self._commit())

    def start_abort(self, give_up: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        """Abort in a separate task, after `give_up` has ended requests in flight."""
        self.states.step(Step.ABORT)
        return self._run_end(self._abort(give_up))

    async def settle(self, timeout: float | None = None) -> None:
        """Wait for a commit or abort in progress, whatever its outcome, up to `timeout` seconds."""
        if self._ending is not None:
            await asyncio.wait({self._ending}, timeout=timeout)

    async def stop(self) -> None:
        """Abandon a commit or abort in progress: the coordinator's timeout ends the transaction."""
        ending = self._ending
        if ending is not None:
            ending.cancel()
            await asyncio.wait({ending})
        self.states.break_down(ClientError(CLOSED))

    def _run_end(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._ending = task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._forget_end)
        return task

    def _forget_end(self, task: "asyncio.Task[None]") -> None:
        if self._ending is task:
            self._ending = None
        if not task.cancelled():
            task.exception()  # seen: the state keeps it for whoever comes next

    async def _commit(self) -> None:
        states = self.states
        try:
            self._become(await self._end(is_commit=True))
        except KafkaError as error:
            if error.code in ABORTABLE:
                states.fail(error)
                return
            states.break_down(error)
            raise
        except NotReachable as error:
            unknown = NotReachable(
                f"whether the transaction of {self.transactional_id!r} was committed is not known: "
                f"{error}"
            )
            states.break_down(unknown)
            raise unknown from error
        except Exception as error:
            states.break_down(error)
            raise
        states.step(Step.END)

    async def _abort(self, give_up: Callable[[], Awaitable[None]]) -> None:
        states = self.states
        try:
            await give_up()
            try:
                identity = await self._end(is_commit=False)
            except KafkaError as error:
                if error.code not in ABORTABLE and error.code != ErrorCode.INVALID_TXN_STATE:
                    raise
                # The coordinator has never heard of the transaction, or not of us any more.
                identity = await self._next_epoch(self._identity)
            else:
                if states.is_known and not states.uses_implicit_adds:
                    # What became of records that failed is unknown, and so is their sequence.
                    identity = await self._next_epoch(identity)
            self._become(identity)
        except Exception as error:
            states.break_down(error)
            raise
        states.step(Step.END)

    async def _end(self, *, is_commit: bool) -> ProducerIdentity:
        if not self.states.is_known:
            return self._identity
        return await end_transaction(
            self._coordinator,
            self._identity,
            is_commit=is_commit,
            uses_implicit_adds=self.states.uses_implicit_adds,
            patience_ms=self._timeout_ms + self._cluster.settings.api_timeout_ms,
        )

    async def _next_epoch(self, identity: ProducerIdentity) -> ProducerIdentity:
        return await init_producer_id(self._coordinator, identity, self._timeout_ms)

    async def _find_protocol(self) -> bool:
        retries = Retries(self._cluster.settings)
        while True:
            try:
                return await has_implicit_adds(self._cluster)
            except NotReachable:
                if self._cluster.is_closed or not await retries.pause():
                    raise

    def _become(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            self.sequences = Identity(identity.producer_id, identity.producer_epoch)
        self._identity = identity
