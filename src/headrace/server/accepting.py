"""Accepting connections of a listener with TLS: counted from the first byte, bounded in time.

A TLS connection exists for the loop only after its handshake. Until then a client could open as
many as it likes, so they are accepted here, counted by `Traffic` like any other, and the handshake
has a limit in time. Each takes the context that holds when it begins, so a new certificate needs no
restart.

A handshake begins when the client's first message is there as a whole, since that is what costs
time, and only a few begin in one turn of the loop.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from headrace.server.connection import plain_host
from headrace.server.secured import ListenerSecurity
from headrace.server.traffic import Traffic

ACCEPTED_AT_ONCE_MAX: Final = 16
PAUSE_SECONDS: Final = 0.2
"""How long nothing is accepted after the system had no more descriptors."""
BEGINNINGS_MAX: Final = 8
"""How many handshakes begin in one turn of the loop; each costs up to a millisecond."""
_RECORD_HEADER_BYTES: Final = 5
_HEADER_BYTES: Final = _RECORD_HEADER_BYTES + 4
"""The headers of a record and of the message in it: both say how long they are."""
_HANDSHAKE: Final = 22
"""The type of the records of a handshake."""
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NOT_TLS: Final = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE")

logger = logging.getLogger(__name__)


class Accepted(Protocol):
    """A connection, once its handshake is done: an asyncio protocol with this beside."""

    release: Callable[[], None]
    """Gives back what was reserved for it when it was accepted."""
    is_paced: bool
    """Whether it has waited for its turn already."""


class TlsAcceptor:
    """Accepts the connections of one bound socket."""

    def __init__(
        self,
        listening: socket.socket,
        security: ListenerSecurity,
        traffic: Traffic,
        connect: Callable[[], Accepted],
    ) -> None:
        self._socket = listening
        self._security = security
        self._traffic = traffic
        self._connect = connect
        self._is_open = False
        self._pause: asyncio.TimerHandle | None = None
        self._waiting: socket.socket | None = None
        """A connection that was accepted too early; nothing is accepted meanwhile."""
        self._handshakes: dict[_Handshake, None] = {}
        self._beginnings = Beginnings()

    def start(self, backlog: int) -> None:
        self._socket.listen(backlog)
        self._socket.setblocking(False)
        self._listen(True)
        self._is_open = True

    def close(self) -> None:
        """Accept no more connections, and end those that are not through their handshake.

        The socket is to be open still: a loop does not forget one that was closed before.
        """
        if self._pause is not None:
            self._pause.cancel()
        if self._waiting is not None:
            self._waiting.close()
        if self._is_open:
            self._is_open = False
            self._listen(False)
        for handshake in tuple(self._handshakes):
            handshake.close("the node stops")

    def _accept(self) -> None:
        """Accept what has come; at the call of the loop, so that no cancellation loses a socket."""
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = self._socket.accept()
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    logger.error("no connection can be accepted: %s", error.strerror)
                    self._listen(False)
                    loop = asyncio.get_running_loop()
                    self._pause = loop.call_later(PAUSE_SECONDS, self._listen, True)
                return  # nothing is left, or the client is gone already
            accepted.setblocking(False)
            host = plain_host(str(address[0]))
            if self._waits(accepted, host):
                return
            self._begin(accepted, host)

    def _listen(self, is_listening: bool) -> None:
        loop = asyncio.get_running_loop()
        if is_listening:
            loop.add_reader(self._socket.fileno(), self._accept)
        else:
            loop.remove_reader(self._socket.fileno())

    def _waits(self, accepted: socket.socket, host: str) -> bool:
        """Return whether a connection has to wait; nothing is accepted until it is its turn."""
        pace = self._traffic.pace
        wait_ms = 0 if pace is None else pace.wait_ms(self._security.name)
        if wait_ms:
            self._listen(False)
            self._waiting = accepted
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(wait_ms / 1000, self._go_on, host)
        return wait_ms > 0

    def _go_on(self, host: str) -> None:
        accepted, self._waiting = self._waiting, None
        assert accepted is not None
        self._listen(True)
        self._begin(accepted, host)

    def _begin(self, accepted: socket.socket, host: str) -> None:
        pace = self._traffic.pace
        if pace is not None and pace.refuse(self._security.name, host, accepted):
            return
        if (refusal := self._traffic.reserve(host)) is not None:
            logger.warning("connection from %s refused: %s", host, refusal)
            accepted.close()
            return
        handshake = _Handshake(
            *(self._security, self._traffic, self._connect, host), beginnings=self._beginnings
        )
        self._handshakes[handshake] = None
        handshake.task = asyncio.get_running_loop().create_task(handshake.run(accepted))
        handshake.task.add_done_callback(partial(self._ended, handshake, accepted))
        self._traffic.begin_handshake(handshake)

    def _ended(
        self, handshake: "_Handshake", accepted: socket.socket, task: "asyncio.Task[None]"
    ) -> None:
        self._handshakes.pop(handshake, None)
        if task.cancelled():  # before it began; else it has closed what it had
            accepted.close()
            handshake.release()


class _Handshake:
    """One connection until its handshake is done."""

    def __init__(
        self,
        security: ListenerSecurity,
        traffic: Traffic,
        connect: Callable[[], Accepted],
        host: str,
        *,
        beginnings: "Beginnings",
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._beginnings = beginnings
        self._security = security
        self._traffic = traffic
        self._connect = connect
        self.host = host
        self._is_reserved = True

    def close(self, reason: str) -> None:
        logger.info("connection from %s closed: %s", self.host, reason)
        if self.task is not None:
            self.task.cancel()

    async def run(self, accepted: socket.socket) -> None:
        security = self._security
        assert security.context is not None
        connection = self._connect()
        connection.release = self.release
        connection.is_paced = True
        loop = asyncio.get_running_loop()
        ends = loop.time() + security.timeout_ms / 1000
        try:
            async with asyncio.timeout_at(ends):
                await hello_of(accepted)
                await self._beginnings.wait()
            await loop.connect_accepted_socket(
                lambda: cast(asyncio.BaseProtocol, connection),
                accepted,
                ssl=security.context(),
                ssl_handshake_timeout=max(ends - loop.time(), 0.001),
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            self._traffic.counters.handshakes_failed += 1
            if not isinstance(error, asyncio.CancelledError):
                logger.info("connection from %s closed: %s", self.host, _explain(error))
            with contextlib.suppress(OSError):
                accepted.close()
        except BaseException:  # a loop that ends in the middle
            accepted.close()
            raise
        finally:
            self.release()

    def release(self) -> None:
        """Count this no more: from here on the connection is counted, or there is none."""
        if self._is_reserved:
            self._is_reserved = False
            self._traffic.release(self.host)
            self._traffic.end_handshake(self)


class Beginnings:
    """Hands out the beginnings of handshakes, a few in each turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self) -> "asyncio.Future[None]":
        """Return a future that is done when it is the caller's turn."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._hand_out)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        return turn

    def _hand_out(self) -> None:
        left = BEGINNINGS_MAX
        while self._waiting and left:
            turn = self._waiting.popleft()
            if not turn.done():  # else its client was closed
                turn.set_result(None)
                left -= 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._hand_out)


async def hello_of(accepted: socket.socket) -> None:
    """Return when the first record of TLS has arrived, or what is none; nothing of it is read.

    The kernel wakes nobody for less, so bytes that come one by one cost nothing here.
    """
    start = await _peek(accepted, _HEADER_BYTES)
    if len(start) == _HEADER_BYTES and start[0] == _HANDSHAKE:
        record_bytes, message_bytes = int.from_bytes(start[3:5]), int.from_bytes(start[6:9])
        if message_bytes + 4 > record_bytes:
            raise ssl.SSLError(1, "the first message of TLS is in several records")
        await _peek(accepted, _RECORD_HEADER_BYTES + record_bytes)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _peek(accepted: socket.socket, count: int) -> bytes:
    """Return so many bytes, fewer only if there are no more, and leave them there."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    while True:
        await _readable(accepted)
        try:
            return accepted.recv(count, socket.MSG_PEEK)
        except BlockingIOError:
            continue


async def _readable(accepted: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, on_readable)
    try:
        await readable
    finally:
        loop.remove_reader(accepted)


def _explain(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error) or type(error).__name__
    hint = "; does the client use TLS?" if reason in _NOT_TLS else ""
    return f"the TLS handshake failed: {reason}{hint}"
