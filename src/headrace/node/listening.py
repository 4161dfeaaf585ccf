"""The listeners of a node and the connections of its clients: taken, served, limited, drained.

listening = Listening(live, counters)
listening.take(protection)          # the addresses are its own; nobody is served
listening.serve(broker, quotas)
await listening.drain()
"""

import asyncio
import contextlib
import logging
from functools import partial
from typing import Final

from headrace import config
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.config import LiveSettings
from headrace.loop.counters import Counters
from headrace.loop.tasks import Tasks
from headrace.node.apis import SERVED, load_handler
from headrace.node.protection import Protection
from headrace.node.quotas import NodeQuotas
from headrace.server.broker import Broker
from headrace.server.connection import Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.interchange import Interchange
from headrace.server.listeners import ANY_ADDRESSES, Bind, Listener, parse_listener
from headrace.server.request import Guard
from headrace.server.secured import SecuredConnection
from headrace.server.traffic import Traffic, connection_limits, looked_up

DRAIN_SECONDS_MAX: Final = 5
"""How long a stop waits for responses in progress."""

logger = logging.getLogger(__name__)


class Listening:
    """Where a node listens for clients, and who is connected."""

    def __init__(self, live: LiveSettings, counters: Counters, bind: Bind | None) -> None:
        settings = live.at_start
        self.listeners: list[Listener] = []
        """Those of the settings."""
        self.node_listener: Listener | None = None
        """One for nodes only, if that is none of `listeners`."""
        self.traffic = Traffic(
            counters,
            request_bytes_max=settings[config.SOCKET_REQUEST_MAX_BYTES],
            requests_max=settings[config.CONNECTION_REQUESTS_MAX],
            queued_bytes_max=settings[config.QUEUED_MAX_REQUEST_BYTES],
            unsent_bytes_max=settings[config.UNSENT_RESPONSES_MAX_BYTES],
        )
        self.traffic.handshakes_max = settings[config.HANDSHAKES_MAX]
        self.dispatcher: Dispatcher | None = None
        self._live = live
        self._bind = bind
        self._protection: Protection | None = None
        self._interchange: Interchange | None = None
        self._tasks = Tasks()
        self._overrides = ""
        """The limits of connections by address that hold."""

    @property
    def all(self) -> list[Listener]:
        """Every listener, for clients or for nodes."""
        return self.listeners + ([] if self.node_listener is None else [self.node_listener])

    def take(self, protection: Protection | None) -> None:
        """Take the addresses; clients are served later."""
        self._protection = protection
        settings = self._live.at_start
        for text in settings[config.LISTENERS]:
            self.listeners.append(Listener(parse_listener(text), settings, self._bind))
        if protection is not None and protection.address is not None:
            self.node_listener = Listener(protection.address, settings, self._bind)

    def own_address(self) -> str:
        """Return where this node finds itself, as one of its clients."""
        settings = self._live.at_start
        name = settings[config.REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME]
        if self._protection is not None:
            name = self._protection.node_listener
        named = [each for each in self.all if each.name == name]
        listener = (named or self.listeners)[0]
        host = "127.0.0.1" if listener.host in ANY_ADDRESSES else listener.host
        return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"

    async def serve(self, broker: Broker, quotas: NodeQuotas) -> None:
        """Serve clients, within the limits that hold now and later."""
        protection = self._protection
        self._limit()
        self._live.on_changed += [self._limit, quotas.limit_listeners]
        self.traffic.on_room_changed = partial(self._limit_fetches, broker)
        guard = None if broker.authorizer is None else _guard(broker)
        dispatcher = self.dispatcher = Dispatcher(
            broker, SERVED, partial(load_handler, guard=guard)
        )
        node_listener = None if protection is None else protection.node_listener
        quotas.attach(dispatcher, [each.name for each in self.all], node_listener)
        await quotas.settle()  # nobody gets in before them
        for listener in self.all:
            security = None if protection is None else protection.of(listener.name)
            if security is None:
                await listener.serve(partial(Connection, listener.name, dispatcher, self.traffic))
                continue
            connect = partial(SecuredConnection, security, dispatcher, self.traffic)
            if security.context is None:
                await listener.serve(connect)
            else:
                listener.serve_tls(security, self.traffic, connect)
        self._interchange = Interchange(broker, dispatcher, self.traffic, self.listeners[0].name)

    def serve_program(self, transport: asyncio.Transport, first_bytes: bytes) -> None:
        """Serve a program on this machine that speaks seed 002, once the node serves at all."""
        if self._interchange is None:
            transport.abort()
        elif self._protection is not None:
            logger.warning("a program on the node port is refused: it cannot authenticate there")
            transport.abort()
        else:
            self._interchange.accept(transport, first_bytes)

    def drop_distrusted(self, tls: NodeTls) -> None:
        """End connections with certificates of CAs that are not trusted any more."""
        for connection in self._secured():
            shown = connection.node_certificate
            if shown and tls.distrusts(shown):
                connection.close("its certificate is not trusted any more")

    def drop_former_nodes(self) -> None:
        """End connections of nodes that are not registered any more, or with another folder."""
        for connection in self._secured():
            if connection.is_of_unknown_node():
                connection.close("its node is not of the cluster any more")

    def stop(self) -> None:
        """Take no more connections."""
        self._tasks.cancel()
        for listener in self.all:
            listener.close()
        if self._interchange is not None:
            self._interchange.stop_accepting()

    async def drain(self) -> None:
        """Finish requests in progress, up to a time limit, and close every connection.

        Requests that wait for records or for group members get their responses at once.
        """
        self.stop()
        connections = tuple(self.traffic.connections)
        for connection in connections:
            connection.drain()
        assert self.dispatcher is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                await self.dispatcher.drain()
                for connection in connections:
                    await connection.drained.wait()
                # The last responses reach the sockets at the end of a turn.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        self.close("the node stops")

    def close(self, why: str) -> None:
        """End every connection at once."""
        self.traffic.close(why)
        if self.dispatcher is not None:
            self.dispatcher.close()

    def _secured(self) -> list[SecuredConnection]:
        connections = self.traffic.connections
        return [each for each in connections if isinstance(each, SecuredConnection)]

    def _limit(self) -> None:
        """Apply the current limits to connections."""
        self.traffic.connections_max = self._live[config.MAX_CONNECTIONS]
        self.traffic.connections_per_ip_max = self._live[config.MAX_CONNECTIONS_PER_IP]
        overrides = self._live[config.MAX_CONNECTIONS_PER_IP_OVERRIDES]
        if overrides != self._overrides:
            self._overrides = overrides
            self.traffic.connections_max_of = limits = connection_limits(overrides)
            self._tasks.start(self._look_up(overrides, limits))

    async def _look_up(self, overrides: str, limits: dict[str, int]) -> None:
        """Apply limits of hosts to their addresses; a name server may take long to respond."""
        found = await looked_up(limits)
        if overrides == self._overrides:
            self.traffic.connections_max_of = found

    def _limit_fetches(self, broker: Broker) -> None:
        """Shrink fetch responses while clients leave much unread."""
        configured = self._live[config.FETCH_MAX_BYTES]
        broker.fetch_bytes_max = self.traffic.fetch_bytes_max(configured)


def _guard(broker: Broker) -> Guard:
    from headrace.server.rights.table import guard  # noqa: PLC0415  not for nodes without rights

    return partial(guard, is_audited=broker.audit is not None)
