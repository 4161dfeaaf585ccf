"""The connections of programs that speak seed 002 to a node."""

import asyncio
import contextlib

from headrace.cluster.protocol import MESSAGE_BYTES_MAX
from headrace.server.broker import Broker
from headrace.server.connection import Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.interchange.dispatch import InterchangeDispatcher
from headrace.server.traffic import Traffic


class Interchange:
    """Takes connections whose other end sends requests of seed 002.

    They are connections of the node like Kafka's clients: the same limits hold over all of them
    (max.connections, headrace.connection.requests.max, headrace.unsent.responses.max.bytes,
    queued.max.request.bytes, connections.max.idle.ms), and a node that stops drains them.
    """

    def __init__(
        self, broker: Broker, dispatcher: Dispatcher, traffic: Traffic, listener: str
    ) -> None:
        """Brokers are named by their address on `listener` in FetchMetadata."""
        self._dispatcher = InterchangeDispatcher(broker, dispatcher)
        self._traffic = traffic
        self._listener = listener
        self._connections: dict[Connection, None] = {}
        self._is_closed = False
        self._is_changed = asyncio.Event()
        """Set when a connection has ended, for who waits for the last."""

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def accept(self, transport: asyncio.Transport, first_bytes: bytes) -> None:
        """Serve whoever is at the other end, who has sent some bytes already.

        This is the `on_client` of `cluster.transport.links`.
        """
        if self._is_closed:
            transport.abort()
            return
        connection = self.make_connection()
        transport.set_protocol(connection)
        transport.set_write_buffer_limits()
        connection.connection_made(transport)
        if not connection.is_closed:
            connection.feed(first_bytes)

    def make_connection(self) -> Connection:
        """Return the protocol of a new connection, for a server of one's own."""
        connection = Connection(
            self._listener, self._dispatcher, self._traffic, frame_bytes_max=MESSAGE_BYTES_MAX
        )
        connection.is_paced = True
        self._connections[connection] = None
        connection.on_close[lambda: self._forget(connection)] = None
        return connection

    def stop_accepting(self) -> None:
        """Take no more connections."""
        self._is_closed = True

    async def close(self, drain_ms: int = 0) -> None:
        """Take no more connections; close those there are when their requests have responses.

        They are closed in any case when the time is up.
        """
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_ms / 1000):
                while self._connections:
                    self._is_changed.clear()
                    await self._is_changed.wait()
                await self._dispatcher.drain()
        for connection in tuple(self._connections):
            connection.close("the node is stopping")

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._is_changed.set()
