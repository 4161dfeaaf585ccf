"""The HTTP port of a node, on the node's own loop.

    web = WebServer(node)
    port = await web.start()    # 0 if http.listen is empty
    await web.stop()

uvicorn's protocol speaks HTTP, starlette routes. Both load in a thread with the first connection,
which costs about 150 ms once: a node's startup does not wait for it, and its loop does not stall.
uvicorn's own server, with its signal handlers and its main loop, is not used.

With headrace.http.security.protocol=SSL a connection begins with the handshake of TLS; who may read
what is in `web.access`.

No client can occupy the port. A connection has a deadline to send a request and another to read the
response, however many bytes it transfers in the meantime. When there are too many connections, a
new one replaces the one that has been waited for longest.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace import config
from headrace.config.security_checks import ClientListener, pages_listener
from headrace.security.certificate_names import NoRuleApplies, parse_rules, principal_of
from headrace.security.certificates import Certificates
from headrace.security.principals import ANONYMOUS
from headrace.server.connection import plain_host
from headrace.server.listeners import Address, CannotListen, Listener
from headrace.server.secured import ListenerSecurity
from headrace.server.traffic import Traffic

if TYPE_CHECKING:
    from headrace.node.node import Node

REQUEST_START_BYTES_MAX: Final = 64 * 1024
"""How much of a request is buffered until the libraries are loaded; no page needs more."""
CONNECTIONS_MAX: Final = 64
"""The most open connections, so that pages never crowd out Kafka clients."""

logger = logging.getLogger(__name__)


class Phase(Enum):
    """What a connection waits for; those that wait for the client are closed first."""

    PROVING = -1
    """For its password to be checked."""
    ASKING = 0
    """For a complete request."""
    SENDING = 1
    """For the client to read a response."""
    ANSWERING = 2
    """For a page."""


SECONDS_MAX: Final = {
    Phase.PROVING: 30.0,
    Phase.ASKING: 10.0,
    Phase.SENDING: 30.0,
    Phase.ANSWERING: 60.0,
}
"""The longest duration of each phase."""
CHECK_SECONDS: Final = 0.5


class HttpProtocol(Protocol):
    """The parts of uvicorn's protocol that are used."""

    app: Any
    conn: Any
    cycle: Any

    def connection_made(self, transport: asyncio.Transport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


Opener = Callable[["_Doorstep"], HttpProtocol]
"""Makes the protocol of a connection."""


class WebServer:
    """The pages of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._listener: Listener | None = None
        self._connections: dict[_Doorstep, None] = {}
        self._opener: asyncio.Future[Opener] | None = None
        self._certificates: Certificates | None = None
        self.security: ListenerSecurity | None = None
        """How connections are protected, if they use TLS."""

    async def start(self) -> int:
        """Listen at http.listen; return the port, or 0 if http.listen is empty.

        CannotListen, or InvalidSetting if its certificate cannot be used.
        """
        node = self._node
        found = pages_listener(node.settings)
        if found is None:
            return 0
        host, _, port = node.settings[config.HTTP_LISTEN].rpartition(":")
        if found.is_secured:
            loop = asyncio.get_running_loop()
            self.security = await loop.run_in_executor(None, self._protect, found)
        option = "--set http.listen=HOST:PORT"
        self._listener = Listener(
            Address("http.listen", found.host, int(port), option), node.settings
        )
        if self.security is None:
            await self._listener.serve(lambda: _Doorstep(self))
        else:
            traffic = Traffic(node.counters, request_bytes_max=0, requests_max=0)
            traffic.handshakes_max = CONNECTIONS_MAX
            self._listener.serve_tls(self.security, traffic, lambda: _Doorstep(self))
            assert self._certificates is not None
            self._certificates.start()
        listening = f"{host}:{self._listener.port}"  # what DescribeConfigs returns
        node.live_settings.note_listening(config.HTTP_LISTEN, listening)
        return self._listener.port

    def _protect(self, listener: ClientListener) -> ListenerSecurity:
        """Read the certificate of the pages. Runs in a thread."""
        node, name = self._node, listener.name
        certificates = Certificates(node.settings, [name], node.clock.now_ms)
        rules = parse_rules(node.settings.for_listener(name, config.SSL_PRINCIPAL_MAPPING_RULES))
        self._certificates = certificates
        return ListenerSecurity(
            name,
            listener.protocol,
            node.settings[config.AUTHENTICATION_TIMEOUT_MS],
            node.clock.now_ms,
            rules=rules,
            context=lambda: certificates.context(name),
        )

    async def stop(self) -> None:
        """Accept no more requests, and abort those in progress."""
        if self._certificates is not None:
            self._certificates.stop()
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.abort("the node stops")

    def admit(self, connection: "_Doorstep") -> None:
        """Accept a connection; if there are too many, close another one for it."""
        if len(self._connections) >= CONNECTIONS_MAX:
            longest = min(self._connections, key=lambda each: each.rank())
            longest.abort("another connection replaces it")
            self.forget(longest)
        self._connections[connection] = None

    def forget(self, connection: "_Doorstep") -> None:
        self._connections.pop(connection, None)

    async def open_protocol(self, connection: "_Doorstep") -> HttpProtocol:
        """Return a new HTTP protocol for a connection."""
        if self._opener is None:
            loop = asyncio.get_running_loop()
            self._opener = loop.run_in_executor(None, _load, self._node, self._certificates)
        return (await asyncio.shield(self._opener))(connection)


class _Doorstep(asyncio.Protocol):
    """A connection: buffers until uvicorn is loaded, then forwards everything to it."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self.release: Callable[[], None] = lambda: None
        """Gives back what was reserved for the connection when it was accepted."""
        self.is_paced = True
        self.principal = ANONYMOUS
        self.address = ""
        self.is_proving = False
        """Whether its password is being checked."""
        self._transport: asyncio.Transport
        self._start = bytearray()
        self._protocol: HttpProtocol | None = None
        self._entering: asyncio.Task[None] | None = None
        self._checking: asyncio.TimerHandle | None = None
        self._phase: tuple[Phase, object] = (Phase.ASKING, None)
        """The current phase, and in which request and response."""
        self._since = 0.0

    @property
    def is_gone(self) -> bool:
        return self._transport.is_closing()

    # What the server calls

    def rank(self) -> tuple[int, float]:
        """Return the sort key by which connections are closed when there are too many."""
        self._look()
        return self._phase[0].value, self._since

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        if not self._transport.is_closing() or self._transport.get_write_buffer_size():
            peer = self._transport.get_extra_info("peername")
            logger.info("HTTP connection from %s closed: %s", peer, reason)
        self._transport.abort()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.release()
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = f"{plain_host(peer[0])}:{peer[1]}" if peer else ""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        self._server.admit(self)
        self._entering = loop.create_task(self._enter())
        self._check()

    def data_received(self, data: bytes) -> None:
        if self._protocol is not None:
            self._hand_on(data)
            self._look()
            return
        self._start += data
        if len(self._start) > REQUEST_START_BYTES_MAX:
            self.abort("its first request is too large")

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._protocol is not None else None

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        if self._checking is not None:
            self._checking.cancel()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    # Deadlines

    def _look(self) -> None:
        """Determine the current phase; a new phase restarts the clock."""
        phase = self._current_phase()
        if phase != self._phase:
            self._phase = phase
            self._since = asyncio.get_running_loop().time()

    def _current_phase(self) -> tuple[Phase, object]:
        cycle = None if self._protocol is None else self._protocol.cycle
        if self._transport.get_write_buffer_size():
            return Phase.SENDING, cycle
        if self.is_proving:
            return Phase.PROVING, cycle
        if cycle is not None and not cycle.response_complete:
            return Phase.ANSWERING, cycle
        return Phase.ASKING, cycle

    def _check(self) -> None:
        """Close the connection if its phase is overdue, else check again soon."""
        self._look()
        loop = asyncio.get_running_loop()
        phase = self._phase[0]
        if loop.time() - self._since > SECONDS_MAX[phase]:
            self.abort(f"{phase.name.lower()} took longer than {SECONDS_MAX[phase]:.0f} s")
        else:
            self._checking = loop.call_later(CHECK_SECONDS, self._check)

    async def _enter(self) -> None:
        try:
            self.principal = self._principal()
        except (NoRuleApplies, ValueError) as error:
            self.abort(f"its certificate names no user: {error}")
            return
        protocol = await self._server.open_protocol(self)
        if self._transport.is_closing():
            return
        protocol.connection_made(self._transport)
        self._protocol = protocol
        if self._start:
            self._hand_on(bytes(self._start))
            self._start.clear()

    def _principal(self) -> str:
        """Return whom the client's certificate names, or that nobody is named."""
        security = self._server.security
        tls = self._transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if security is None or certificate is None:
            return ANONYMOUS
        return principal_of(certificate, security.rules)

    def _hand_on(self, data: bytes) -> None:
        assert self._protocol is not None
        try:
            self._protocol.data_received(data)
        except Exception as error:
            # Such as junk after a request in progress, which cannot be refused with a response.
            self.abort(f"invalid HTTP: {error!r}")


def _load(node: "Node", certificates: Certificates | None) -> Opener:
    """Import the libraries and return a protocol factory. Runs in a thread."""
    # Here and not above: together they take longer to import than a node takes to start.
    from uvicorn.config import Config  # noqa: PLC0415
    from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415
    from uvicorn.server import ServerState  # noqa: PLC0415

    from headrace.web.access import Access  # noqa: PLC0415
    from headrace.web.pages import application  # noqa: PLC0415

    access, pages = Access(node), application(node, certificates)
    settings = Config(
        pages,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    settings.load()
    state = ServerState()
    app_state: dict[str, Any] = {}

    def open_protocol(connection: _Doorstep) -> HttpProtocol:
        protocol = H11Protocol(settings, server_state=state, app_state=app_state)
        protocol.app = access.guard(pages, connection)
        return protocol

    return open_protocol


__all__ = ["CannotListen", "WebServer"]
