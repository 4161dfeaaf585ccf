"""A cluster: one connection per node, opened on first use, and a cached view of leaders.

    async with Cluster("127.0.0.1:9092") as cluster:
        answer = await cluster.ask(ListGroupsRequest(), ListGroupsResponse)

The bootstrap addresses are used at first, and again when every known node is gone. Leaders are
looked up when needed and again when a broker reports that they moved; timeouts and retries are in
`settings`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from headrace.client.addresses import Address, parse_bootstrap
from headrace.client.connection import Connection, open_connection
from headrace.client.errors import NotReachable, refusal
from headrace.client.metadata import Partition, Topic, View
from headrace.client.retrying import Retries
from headrace.client.security.settings import SecurityLike
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings, secured
from headrace.errors import ErrorCode, KafkaError
from headrace.surroundings import new_random
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.wire.schema import Message

M = TypeVar("M", bound=Message)

ANY_NODE: Final = -1
"""Any node with an open connection, or the first that accepts one."""
CONTROLLER: Final = -2
"""The node that the cluster reports as its controller; any broker works since Kafka 4."""

MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REBOOTSTRAP_REQUIRED,
    }
)
"""Error codes after which the view of the cluster is stale."""

_CLOSED: Final = "this client is closed"
_MAY_STILL_COME: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)


class Cluster:
    """Connections and metadata of one cluster."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
        *,
        security: SecurityLike | None = None,
    ) -> None:
        """Take addresses; `security` is a `ClientSecurity` or settings by Kafka's names."""
        self.settings = secured(settings, security)
        self.view = View()
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._seen_at: dict[str, float] = {}
        self._lookups: dict[tuple[str, bool], asyncio.Task[Topic]] = {}
        self._random = new_random()
        self._asked_last: Address | None = None
        """The node that any node was asked for last."""
        self._doubted: Address | None = None
        """A node that is not to be asked next."""
        self._is_closed = False

    @classmethod
    def of(
        cls,
        bootstrap: "str | Sequence[str] | Cluster",
        settings: ClientSettings | None,
        security: SecurityLike | None,
    ) -> "Cluster":
        """Return a cluster that was passed in, or a new one."""
        if not isinstance(bootstrap, Cluster):
            return cls(bootstrap, settings, security=security)
        if security is not None:
            raise ValueError("the security of a connected Cluster is its own: pass it there")
        return bootstrap

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect to one node and discover the others; raise NotReachable if none responds."""
        try:
            await self._any_connection()
            if not self.view.nodes:
                await self.refresh()
        except BaseException:
            if not self.view.nodes:
                self._hang_up()  # `async with` does not close what it could not open
            raise

    async def close(self) -> None:
        """Hang up on every node."""
        self.abandon()
        await asyncio.sleep(0)  # the loop closes the sockets

    def abandon(self) -> None:
        """Hang up on every node, without waiting for the loop to close the sockets."""
        self._is_closed = True
        self._hang_up()
        for lookup in self._lookups.values():
            lookup.cancel()

    def _hang_up(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    async def connection(self, node_id: int) -> Connection:
        """Return the connection to a node, opening it if needed."""
        if node_id == ANY_NODE:
            return await self._any_connection()
        if node_id == CONTROLLER:
            if self.view.controller_id not in self.view.nodes:
                return await self._any_connection()
            node_id = self.view.controller_id
        node = self.view.nodes.get(node_id)
        if node is None:
            raise NotReachable(f"node {node_id} is not part of the cluster now")
        return await self._connect_to(node.address)

    async def reach(self, node_id: int) -> Connection:
        """Return the connection to a node, retrying while it cannot be reached.

        Up to the API timeout. Another node may be the controller by then.
        """
        retries = Retries(self.settings)
        while True:
            try:
                return await self.connection(node_id)
            except NotReachable:
                if self._is_closed or not await retries.pause():
                    raise
            self.doubt()
            await self.refresh()

    async def ask(
        self,
        body: Message,
        answer_type: type[M],
        *,
        node_id: int = ANY_NODE,
        code_of: Callable[[M], int] | None = None,
        patience_ms: int = 0,
    ) -> M:
        """Send a request to a node and return its response.

        Retried while no node can be reached or `code_of(answer)` is retriable, up to the API
        timeout. Use it for idempotent requests.
        """
        retries = Retries(self.settings)
        while True:
            answer: M | None = None
            try:
                connection = await self.connection(node_id)
                answer = await connection.request(body, answer_type, patience_ms=patience_ms)
            except NotReachable:
                if self._is_closed or not await retries.pause():
                    raise
            else:
                if not _is_retriable(code_of(answer) if code_of else 0):
                    return answer
                if not await retries.pause():
                    return answer
            self.doubt()
            if node_id != ANY_NODE:
                await self.refresh()

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        """Look nodes and leaders up again: of these topics, or of none in particular."""
        names = [MetadataRequestTopic(name=name) for name in topics or ()]
        await self._refresh(MetadataRequest(topics=names), may_create=False)

    async def list_topics(self) -> list[Topic]:
        """Return every topic that we may see, internal ones included."""
        answer = await self._refresh(MetadataRequest(topics=None), may_create=False)
        names = {row.name for row in answer.topics}
        for gone in self.view.topics.keys() - names:
            self.forget(gone)
        return [topic for name, topic in sorted(self.view.topics.items()) if name in names]

    async def topic(self, name: str, *, may_create: bool = False) -> Topic:
        """Return a topic, from the view if that is fresh; raise KafkaError if there is none.

        With `may_create` the broker may auto-create it, if configured so, and the call waits a
        little for that.
        """
        known = self.view.topics.get(name)
        if known is not None and self.is_fresh(name):
            return known
        lookup = self._lookups.get((name, may_create))
        if lookup is None:
            # Concurrent callers share one lookup.
            lookup = asyncio.create_task(self._look_up(name, may_create=may_create))
            self._lookups[name, may_create] = lookup
            lookup.add_done_callback(lambda done: self._end_lookup(done, name, may_create))
        try:
            return await asyncio.shield(lookup)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if lookup.cancelled() and not (task is not None and task.cancelling()):
                raise NotReachable(
                    _CLOSED
                ) from None  # `close` cancelled the lookup, not the caller
            raise

    def _end_lookup(self, lookup: "asyncio.Task[Topic]", name: str, may_create: bool) -> None:
        del self._lookups[name, may_create]
        if not lookup.cancelled():
            lookup.exception()  # retrieved, even if no caller waits any more

    async def _look_up(self, name: str, *, may_create: bool) -> Topic:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        retries = Retries(self.settings, self.settings.topic_wait_ms)
        while True:
            await self._refresh(request, may_create=may_create)
            known = self.view.topics.get(name)
            if known is not None:
                return known
            error = self.view.refusals.get(name) or refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, f"topic {name!r}"
            )
            is_hopeless = error.code not in _MAY_STILL_COME or not (
                may_create or error.code == ErrorCode.LEADER_NOT_AVAILABLE
            )
            if is_hopeless or not await retries.pause():
                raise _explained(error, name)

    async def leader(self, topic: str, partition: int) -> Partition:
        """Return a partition with a leader, waiting for an election up to the API timeout."""
        retries = Retries(self.settings)
        while True:
            known = await self.topic(topic)
            if not 0 <= partition < len(known.partitions):
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, "
                    f"there is no {partition}",
                )
            found = self.view.leader_of(topic, partition)
            if found is not None:
                return found
            if not await retries.pause():
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic}-{partition} has no leader"
                )
            self.suspect(topic)

    def known_leader(self, topic: str, partition: int) -> Partition | None:
        """Return a partition if its leader is known and the view is fresh."""
        return self.view.leader_of(topic, partition) if self.is_fresh(topic) else None

    def is_fresh(self, topic: str) -> bool:
        """Return whether the view of a topic is recent and no broker reported a move."""
        seen_at = self._seen_at.get(topic)
        if seen_at is None:
            return False
        age_ms = (asyncio.get_running_loop().time() - seen_at) * 1000
        return age_ms < self.settings.metadata_max_age_ms

    def forget(self, topic: str) -> None:
        """Mark a topic as stale: it may have changed."""
        self._seen_at.pop(topic, None)

    def suspect(self, topic: str) -> None:
        """Mark a topic as stale: its leader is not where the view has it. Ask another node next."""
        self.forget(topic)
        self.doubt()

    def doubt(self, node_id: int | None = None) -> None:
        """Ask another node next, if there is one: the last one may be cut off from the others.

        With `node_id` it is that node which may be.
        """
        node = None if node_id is None else self.view.nodes.get(node_id)
        self._doubted = self._asked_last if node is None else node.address

    async def _refresh(self, body: MetadataRequest, *, may_create: bool) -> MetadataResponse:
        body.allow_auto_topic_creation = may_create
        retries = Retries(self.settings)
        while True:
            try:
                connection = await self._any_connection()
                answer = await connection.request(body, MetadataResponse)
                if answer.error_code == ErrorCode.NONE and answer.brokers:
                    break
                failure = NotReachable(f"{connection.address} knows no broker of its cluster yet")
            except NotReachable as error:
                failure = error
            if self._is_closed or not self.view.nodes or not await retries.pause():
                raise failure
        self.view.learn(answer)
        now = asyncio.get_running_loop().time()
        for row in answer.topics:
            if row.name is not None:
                self._seen_at[row.name] = now
        return answer

    async def _any_connection(self) -> Connection:
        """Return an open connection, or open one: known nodes first, then the bootstrap.

        A node that the others know no more may be cut off: it is asked if no other one is there.
        """
        doubted, self._doubted = self._doubted, None
        nodes = [node.address for node in self.view.nodes.values()]
        open_ones = [
            connection
            for address, connection in self._connections.items()
            if connection.is_open and address != doubted
        ]
        open_ones = [each for each in open_ones if each.address in nodes] or open_ones
        if open_ones:
            chosen = min(open_ones, key=lambda connection: connection.in_flight)
            self._asked_last = chosen.address
            return chosen
        self._random.shuffle(nodes)
        failures: list[str] = []
        addresses = dict.fromkeys([*nodes, *self._bootstrap])
        for address in sorted(addresses, key=lambda address: address == doubted):
            try:
                connection = await self._connect_to(address)
            except NotReachable as error:
                failures.append(str(error))
            else:
                self._asked_last = address
                return connection
        raise NotReachable("; ".join(failures))

    async def _connect_to(self, address: Address) -> Connection:
        if self._is_closed:
            raise NotReachable(_CLOSED)
        known = self._connections.get(address)
        if known is not None and known.is_open:
            return known
        async with self._opening.setdefault(address, asyncio.Lock()):
            known = self._connections.get(address)
            if known is None or not known.is_open:
                known = self._connections[address] = await open_connection(address, self.settings)
            if self._is_closed:
                known.close()
        return known


def _is_retriable(code: int) -> bool:
    return code != ErrorCode.NONE and refusal(code, None, "").is_retriable


def _explained(error: KafkaError, name: str) -> KafkaError:
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(error.code, f"there is no topic {name!r}; create it first")
    return error
