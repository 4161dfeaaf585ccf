"""Limits over all connections of a node: how many there are, and the memory they may use."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from headrace.config import (
    HANDSHAKES_MAX,
    UNSENT_RESPONSES_MAX_BYTES,
)
from headrace.loop.counters import Counters
from headrace.metadata.acl_index import address_of
from headrace.server.handshakes import Handshakes

if TYPE_CHECKING:
    from headrace.server.audit import Audit
    from headrace.server.connection import Connection
    from headrace.server.connection_pace import ConnectionPace


class Unfinished(Protocol):
    """A connection in the handshake of TLS, or one that has not authenticated."""

    @property
    def host(self) -> str:
        """Where its client is."""

    def close(self, reason: str) -> None:
        """Close it; one log line has the reason."""


UNBOUNDED: Final = -1
TURN_NS_MAX: Final = 5_000_000
"""How long starved connections, or those that have not authenticated, are served in one turn."""
FETCH_BYTES_FLOOR: Final = 64 * 1024
"""The fetch limit while clients leave too many response bytes unread."""
LOOKS_MAX: Final = 8
"""How many connections are checked when another leaves its response unread."""
STUCK_NS: Final = 5_000_000_000
"""How long a client may read nothing while memory is short."""


class Traffic:
    """The limits that connections share, and their current use."""

    def __init__(
        self,
        counters: Counters,
        *,
        request_bytes_max: int,
        requests_max: int,
        queued_bytes_max: int = UNBOUNDED,
        connections_max: int = 2**31 - 1,
        connections_per_ip_max: int = 2**31 - 1,
        unsent_bytes_max: int = UNSENT_RESPONSES_MAX_BYTES.default,
    ) -> None:
        self.counters = counters
        self.audit: Audit | None = None
        """Where it is said who authenticated, if it is."""
        self.monotonic_ns = counters.monotonic_ns
        self.request_bytes_max = request_bytes_max
        self.requests_max = requests_max
        """How many requests of one connection may be in flight."""
        self.queued_bytes_max = queued_bytes_max
        self.is_bounded = queued_bytes_max >= 0
        """Whether the bytes of requests are limited at all."""
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.connections_max_of: Mapping[str, int] = {}
        """Limits for particular addresses."""
        self.connections: dict[Connection, None] = {}
        """In order of arrival, as everything that is woken or closed one by one."""
        self.in_flight_bytes = 0
        """Bytes of requests in flight; if bounded, including those still being received."""
        self.starved: OrderedDict[Connection, None] = OrderedDict()
        """Connections not read from because the node holds too many bytes; the first is next."""
        self.unsent_bytes_max = unsent_bytes_max
        self.unsent_bytes = 0
        """Bytes of responses that clients have not read, as of the last check."""
        self.on_room_changed: Callable[[], None] = lambda: None
        """Called when `unsent_bytes` changes."""
        self._unsent: dict[Connection, tuple[int, int]] = {}
        """Connections with unread responses: how many bytes, and when last checked."""
        self._per_host: dict[str, int] = {}
        self._reserved = 0
        """Connections that were accepted and are not through the handshake of TLS."""
        self.handshakes_max: int = HANDSHAKES_MAX.default
        self.handshakes: Handshakes[Unfinished] = Handshakes()
        """Connections that have not authenticated yet."""
        self.pace: ConnectionPace | None = None
        """How fast connections may be made; None while nothing limits that."""
        self._closed_why: str | None = None
        self._is_feeding = False
        self._gated_turn_ends_ns = 0
        """When the time is up of all who have not authenticated; 0 in a turn without any."""

    @property
    def is_full(self) -> bool:
        return 0 <= self.queued_bytes_max <= self.in_flight_bytes

    def admit(self, connection: "Connection") -> str | None:
        """Admit a connection, or return why not."""
        if self._closed_why is not None:
            return self._closed_why
        if (refusal := self._count(connection.host)) is None:
            self.connections[connection] = None
            self.counters.connections_accepted += 1
        return refusal

    def close(self, why: str) -> None:
        """Close every connection; those that were accepted and come here later are refused."""
        self._closed_why = why
        for connection in tuple(self.connections):
            connection.close(why)

    def reserve(self, host: str) -> str | None:
        """Count a connection before its handshake, or return why there may be none."""
        if (refusal := self._count(host)) is None:
            self._reserved += 1
        return refusal

    def release(self, host: str) -> None:
        """Uncount what was reserved: it is admitted, or gone."""
        self._reserved -= 1
        self._uncount(host)

    def begin_handshake(self, unfinished: Unfinished) -> None:
        """Track a connection that must authenticate; close one if there are too many.

        That is the oldest of the host that has the most, so that a host which opens ever new
        connections closes its own, and nobody else's.
        """
        while len(self.handshakes) >= self.handshakes_max:
            leaving = self.handshakes.take_from_most()
            self.counters.handshakes_failed += 1
            leaving.close(
                f"{self.handshakes_max} others have not authenticated either "
                "(headrace.handshakes.max)"
            )
        self.handshakes.add(unfinished, unfinished.host)

    def end_handshake(self, unfinished: Unfinished) -> None:
        self.handshakes.discard(unfinished)

    def gated_turn_ends_ns(self) -> int:
        """Return until when requests of those who have not authenticated are handled in this turn.

        They share the time: there may be thousands, and any one of them costs its sender little.
        """
        if not self._gated_turn_ends_ns:
            self._gated_turn_ends_ns = self.monotonic_ns() + TURN_NS_MAX
            asyncio.get_running_loop().call_soon(self._end_gated_turn)
        return self._gated_turn_ends_ns

    def _end_gated_turn(self) -> None:
        self._gated_turn_ends_ns = 0

    def _count(self, host: str) -> str | None:
        counters = self.counters
        if len(self.connections) + self._reserved >= self.connections_max:
            counters.connections_refused += 1
            return f"there are {self.connections_max} already (max.connections)"
        count = self._per_host.get(host, 0)
        if count >= self.connections_max_of.get(host, self.connections_per_ip_max):
            counters.connections_refused += 1
            return f"{host} has {count} already (max.connections.per.ip)"
        self._per_host[host] = count + 1
        return None

    def _uncount(self, host: str) -> None:
        if self._per_host[host] == 1:
            del self._per_host[host]
        else:
            self._per_host[host] -= 1

    def forget(self, connection: "Connection", unanswered_bytes: int) -> None:
        """Forget a closed connection."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.starved.pop(connection, None)
        self.on_sent(connection)
        self.in_flight_bytes -= unanswered_bytes
        self._uncount(connection.host)
        self.feed_starved()

    def fetch_bytes_max(self, configured: int) -> int:
        """Return the byte limit of one fetch response, given what clients leave unread."""
        room = self.unsent_bytes_max - self.unsent_bytes
        return min(configured, max(room, FETCH_BYTES_FLOOR))

    def on_unsent(self, connection: "Connection") -> None:
        """Count a response that a client does not read; close stuck clients if memory is short."""
        self.on_sent(connection)
        unsent_bytes = connection.unsent_bytes
        self._unsent[connection] = unsent_bytes, self.monotonic_ns()
        self.unsent_bytes += unsent_bytes
        if self.unsent_bytes > self.unsent_bytes_max // 2:
            self._close_stuck()
        self.on_room_changed()

    def on_sent(self, connection: "Connection") -> None:
        """Uncount a client's unread responses: it has read them, or it is gone."""
        if (unsent := self._unsent.pop(connection, None)) is not None:
            self.unsent_bytes -= unsent[0]
            self.on_room_changed()

    def _close_stuck(self) -> None:
        """Close connections that read nothing; one that reads, however slowly, is left alone."""
        now_ns = self.monotonic_ns()
        for connection in tuple(islice(self._unsent, LOOKS_MAX)):
            before_bytes, looked_ns = self._unsent[connection]
            if now_ns - looked_ns < STUCK_NS:
                return  # the others were checked more recently
            unsent_bytes = self.unsent_bytes
            self.on_sent(connection)
            if connection.unsent_bytes < before_bytes:
                self._unsent[connection] = connection.unsent_bytes, now_ns
                self.unsent_bytes += connection.unsent_bytes
                continue
            self.counters.connections_stuck_closed += 1
            connection.close(
                f"it leaves {before_bytes} bytes of responses unread, all clients together "
                f"{unsent_bytes} of the {self.unsent_bytes_max} that they may "
                "(headrace.unsent.responses.max.bytes)"
            )

    def feed_starved(self) -> None:
        """Resume connections that waited for other requests to complete."""
        if self._is_feeding:  # a resumed connection may respond at once, which calls this
            return
        self._is_feeding = True
        turn_ends_ns = self.monotonic_ns() + TURN_NS_MAX
        try:
            while self.starved and not self.is_full:
                connection, _ = self.starved.popitem(last=False)
                connection.look_at_limits()
                if self.monotonic_ns() > turn_ends_ns:
                    asyncio.get_running_loop().call_soon(self.feed_starved)
                    break
        finally:
            self._is_feeding = False


def connection_limits(overrides: str) -> dict[str, int]:
    """Return what max.connections.per.ip.overrides names: names of hosts as they are, addresses in
    the form that clients have them, so an IPv4 one written as IPv6 is IPv4."""
    pairs = (pair.strip().rpartition(":") for pair in overrides.split(",") if pair.strip())
    return {address_of(host): int(count) for host, _, count in pairs}


async def looked_up(limits: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of addresses, in every form; names are looked up, which may take long."""
    loop = asyncio.get_running_loop()
    found = {}
    for host, count in limits.items():
        with suppress(OSError, UnicodeError):  # a name that does not resolve, or is none
            for *_, address in await loop.getaddrinfo(host, None):
                found[address_of(str(address[0]))] = count
        found[host] = count
    return found
