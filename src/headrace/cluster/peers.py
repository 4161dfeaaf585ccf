"""Connections to the other brokers of the cluster, which speak Kafka's protocol.

    states = peers.line("states")                 # one line for each purpose
    response = await states.send(node_id, request)

Requests of one connection are answered in their order, so what may wait long must not share one
with what must not: each purpose has a line, and a line has one connection to each broker, opened on
demand. A broker is reached at the address that it registered last; what is in flight to a former
registration fails. After a failure there is a pause, during which requests fail at once: callers
retry, and a broker that is gone must not cost a connection attempt each time.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from headrace import config
from headrace.client.addresses import Address
from headrace.client.connection import Connection, open_connection
from headrace.client.errors import NotReachable, UnsupportedApi
from headrace.client.security.settings import PLAINTEXT, ClientSecurity
from headrace.client.settings import ClientSettings
from headrace.config import AnySettings
from headrace.errors import KafkaError
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.surroundings import new_random
from headrace.wire import APIS, ApiKey
from headrace.wire.schema import Message

REQUESTS_MAX: Final = 1000
"""The most pending requests of one line to one broker."""
FIRST_PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
"""How long a broker that could not be reached is left alone; doubled with each failure."""


class _Registration(NamedTuple):
    """Where a broker is, and since which registration."""

    address: Address
    broker_epoch: int
    folders: tuple[bytes, ...]
    """The ids of its data folders, one of which its certificate names."""


class BrokerPeers:
    """Lines to the brokers of the image."""

    def __init__(
        self,
        settings: AnySettings,
        image_of: Callable[[], Image],
        *,
        listener: str | None = None,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """`listener` is for nodes only; without one, any listener will do."""
        self._is_for_nodes = listener is not None
        self._listener: str = listener or settings[config.INTER_BROKER_LISTENER_NAME] or ""
        self._security = security
        self._client_id = f"headrace-node-{settings[config.NODE_ID]}"
        self._request_timeout_ms: int = settings[config.REQUEST_TIMEOUT_MS]
        self._image_of = image_of
        self._lines: dict[str, PeerLine] = {}
        self.on_close: list[Callable[[], None]] = []
        """Ends the work of those who send, before the connections close."""
        self._unreachable: frozenset[BrokerId] = frozenset()

    def line(
        self,
        purpose: str,
        *,
        request_timeout_ms: int | None = None,
        receive_buffer_bytes: int = -1,
    ) -> "PeerLine":
        """Return the line for a purpose, with connections of its own.

        Who asks first decides how long responses may take, request.timeout.ms if it does not say,
        and about the kernel's receive buffers, which the kernel does if they are -1.
        """
        found = self._lines.get(purpose)
        if found is None:
            client = ClientSettings(
                client_id=f"{self._client_id}-{purpose}",
                request_timeout_ms=request_timeout_ms or self._request_timeout_ms,
                receive_buffer_bytes=receive_buffer_bytes,
                security=self._security,
            )
            found = self._lines[purpose] = PeerLine(client, self._registration)
        return found

    def refresh(self) -> None:
        """Close connections to brokers that are fenced, gone, or registered anew.

        Call it when a broker's registration changed: requests in flight fail then, and their
        callers look for another broker without waiting for a timeout.
        """
        for line in self._lines.values():
            line.refresh()

    def cut(self, nodes: Iterable[BrokerId]) -> None:
        """Behave as if the network to these brokers, and no others, was cut: for tests."""
        self._unreachable = frozenset(nodes)
        self.refresh()

    def close(self) -> None:
        """Close all connections; pending requests fail with NotReachable, and so do later ones."""
        for end_work in self.on_close:
            end_work()
        for line in self._lines.values():
            line.close()

    def _registration(self, node_id: BrokerId) -> _Registration:
        """Return where a broker is; raise NotReachable if it is not up."""
        broker = self._image_of().broker(node_id)
        is_up = broker is not None and not broker.is_fenced and node_id not in self._unreachable
        if broker is None or not is_up or not broker.endpoints:
            raise NotReachable(f"node {node_id} is not up")
        named = [each for each in broker.endpoints if each.listener == self._listener]
        if not named and self._is_for_nodes:
            raise NotReachable(
                f"node {node_id} has no listener {self._listener}: are its settings of listeners "
                "and authorizer those of this node?"
            )
        endpoint = (named or broker.endpoints)[0]
        address = Address(endpoint.host, endpoint.port)
        return _Registration(address, broker.broker_epoch, tuple(broker.log_dirs))


class PeerLine:
    """One connection to each broker (`headrace.share.persister.Peers`)."""

    def __init__(
        self, client: ClientSettings, registration_of: Callable[[BrokerId], _Registration]
    ) -> None:
        self._client = client
        self._registration_of = registration_of
        self._peers: dict[BrokerId, _Peer] = {}
        self._is_closed = False

    async def send(self, node_id: BrokerId, request: Message, *, version_min: int = 0) -> Any:
        """Send a request and return its response.

        Raise NotReachable without a response, UnsupportedApi if the broker does not know the
        request in `version_min` or above.
        """
        peer = self._peer(node_id)
        if peer.pending_count >= REQUESTS_MAX:
            raise NotReachable(f"{peer.name} already has {REQUESTS_MAX} requests to respond to")
        peer.pending_count += 1
        try:
            return await peer.ask(request, version_min)
        finally:
            peer.pending_count -= 1

    def refresh(self) -> None:
        """Close connections to brokers that are fenced, gone, or registered anew."""
        for node_id in tuple(self._peers):
            try:
                self._peer(node_id)
            except NotReachable:
                self._peers.pop(node_id).close()

    def close(self) -> None:
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()

    def _peer(self, node_id: BrokerId) -> "_Peer":
        if self._is_closed:
            raise NotReachable("this node stops")
        registration = self._registration_of(node_id)
        peer = self._peers.get(node_id)
        if peer is None or peer.registration != registration:
            if peer is not None:
                peer.close()
            peer = self._peers[node_id] = _Peer(node_id, registration, self._client)
        return peer


class _Peer:
    """One registration of a broker, and the connection to it."""

    def __init__(
        self, node_id: BrokerId, registration: _Registration, client: ClientSettings
    ) -> None:
        self.name = f"node {node_id} at {registration.address}"
        self._node_id = node_id
        self.registration = registration
        self.pending_count = 0
        self._client = client
        self._opening: asyncio.Task[Connection] | None = None
        self._failure_count = 0
        self._failure = ""
        self._retry_at = 0.0
        """Before this time, in loop time, requests fail at once."""
        self._random = new_random()

    async def ask(self, request: Message, version_min: int) -> Any:
        opening = self._connect()
        try:
            connection = await self._opened(opening)
            key = ApiKey(request.API_KEY)
            if connection.version_of(key) < version_min:
                raise UnsupportedApi(
                    f"{self.name} does not serve {APIS[key].name} v{version_min} or newer"
                )
            response = await connection.request(request, APIS[key].response)
        except NotReachable as error:
            self._on_failed(opening, error)
            raise
        self._failure_count = 0
        return response

    def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is None or opening.cancel() or _is_failed(opening):
            return
        opening.result().close()

    def _connect(self) -> "asyncio.Task[Connection]":
        opening = self._opening
        if opening is not None and (not opening.done() or _is_open(opening)):
            return opening
        loop = asyncio.get_running_loop()
        if loop.time() < self._retry_at:
            raise NotReachable(self._failure)
        opening = self._opening = loop.create_task(self._open())
        opening.add_done_callback(_is_failed)  # its waiters may all be cancelled
        return opening

    async def _open(self) -> Connection:
        try:
            connection = await open_connection(self.registration.address, self._client)
        except KafkaError as error:
            raise NotReachable(f"{self.name} refuses the connection: {error}") from error
        tls = self._client.security.tls
        if tls is not None and tls.context is not None and not self._is_meant(connection):
            connection.close()
            raise NotReachable(f"{self.name} has the certificate of another node")
        return connection

    def _is_meant(self, connection: Connection) -> bool:
        """Return whether the certificate at the other end is for the node that is registered."""
        from headrace.security.node_certificates import node_of  # noqa: PLC0415  under TLS only

        name = node_of(connection.certificate)
        return (
            name is not None
            and name.node == self._node_id
            and name.folder_id in self.registration.folders
        )

    async def _opened(self, opening: "asyncio.Task[Connection]") -> Connection:
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and not (task and task.cancelling()):
                raise NotReachable(f"the connection to {self.name} was closed here") from None
            raise

    def _on_failed(self, opening: "asyncio.Task[Connection]", error: NotReachable) -> None:
        """Leave the broker alone for a while; counted once for a connection."""
        if opening is not self._opening:
            return
        self._opening = None
        self._failure = str(error)
        self._failure_count += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failure_count - 1, 10), PAUSE_SECONDS_MAX)
        pause *= self._random.uniform(0.5, 1.0)
        self._retry_at = asyncio.get_running_loop().time() + pause


def _is_failed(opening: "asyncio.Task[Connection]") -> bool:
    return opening.cancelled() or opening.exception() is not None


def _is_open(opening: "asyncio.Task[Connection]") -> bool:
    return not _is_failed(opening) and opening.result().is_open
