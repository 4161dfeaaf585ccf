"""Making connections wait, and closing those of addresses that make too many (KIP-612).

A listener that is too fast goes on with one connection after the other, each when it may; what
waits is connected, and nothing is read from it; its time to authenticate begins with its turn. A
connection of an address that is too fast is not served: it is closed after the time for which that
address should have waited, so that a client which tries again at once is slowed down.

`security.quotas.connections` decides. A node without such limits has no pace.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.loop.counters import Counters
from headrace.security.quotas.connections import ConnectionRates

if TYPE_CHECKING:
    from headrace.server.connection import Connection

WAITING_MAX: Final = 1000
"""How many connections of a listener wait to be served; more are closed at once."""
CLOSING_MAX: Final = 1000
"""How many connections wait to be closed; more are closed at once."""

logger = logging.getLogger(__name__)


class ConnectionPace:
    """How fast the connections of a node are made."""

    def __init__(
        self,
        rates: ConnectionRates,
        counters: Counters,
        now_ms: Callable[[], int],
        exempt_listeners: frozenset[str],
    ) -> None:
        """`exempt_listeners` are those for nodes only."""
        self._rates = rates
        self._counts = counters.quotas
        self._now_ms = now_ms
        self._exempt = exempt_listeners
        self._lines: dict[str, deque[Connection]] = {}
        """By listener: connections that wait, the next one first."""
        self._closing = 0

    def take(self, connection: "Connection") -> None:
        """Serve a new connection now or later, or refuse it."""
        if connection.listener in self._exempt or connection.is_paced:
            return
        line = self._lines.get(connection.listener)
        if line:
            if len(line) >= WAITING_MAX:
                connection.close(f"{WAITING_MAX} others wait (max.connection.creation.rate)")
                return
            connection.hold()
            line.append(connection)
            return
        wait_ms = self._accept(connection.listener)
        if wait_ms:
            connection.hold()
            line = self._lines[connection.listener] = deque([connection])
            self._go_on_later(connection.listener, wait_ms)
        else:
            self._admit(connection)

    def wait_ms(self, listener: str) -> int:
        """Return how long a connection that a listener has just accepted has to wait."""
        return 0 if listener in self._exempt else self._accept(listener)

    def refuse(self, listener: str, host: str, accepted: socket.socket) -> bool:
        """Return whether a connection is not to be served; it is closed then, in a while."""
        wait_ms = 0 if listener in self._exempt else self._admitted(listener, host)
        if wait_ms:
            self._close_later(accepted.close, wait_ms)
        return wait_ms > 0

    def _accept(self, listener: str) -> int:
        wait_ms = self._rates.accept(listener, self._now_ms())
        if wait_ms:
            self._counts["connection"].throttled += 1
            self._counts["connection"].throttled_ms += wait_ms
        return wait_ms

    def _admitted(self, listener: str, host: str) -> int:
        wait_ms = self._rates.admit(listener, host, self._now_ms())
        if wait_ms:
            self._counts["connection_of_ip"].throttled += 1
            self._counts["connection_of_ip"].throttled_ms += wait_ms
        return wait_ms

    def _admit(self, connection: "Connection") -> bool:
        """Return whether a connection is served; if not, it is closed in a while."""
        wait_ms = self._admitted(connection.listener, connection.host)
        if wait_ms:
            connection.hold()
            reason = f"{connection.host} makes more connections than connection_creation_rate"
            self._close_later(lambda: connection.close(reason), wait_ms)
        return not wait_ms

    def _close_later(self, close: Callable[[], None], wait_ms: int) -> None:
        if self._closing >= CLOSING_MAX:
            close()
            return

        def close_now() -> None:
            self._closing -= 1
            close()

        self._closing += 1
        asyncio.get_running_loop().call_later(wait_ms / 1000, close_now)

    def _go_on_later(self, listener: str, wait_ms: int) -> None:
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._go_on, listener)

    def _go_on(self, listener: str) -> None:
        """Serve the first that waits, and those behind it that need not wait longer."""
        line = self._lines[listener]
        while line:
            first = line.popleft()
            if not first.is_closed and self._admit(first):
                first.unmute()
            while line and line[0].is_closed:
                line.popleft()
            if line and (wait_ms := self._accept(listener)):
                self._go_on_later(listener, wait_ms)
                return
