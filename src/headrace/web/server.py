"""The HTTP port of a node, on the node's own loop.

    web = WebServer(node)
    port = await web.start()    # 0 if http.listen is empty
    await web.stop()

uvicorn's protocol speaks HTTP, starlette routes. Both load in a thread when the first connection
comes, which costs about 150 ms once: a node's start does not wait for it, and its loop does not
stand still. uvicorn's own server, with its signal handlers and its main loop, is not used.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from headrace import config
from headrace.broker.listeners import Address, CannotListen, Listener

if TYPE_CHECKING:
    from headrace.broker.node import Node

REQUEST_START_BYTES_MAX: Final = 64 * 1024
"""How much of a request is kept until the libraries are loaded; no page needs more."""
CONNECTIONS_MAX: Final = 64
"""How many may be open at once; more are closed at once, so that pages never crowd out clients."""

SILENCE_SECONDS_MAX: Final = 30
"""How long a connection may say nothing."""

Opener = Callable[[], asyncio.Protocol]


class WebServer:
    """The pages of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._listener: Listener | None = None
        self._transports: set[asyncio.Transport] = set()
        self._opener: asyncio.Future[Opener] | None = None

    async def start(self) -> int:
        """Listen at http.listen; give the port, or 0 if there are to be no pages."""
        text = self._node.settings[config.HTTP_LISTEN]
        if not text:
            return 0
        host, _, port = text.rpartition(":")
        self._listener = Listener(
            Address("http.listen", host.strip("[]"), int(port)), self._node.settings
        )
        await self._listener.serve(lambda: _Doorstep(self))
        return self._listener.port

    async def stop(self) -> None:
        """Take no more requests, and end those that are there."""
        if self._listener is not None:
            self._listener.close()
        for transport in tuple(self._transports):
            transport.abort()

    def admit(self, transport: asyncio.Transport) -> bool:
        """Take note of a connection; say whether it may stay."""
        if len(self._transports) >= CONNECTIONS_MAX:
            return False
        self._transports.add(transport)
        return True

    def forget(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)

    async def open_protocol(self) -> asyncio.Protocol:
        """Give what speaks HTTP on a connection."""
        if self._opener is None:
            loop = asyncio.get_running_loop()
            self._opener = loop.run_in_executor(None, _load, self._node)
        return (await asyncio.shield(self._opener))()


class _Doorstep(asyncio.Protocol):
    """A connection: at first until uvicorn is loaded, then what hands everything on to it."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._start = bytearray()
        self._protocol: asyncio.Protocol | None = None
        self._entering: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._server.admit(self._transport):
            self._entering = asyncio.get_running_loop().create_task(self._enter())
            self._listen()
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._listen()
        if self._protocol is not None:
            self._protocol.data_received(data)
            return
        self._start += data
        if len(self._start) > REQUEST_START_BYTES_MAX:
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._protocol is not None else None

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self._transport)
        if self._silence is not None:
            self._silence.cancel()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def _listen(self) -> None:
        """Wait for more, but not for ever."""
        if self._silence is not None:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(SILENCE_SECONDS_MAX, self._transport.abort)

    async def _enter(self) -> None:
        protocol = await self._server.open_protocol()
        if self._transport.is_closing():
            return
        protocol.connection_made(self._transport)
        self._protocol = protocol
        if self._start:
            protocol.data_received(bytes(self._start))
            self._start.clear()


def _load(node: "Node") -> Opener:
    """Import the libraries and give a factory of protocols. Runs in a thread."""
    # Here and not above: together they take longer to import than a node takes to start.
    from uvicorn.config import Config  # noqa: PLC0415
    from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415
    from uvicorn.server import ServerState  # noqa: PLC0415

    from headrace.web.pages import application  # noqa: PLC0415

    settings = Config(
        application(node),
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

    def open_protocol() -> asyncio.Protocol:
        return H11Protocol(settings, server_state=state, app_state=app_state)

    return open_protocol


__all__ = ["CannotListen", "WebServer"]
