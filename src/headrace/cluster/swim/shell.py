"""SWIM on the loop: datagrams in and out, one timer, a bounded amount of work per turn.

No datagram can cause an exception outside of this module: an unreadable one is counted by reason
and dropped. If the machine itself is broken, SWIM stops and reports it; the node continues without
it, as SWIM only gives hints.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from headrace.cluster.swim.addresses import Addresses, Resolve, SocketAddress, resolve_udp
from headrace.cluster.swim.events import Event, LeaveFinished, Outputs, Peer
from headrace.cluster.swim.machine import Swim
from headrace.cluster.swim.messages import InvalidMessage, decode_message, encode_message
from headrace.cluster.swim.sealing import Refusal, Sealer
from headrace.cluster.swim.settings import SwimSettings
from headrace.cluster.swim.state import Below
from headrace.ids import BrokerId as NodeId

_ROUNDING = 1e-3
"""So that a timer for a millisecond is not a hair too early for it."""


class Endpoint(Protocol):
    """What the shell needs of an `asyncio.DatagramTransport`."""

    def sendto(self, data: bytes, addr: SocketAddress, /) -> None: ...
    def close(self) -> None: ...


OpenEndpoint = Callable[[asyncio.DatagramProtocol], Awaitable[Endpoint]]
"""Opens the socket on which a protocol gets its datagrams: the port that simulations replace."""


def udp_endpoint(host: str, port: int) -> OpenEndpoint:
    """Return what opens a UDP socket on an address."""

    async def open_endpoint(protocol: asyncio.DatagramProtocol) -> Endpoint:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: protocol, local_addr=(host, port)
        )
        return transport

    return open_endpoint


class SwimShell(asyncio.DatagramProtocol):
    """A node's SWIM; use it on one loop."""

    def __init__(
        self,
        node: NodeId,
        boot_epoch: int,
        *,
        settings: SwimSettings,
        sealer: Sealer,
        below: Below,
        on_event: Callable[[Event], None],
        on_failure: Callable[[Exception], None],
        resolve: Resolve = resolve_udp,
    ) -> None:
        """Call `on_event` with each event, and `on_failure` once with an error that broke SWIM."""
        self._settings = settings
        self._sealer = sealer
        self._on_event = on_event
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._swim = Swim(node, boot_epoch, settings=settings, below=below, now_ms=self._now_ms())
        self._addresses = Addresses(self._loop, resolve)
        self._inbox: deque[bytes] = deque()
        self._is_draining = False
        self._is_full = False
        self._endpoint: Endpoint | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_due_seconds = 0.0
        """Kept here, as uvloop returns a handle without a time for what is due at once."""
        self._left: asyncio.Future[None] = self._loop.create_future()
        self.unreachable: frozenset[NodeId] = frozenset()
        """Nodes that are cut off: for tests."""
        self.dropped: Counter[str] = Counter()
        """Datagrams that were dropped, by reason."""

    @property
    def swim(self) -> Swim:
        """The machine, read-only."""
        return self._swim

    async def open(self, open_endpoint: OpenEndpoint) -> None:
        """Open the socket and begin."""
        self._endpoint = await open_endpoint(self)
        self._set_timer()

    def allow(self, peers: Iterable[Peer]) -> None:
        """Set the members to those of the current metadata image."""
        allowed = list(peers)
        self._addresses.retain((peer.host, peer.port) for peer in allowed)
        self._sealer.retain({peer.node for peer in allowed})
        self._run(lambda: self._swim.allow(allowed, self._now_ms()))

    async def leave(self, timeout_seconds: float) -> None:
        """Announce that this node leaves; return when that is done, or after the timeout."""
        self._run(lambda: self._swim.leave(self._now_ms()))
        if self._endpoint is not None:
            await asyncio.wait([self._left], timeout=timeout_seconds)

    def close(self) -> None:
        """Fall silent."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._inbox.clear()
        self._addresses.close()
        if not self._left.done():
            self._left.set_result(None)

    # What the endpoint calls

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Keep a datagram for this or a later turn. Its address is not believed."""
        if self._endpoint is None:
            return
        if len(data) > self._settings.datagram_bytes_max:
            self.dropped["oversized"] += 1
        elif len(self._inbox) >= self._settings.inbox_datagrams_max:
            self.dropped["inbox_full"] += 1
        else:
            self._inbox.append(data)
            if not self._is_draining:
                self._is_draining = True
                self._loop.call_soon(self._drain)

    def error_received(self, exc: Exception) -> None:
        """Count what the network says of a datagram that was sent: a probe finds out anyway."""
        self.dropped["network"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop if the socket is lost that was not closed from here."""
        if self._endpoint is not None:
            self.close()
            self._on_failure(exc or ConnectionError("the UDP socket of SWIM was closed"))

    def pause_writing(self) -> None:
        """Drop what would have to wait for the socket."""
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False

    # Inside

    def _drain(self) -> None:
        try:
            for _ in range(self._settings.datagrams_per_turn):
                if not self._inbox:
                    break
                self._receive(self._inbox.popleft())
        finally:  # also if a taker of events fails
            self._is_draining = bool(self._inbox)
            if self._is_draining:
                self._loop.call_soon(self._drain)

    def _receive(self, datagram: bytes) -> None:
        opened = self._sealer.open(datagram, self._swim.state.members)
        if isinstance(opened, Refusal):
            self.dropped[opened.value] += 1
            return
        if opened.sender in self.unreachable:
            return
        try:
            message = decode_message(opened.data, opened.sender, opened.boot_epoch)
        except InvalidMessage:
            self.dropped[Refusal.MALFORMED.value] += 1
            return
        self._run(lambda: self._swim.step(message, self._now_ms()))

    def _tick(self) -> None:
        self._timer = None
        self._run(lambda: self._swim.tick(self._now_ms()))

    def _run(self, step: Callable[[], Outputs]) -> None:
        try:
            outputs = step()
        except Exception as error:  # a broken machine must not take the node along
            self.close()
            self._on_failure(error)
            return
        for send in outputs.sends:
            self._send(send.to, encode_message(send.message))
        self._set_timer()
        for event in outputs.events:
            if isinstance(event, LeaveFinished) and not self._left.done():
                self._left.set_result(None)
            self._on_event(event)

    def _send(self, to: Peer, data: bytes) -> None:
        if self._endpoint is None or to.node in self.unreachable:
            return
        address = self._addresses.find(to.host, to.port)
        if address is None:
            self.dropped["unresolved"] += 1
        elif self._is_full:
            self.dropped["socket_full"] += 1
        else:
            try:
                self._endpoint.sendto(self._sealer.seal(to.node, data), address)
            except (OSError, ValueError) as error:  # an address of another family, say
                self.error_received(error)

    def _set_timer(self) -> None:
        if self._endpoint is None:
            return
        due_seconds = max(self._swim.deadline_ms() / 1000, self._loop.time())
        if self._timer is not None:
            if self._timer_due_seconds <= due_seconds:
                return  # it fires early, finds nothing to do and is set anew
            self._timer.cancel()
        self._timer = self._loop.call_at(due_seconds, self._tick)
        self._timer_due_seconds = due_seconds

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000 + _ROUNDING)
