"""One node with partitions of ours: a connection, the share session on it, one request at a time.

Fetches and acknowledgements share the epochs of one session, so a request is sent when the previous
one has its response; acknowledgements gather in the meantime and are sent together. A second
connection would not help: Apache Kafka 4.3.1 accepts an acknowledgement during a waiting fetch, but
then fails the fetch with INVALID_SHARE_SESSION_EPOCH, and the records that it acquired stay locked.
So a caller that must acknowledge soon must not let a fetch wait for long. A broker binds locks to
the connection: when that closes, the locks are lost, and waiting acknowledgements fail with an
error that says so. They are never dropped, and never sent to a node that did not deliver the
records.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from typing import Final, Protocol

from headrace.client.addresses import Address
from headrace.client.connection import Connection, open_connection
from headrace.client.errors import ClientError, NotReachable, refusal
from headrace.client.retrying import pause_ms
from headrace.client.share import requests
from headrace.client.share.acknowledgements import Acknowledgements
from headrace.client.share.session import FINAL_EPOCH, SharedPartition, ShareSession
from headrace.client.share.staged import LOCK_LOST, Outcome, StagedAcknowledgements
from headrace.client.share.terms import FetchTerms
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import TopicId
from headrace.surroundings import new_random
from headrace.wire import ApiKey
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_response import PartitionData as FetchedPartition
from headrace.wire.messages.share_fetch_response import ShareFetchResponse

RENEWS_FROM: Final = 2
"""The version of ShareAcknowledge that can renew."""
_LATE_MS: Final = 1000
"""How long a response may take, beyond what its fetch may wait, until it is late."""
_SESSION_LOST: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)


class LinkOwner(Protocol):
    """The owner of the links, and its callbacks."""

    def address_of(self, node_id: int) -> Address | None: ...

    def on_acquired(
        self, link: "NodeLink", shared: SharedPartition, row: FetchedPartition, lock_ms: int
    ) -> None: ...

    def on_acknowledged(self, outcome: Outcome) -> None: ...

    def on_moved(self, shared: SharedPartition, leader: tuple[int, int]) -> None: ...

    def on_endpoints(self, endpoints: Iterable[tuple[int, str, int]]) -> None: ...

    def on_failure(self, error: HeadraceError) -> None: ...

    def on_news(self) -> None: ...


class NodeLink:
    """Fetches from one node, and acknowledges to it."""

    def __init__(self, node_id: int, terms: FetchTerms, owner: LinkOwner) -> None:
        self.node_id = node_id
        self.session = ShareSession()
        self.life = 0
        """Grows when the connection is lost: what was acquired in another life is not ours."""
        self.lock_ms = 0
        """How long the broker's locks last; 0 before it said so."""
        self.asked_at = 0.0
        """When the last fetch was sent, in loop time: no lock of its records is older."""
        self.has_given = False
        """Whether its last response had records."""
        self._terms = terms
        self._owner = owner
        self._random = new_random()
        self._connection: Connection | None = None
        self._staged = StagedAcknowledgements()
        self._names: dict[tuple[TopicId, int], SharedPartition] = {}
        self._wanted: Set[SharedPartition] | None = None
        self._records_max = 0
        self._max_wait_ms = 0
        self._expected_until = 0.0
        """When the response to a fetch is late, in loop time."""
        self._task: asyncio.Task[None] | None = None
        self._is_fetching = False
        """Whether a fetch is in flight, or about to be."""
        self._failures = 0

    @property
    def unconfirmed(self) -> list[SharedPartition]:
        """The partitions with acknowledgements that are unsent or unconfirmed."""
        return self._staged.unconfirmed

    @property
    def is_idle(self) -> bool:
        """Whether no request to the node is in flight."""
        return self._task is None

    def has_locks_of(self, life: int) -> bool:
        """Return whether records acquired in a life of this link may still be locked for us."""
        connection = self._connection
        return life == self.life and connection is not None and connection.is_open

    @property
    def can_renew(self) -> bool:
        """Whether the node can renew locks."""
        connection = self._connection
        return (
            connection is not None
            and connection.is_open
            and connection.version_of(ApiKey.SHARE_ACKNOWLEDGE) >= RENEWS_FROM
        )

    def fetch(self, wanted: Set[SharedPartition], records_max: int, max_wait_ms: int) -> None:
        """Fetch records of these partitions, unless a request is in flight already."""
        if self._task is None and (wanted or self.session.partitions):
            self._wanted = wanted
            self._is_fetching = True
            self._records_max, self._max_wait_ms = records_max, max_wait_ms
            self._expected_until = self._now() + (max_wait_ms + _LATE_MS) / 1000
            self.send()

    def stage(
        self, life: int, shared: SharedPartition, more: Callable[[Acknowledgements], None]
    ) -> None:
        """Call `more` to add acknowledgements of records acquired in a life of this link."""
        if not self.has_locks_of(life):
            lost = Acknowledgements()
            more(lost)
            self._owner.on_acknowledged(Outcome(shared, lost, self._lost()))
            return
        self._staged.add(shared, more, self._now() + self.lock_ms / 1000)

    def send(self) -> None:
        """Send waiting acknowledgements as soon as the previous request has its response."""
        if self._task is None and (self._staged or self._wanted is not None):
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._end_work)

    @property
    def records_asked(self) -> int:
        """How many records the request in flight is expected to return.

        None of a node that is late with its response: it may be gone, and others have records.
        """
        is_expected = self._is_fetching and self._now() < self._expected_until
        return self._records_max if self._task is not None and is_expected else 0

    async def close(self) -> None:
        """Send what waits with the final epoch, which releases every lock, and disconnect."""
        task = self._task
        if task is not None:
            self._wanted = None
            await asyncio.wait([task])
        connection = self._connection
        if connection is not None and connection.is_open and not self.session.is_new:
            self._staged.release_renewals()
            with suppress(HeadraceError):  # what it did not take is reported as lost
                await self._acknowledge(connection, is_final=True)
        self.hang_up()

    def hang_up(self) -> "asyncio.Task[None] | None":
        """End at once; return the task that ends, if there is one.

        The broker notices, and gives the locks back.
        """
        task = self._task
        if task is not None:
            task.cancel()
        if self._connection is not None:
            self._connection.close()
        self._report(self._staged.fail(self._lost()))
        return task

    def _end_work(self, task: "asyncio.Task[None]") -> None:
        """Report an unexpected error; acknowledgements that it hit are not left waiting."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._report(self._staged.fail(self._lost()))
        self._owner.on_failure(
            error if isinstance(error, HeadraceError) else ClientError(repr(error))
        )

    async def _work(self) -> None:
        try:
            while self._staged or self._wanted is not None:
                try:
                    await self._exchange(await self._connect())
                except NotReachable as error:
                    self._wanted = None
                    self._is_fetching = False
                    self._begin_life(error)
                    for shared in self._names.values():
                        self._owner.on_moved(shared, (-1, -1))
                    await self._pause()
                self._owner.on_news()
        finally:
            # Here and not when the task is seen to be done: whoever heard the news may send more.
            self._task = None

    async def _exchange(self, connection: Connection) -> None:
        """Send the next request and handle its response."""
        wanted = self._wanted
        is_fetching = wanted is not None and (
            self.session.is_new or self._staged.fits_a_fetch_of(wanted)
        )
        if is_fetching:
            await self._fetch(connection)
        elif self.session.is_new:
            # Only a fetch opens a session, and what was acquired in the one before is lost.
            self._report(self._staged.fail(self._lost()))
        else:
            await self._acknowledge(connection)

    async def _connect(self) -> Connection:
        connection = self._connection
        if connection is not None and connection.is_open:
            return connection
        if connection is not None:
            self._begin_life(None)
        address = self._owner.address_of(self.node_id)
        if address is None:
            raise NotReachable(f"node {self.node_id} is not part of the cluster now")
        self._connection = await open_connection(address, self._terms.settings)
        return self._connection

    def _begin_life(self, why: NotReachable | None) -> None:
        """Reset the link: the connection is gone, with the session and every lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self.life += 1
        self.session.reset()
        self._report(self._staged.fail(self._lost(why)))

    async def _fetch(self, connection: Connection) -> None:
        wanted = self._wanted or frozenset()
        self._wanted = None
        plan = self.session.plan(wanted)
        taken = {} if self.session.is_new else self._staged.take()
        self._names.update({(each.topic_id, each.partition_index): each for each in wanted})
        body = requests.fetch_request(
            self._terms,
            plan,
            {shared: each.batches() for shared, each in taken.items()},
            records_max=self._records_max,
            max_wait_ms=self._max_wait_ms if wanted else 0,
        )
        self.asked_at = self._now()
        try:
            answer = await connection.request(
                body, ShareFetchResponse, patience_ms=body.max_wait_ms
            )
        finally:
            self._is_fetching = False
        if answer.error_code:
            await self._refused(answer.error_code, answer.error_message)
            return
        self.session.fetched(wanted)
        self.lock_ms = answer.acquisition_lock_timeout_ms or self.lock_ms
        rows = {
            shared: row
            for topic in answer.responses
            for row in topic.partitions
            if (shared := self._names.get((TopicId(topic.topic_id), row.partition_index)))
        }
        errors = {
            shared: _error(row.acknowledge_error_code, row.acknowledge_error_message, shared)
            for shared, row in rows.items()
        }
        self._settle(errors)
        await self._take_rows(answer, rows)

    async def _take_rows(
        self, answer: ShareFetchResponse, rows: Mapping[SharedPartition, FetchedPartition]
    ) -> None:
        self._owner.on_endpoints((row.node_id, row.host, row.port) for row in answer.node_endpoints)
        is_troubled = self.has_given = False
        for shared, row in rows.items():
            if row.error_code:
                is_troubled = True
                self._note_trouble(shared, row)
            elif row.acquired_records:
                self.has_given = True
                self._owner.on_acquired(self, shared, row, self.lock_ms)
        if is_troubled:
            self._owner.on_news()
            await self._pause()
        else:
            self._failures = 0

    def _note_trouble(self, shared: SharedPartition, row: FetchedPartition) -> None:
        error = refusal(row.error_code, row.error_message, f"partition {shared}")
        if error.is_retriable or error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            leader = row.current_leader
            self._owner.on_moved(shared, (leader.leader_id, leader.leader_epoch))
        else:
            self._owner.on_failure(error)

    async def _acknowledge(self, connection: Connection, *, is_final: bool = False) -> None:
        """Send what waits without fetching."""
        taken = self._staged.take()
        is_renewing = any(each.has_renewals for each in taken.values())
        if is_renewing and connection.version_of(ApiKey.SHARE_ACKNOWLEDGE) < RENEWS_FROM:
            unable = KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.address} cannot renew locks; Kafka 4.2 and later can",
            )
            self._report(self._staged.fail_sent(unable))
            return
        body = requests.acknowledge_request(
            self._terms,
            FINAL_EPOCH if is_final else self.session.epoch,
            {shared: each.batches() for shared, each in taken.items()},
            is_renewing=is_renewing,
        )
        answer = await connection.request(body, ShareAcknowledgeResponse)
        if answer.error_code:
            await self._refused(answer.error_code, answer.error_message)
            return
        self.session.acknowledged()
        self.lock_ms = answer.acquisition_lock_timeout_ms or self.lock_ms
        self._owner.on_endpoints((row.node_id, row.host, row.port) for row in answer.node_endpoints)
        errors: dict[SharedPartition, KafkaError | None] = {}
        names = {(shared.topic_id, shared.partition_index): shared for shared in taken}
        for topic in answer.responses:
            for row in topic.partitions:
                shared = names.get((TopicId(topic.topic_id), row.partition_index))
                if shared is None:
                    continue
                errors[shared] = _error(row.error_code, row.error_message, shared)
                if row.error_code in LOCK_LOST:
                    leader = row.current_leader
                    self._owner.on_moved(shared, (leader.leader_id, leader.leader_epoch))
        if self._settle(errors) < len(taken) and not is_final:
            await self._pause()

    def _settle(self, errors: Mapping[SharedPartition, KafkaError | None]) -> int:
        """Report what became of what was sent, of so many partitions; the rest waits again."""

        def error_of(shared: SharedPartition) -> KafkaError | None:
            if shared in errors:
                return errors[shared]
            unsaid = f"node {self.node_id} does not say what became of {shared}"
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, unsaid)

        outcomes = self._staged.settle(error_of, self._now())
        self._report(outcomes)
        return len(outcomes)

    async def _refused(self, code: int, message: str | None) -> None:
        """Go on after a whole request was refused."""
        error = refusal(code, message, f"the share session with node {self.node_id}")
        self._report(self._staged.fail_sent(error))
        if error.is_retriable:
            if error.code in _SESSION_LOST:
                # The locks went with it, or will run out: nobody can tell one from the other.
                self.session.reset()
                self.life += 1
                self._report(self._staged.fail(self._lost()))
            await self._pause()
        else:
            self.session.reset()
            self._owner.on_failure(error)

    def _report(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._owner.on_acknowledged(outcome)

    def _lost(self, why: NotReachable | None = None) -> KafkaError:
        if why is not None:
            return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(why))
        return KafkaError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            f"the session with node {self.node_id} in which these records were acquired is over; "
            "they will be delivered again",
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _pause(self) -> None:
        pause = pause_ms(self._failures, self._terms.settings, self._random)
        self._failures += 1
        await asyncio.sleep(pause / 1000)


def _error(code: int, message: str | None, shared: SharedPartition) -> KafkaError | None:
    return refusal(code, message, f"partition {shared}") if code else None
