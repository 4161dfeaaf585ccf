"""Accepting connections of nodes under TLS: counted from the first byte, bounded in time.

For the loop a connection under TLS exists only after its handshake, so connections are accepted
here. A node that speaks in plain text is told why it is not let in, in its own words; of all others
that do not begin with TLS, nothing is read.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from headrace.cluster.transport.connection import NodeConnection
from headrace.cluster.transport.crowd import Crowd
from headrace.cluster.transport.handshake import encode_refusal
from headrace.cluster.transport.hello import MAGIC, OPERATOR, Hello, take_word
from headrace.cluster.transport.refusals import (
    TIMED_OUT,
    TLS_EXPECTED,
    TOO_MANY_CONNECTIONS,
    Refused,
    tls_failed,
)
from headrace.cluster.transport.settings import TransportSettings
from headrace.cluster.transport.tls import LinkTls, explain_tls, hang_up

BACKLOG: Final = 100
ACCEPTED_AT_ONCE_MAX: Final = 16
PAUSE_SECONDS: Final = 0.2
"""How long nothing is accepted after the system had no more descriptors."""
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TLS_HANDSHAKE: Final = b"\x16"
_PLAIN_BYTES_MAX: Final = 8192

logger = logging.getLogger(__name__)


class TlsAcceptor:
    """Accepts the connections of one address."""

    def __init__(
        self,
        tls: LinkTls,
        settings: TransportSettings,
        accept: Callable[[], NodeConnection],
        on_refused: Callable[[str, Refused], None],
    ) -> None:
        self._tls = tls
        self._settings = settings
        self._accept_one = accept
        self._on_refused = on_refused
        self._socket: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._crowd: Crowd[asyncio.Task[None]] = Crowd(settings.unproven_connections_max)
        """The handshakes that were not told to end."""

    def open(self, host: str, port: int) -> int:
        """Listen; return the port. OSError if the address cannot be had."""
        listening = self._socket = _bind(host, port)
        self._listen(True)
        return int(listening.getsockname()[1])

    def close(self) -> None:
        """Accept no more connections, and end those that are not through their handshake."""
        for task in self._handshakes:
            task.cancel()
        if self._pause is not None:
            self._pause.cancel()
        if self._socket is not None:
            if self._socket.fileno() >= 0:
                self._listen(False)
            self._socket.close()

    def _accept(self) -> None:
        """Accept what has come; at the call of the loop, so that no cancellation loses a socket."""
        assert self._socket is not None
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    logger.error("no connection of a node can be accepted: %s", error.strerror)
                    self._listen(False)
                    loop = asyncio.get_running_loop()
                    self._pause = loop.call_later(PAUSE_SECONDS, self._listen, True)
                return
            accepted.setblocking(False)
            self._begin(accepted, f"{address[0]}:{address[1]}")

    def _listen(self, is_listening: bool) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        if is_listening:
            loop.add_reader(self._socket.fileno(), self._accept)
        else:
            loop.remove_reader(self._socket.fileno())

    def _begin(self, accepted: socket.socket, where: str) -> None:
        handshake = asyncio.get_running_loop().create_task(self._shake_hands(accepted, where))
        self._handshakes.add(handshake)
        handshake.add_done_callback(partial(self._ended, accepted))
        leaving = self._crowd.add(handshake, where)
        if leaving is not None:
            leaving[0].cancel()
            self._on_refused(leaving[1], TOO_MANY_CONNECTIONS)

    async def _shake_hands(self, accepted: socket.socket, where: str) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._settings.handshake_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                if not await self._begins_with_tls(accepted, where):
                    accepted.close()
                    return
                await loop.connect_accepted_socket(
                    self._accept_one,
                    accepted,
                    ssl=self._tls.server_context(),
                    ssl_handshake_timeout=seconds,
                )
        except TimeoutError:
            accepted.close()
            self._on_refused(where, TIMED_OUT)
        except OSError as error:
            with contextlib.suppress(OSError):
                accepted.close()
            is_worth_it = isinstance(error, ssl.SSLError)  # else it has hung up
            if is_worth_it:
                self._on_refused(where, tls_failed(explain_tls(error)))
        except asyncio.CancelledError:
            await hang_up(accepted)
            raise

    def _ended(self, accepted: socket.socket, handshake: "asyncio.Task[None]") -> None:
        self._handshakes.discard(handshake)
        self._crowd.discard(handshake)
        if handshake.cancelled():  # perhaps before it began
            accepted.close()

    async def _begins_with_tls(self, accepted: socket.socket, where: str) -> bool:
        first = await _peek(accepted)
        if first == _TLS_HANDSHAKE:
            return True
        is_operator = False
        if first == MAGIC[:1]:
            with contextlib.suppress(OSError):
                is_operator = _is_of_operator(accepted.recv(_PLAIN_BYTES_MAX))
                accepted.send(encode_refusal(TLS_EXPECTED))
                accepted.shutdown(socket.SHUT_WR)
        if first and not is_operator:
            self._on_refused(where, TLS_EXPECTED)
        return False


async def _peek(accepted: socket.socket) -> bytes:
    """Return the first byte that comes, and leave it where it is; nothing at the end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            readable = loop.create_future()
        loop.add_reader(accepted.fileno(), _settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(accepted.fileno())


def _is_of_operator(said: bytes) -> bool:
    """Return whether an operator's program has asked how this node speaks: nothing to worry of."""
    word = take_word(bytearray(said))
    return isinstance(word, tuple) and isinstance(word[0], Hello) and word[0].node == OPERATOR


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that has an address; OSError if it cannot be had."""
    found = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
