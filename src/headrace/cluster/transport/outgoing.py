"""The connection that a node opens to a peer for one purpose, again and again.

A message is written at once, waits in a bounded queue or is dropped: nobody waits for a peer. A
call has an end in any case: a response, its timeout, or the loss of the connection.
"""

import asyncio
import ssl
from random import Random
from typing import Final, Protocol

from headrace.cluster.transport.calls import (
    MESSAGE,
    MESSAGE_LAYOUT,
    PING,
    PING_LAYOUT,
    REQUEST,
    REQUEST_LAYOUT,
    RESPONSE_LAYOUT,
    TIMEOUT_MS_MAX,
    CallError,
    CallFailed,
    NotConnected,
    Status,
    TooManyCalls,
)
from headrace.cluster.transport.connection import NodeConnection
from headrace.cluster.transport.events import (
    Connected,
    ConnectFailed,
    ConnectionRefused,
    Disconnected,
    Event,
    LinkState,
    PeerCounters,
)
from headrace.cluster.transport.handshake import Established, Initiator, Local
from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.pending_calls import PendingCalls
from headrace.cluster.transport.queues import Queued, SendQueue
from headrace.cluster.transport.refusals import MALFORMED, Refused
from headrace.cluster.transport.settings import TransportSettings
from headrace.cluster.transport.tls import connect_tls, explain_tls
from headrace.ids import BrokerId as NodeId
from headrace.wire.schema import Buffer

Address = tuple[str, int]
_DOUBLINGS_MAX: Final = 16


class Hub(Protocol):
    """What the connections of a node have in common."""

    settings: TransportSettings
    random: Random

    def local(self, transport: asyncio.Transport) -> Local:
        """Return who this node is, with a new nonce."""

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a new connection begins with, None if nodes speak in plain text."""

    def address_of(self, node: NodeId) -> Address | None: ...
    def judge(self, peer: Identity) -> Refused | None: ...
    def emit(self, event: Event) -> None: ...
    def counters_of(self, node: NodeId) -> PeerCounters: ...
    def note_connected(self, peer: Identity) -> None: ...
    def note_call_ended(self) -> None: ...


class PeerLink:
    """To one node, or to whoever is at an address; use it on one loop."""

    def __init__(
        self, hub: Hub, node: NodeId | None, purpose: Purpose, *, address: Address | None = None
    ) -> None:
        self._hub = hub
        self._settings = hub.settings
        self._loop = asyncio.get_running_loop()
        self._fixed_address = address
        self.node = node
        self.purpose = purpose
        self.peer: Identity | None = None
        """The connected peer."""
        self.last_problem = ""
        self.last_refusal: Refused | None = None
        self._counters = PeerCounters() if node is None else hub.counters_of(node)
        self._queue = SendQueue(self._settings.queue_bytes_max, self._settings.queue_messages_max)
        self._calls = PendingCalls(node)
        self._connection: NodeConnection | None = None
        self._dialled: Address | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._failures = 0
        self._used_at = self._loop.time()
        self._is_parked = False
        """Whether the connection was closed for want of anything to send."""
        self._is_closed = False

    # What a node calls

    def start(self) -> None:
        """Connect, unless that is under way or done."""
        is_busy = self._connection or self._dialling or self._retry
        if not self._is_closed and not is_busy:
            self._is_parked = False
            self._dialling = self._loop.create_task(self._connect())

    def hurry(self) -> None:
        """Try now what would be tried later."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self.start()

    @property
    def call_count(self) -> int:
        return len(self._calls)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent, and no response is waited for."""
        unsent = 0 if self._connection is None else self._connection.unsent_bytes
        return not (self._calls or self._queue or unsent)

    def send(self, kind: int, parts: list[Buffer], *, is_urgent: bool = False) -> bool:
        """Send a message if that is possible; return whether it may arrive."""
        head = MESSAGE_LAYOUT.pack(MESSAGE, kind)
        return self._offer([head, *parts], 0, is_urgent=is_urgent)

    async def call(self, kind: int, payload: Buffer, timeout_ms: int) -> bytes:
        """Return the response to a request, or raise a CallError."""
        self._counters.calls += 1
        correlation_id = self._calls.new_id()
        future: asyncio.Future[bytes] = self._loop.create_future()
        timer = self._loop.call_later(
            timeout_ms / 1000, self._calls.time_out, correlation_id, timeout_ms
        )
        try:
            self._ask(kind, correlation_id, payload, min(timeout_ms, TIMEOUT_MS_MAX), future)
            return await future
        except CallError:
            self._counters.calls_failed += 1
            raise
        finally:
            timer.cancel()
            self._calls.forget(correlation_id)
            self._hub.note_call_ended()

    def close(self, reason: str, *, is_gentle: bool = False) -> None:
        """End for good; calls under way fail."""
        self._is_closed = True
        for handle in (self._retry, self._ticker, self._dialling):
            if handle is not None:
                handle.cancel()
        self._retry = None
        if self._connection is not None:
            self._connection.close(reason, is_gentle=is_gentle)
        self._fail_all(reason)

    def drop(self, reason: str) -> None:
        """End the connection; another is opened."""
        if self._connection is not None:
            self._connection.close(reason)

    def certificate(self) -> bytes:
        """Return what the peer has shown under TLS; nothing if it is not connected."""
        return b"" if self._connection is None else self._connection.certificate

    def describe(self) -> LinkState:
        if self.peer is not None:
            state = "connected"
        elif self._retry is not None:
            state = "waiting"
        else:
            state = "connecting" if self._dialling or self._connection else "idle"
        return LinkState(
            node=NodeId(-1) if self.node is None else self.node,
            purpose=self.purpose,
            state=state,
            peer=self.peer,
            last_problem=self.last_problem,
            queued_messages=len(self._queue),
            queued_bytes=self._queue.size_bytes,
            calls_in_flight=len(self._calls),
        )

    # What its connection calls

    def make_handshake(self, transport: asyncio.Transport) -> Initiator | None:
        if self._is_closed:
            return None
        return Initiator(self._hub.local(transport), to=self.node, purpose=self.purpose)

    def on_established(self, connection: NodeConnection, established: Established) -> None:
        if (refused := self._hub.judge(established.peer)) is not None:
            connection.refuse(refused)
            return
        self.peer = established.peer
        self.last_problem = ""
        self._counters.connects += 1
        self._hub.note_connected(established.peer)
        self._hub.emit(Connected(established.peer, self.purpose, True))
        self._used_at = self._loop.time()
        self._tick()
        self._flush()

    def on_payload(self, connection: NodeConnection, payload: memoryview) -> None:
        if len(payload) < RESPONSE_LAYOUT.size:
            connection.refuse(MALFORMED)
            return
        self._failures = 0
        self._counters.bytes_received += len(payload)
        self._counters.messages_received += 1
        status, correlation_id = RESPONSE_LAYOUT.unpack_from(payload)
        if status != Status.PONG:
            self._calls.settle(correlation_id, status, payload[RESPONSE_LAYOUT.size :])

    def on_writable(self, connection: NodeConnection) -> None:
        self._flush()

    def on_client(self, connection: NodeConnection, first_bytes: bytes) -> None:
        connection.refuse(MALFORMED)

    def on_refused(self, connection: NodeConnection, refused: Refused) -> None:
        self.last_problem, self.last_refusal = str(refused), refused
        self._counters.refusals += 1
        self._failures = _DOUBLINGS_MAX  # nothing changes at once
        self._hub.emit(ConnectionRefused(self.node, connection.address, refused))

    def on_lost(self, connection: NodeConnection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        peer, self.peer = self.peer, None
        if self._ticker is not None:
            self._ticker.cancel()
        if peer is not None:
            self.last_problem = self.last_problem or reason
            self._hub.emit(Disconnected(peer, self.purpose, True, reason))
        self._fail_all(reason)
        if self._dialling is None and not self._is_parked:
            self._try_later()

    # Inside

    async def _connect(self) -> None:
        connection = NodeConnection(self, self._settings)
        unexplained = "no response in time"
        try:
            address = self._dialled = self._address()
            if address is None:
                raise OSError("its address is not known")
            self._connection = connection
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                context = self._hub.tls_context()
                if context is None:
                    await self._loop.create_connection(lambda: connection, *address)
                else:
                    unexplained = "no TLS there: headrace.node.tls must be the same on all nodes"
                    await connect_tls(connection, address, context)
        except (OSError, UnicodeError, ValueError, OverflowError) as error:  # timeouts are OSErrors
            if isinstance(error, TimeoutError):
                unexplained = "no response in time"
            self._connection = None
            connection.close("it could not be opened")
            self._note_failure(
                explain_tls(error) or unexplained,
                is_vacant=isinstance(error, ConnectionRefusedError),
            )
        finally:
            self._dialling = None
        if self._connection is None:
            self._try_later()

    def _address(self) -> Address | None:
        if self.node is None:
            return self._fixed_address
        return self._hub.address_of(self.node)

    def _note_failure(self, reason: str, *, is_vacant: bool) -> None:
        self.last_problem = reason
        self._counters.failed_connects += 1
        if self.node is not None:
            self._hub.emit(ConnectFailed(self.node, self.purpose, reason, is_vacant))
        self._fail_all(reason)

    def _try_later(self) -> None:
        """Connect after a pause that grows, with luck in it so that nodes do not come in step.

        A bulk connection may be asked for again after the pause; until then calls fail at once.
        """
        if self._is_closed or self._retry is not None or self.node is None:
            return
        pause_ms = min(
            self._settings.reconnect_ms_max, self._settings.reconnect_ms_min << self._failures
        )
        self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
        seconds = pause_ms * self._hub.random.uniform(0.5, 1.0) / 1000
        self._retry = self._loop.call_later(seconds, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        if self.purpose is Purpose.CONTROL:
            self.start()

    def _may_queue(self) -> bool:
        """Return whether there is a connection, or the first one is about to be."""
        if self.peer is not None:
            return True
        is_on_demand = self.purpose is Purpose.BULK or self.node is None
        return is_on_demand and self._retry is None and not self._is_closed

    def _offer(self, parts: list[Buffer], correlation_id: int, *, is_urgent: bool) -> bool:
        size = sum(map(len, parts))
        if not self._may_queue() or size > self._settings.frame_bytes_max:
            self._counters.messages_dropped += not correlation_id
            return False
        self._used_at = self._loop.time()
        is_queued = self._push(Queued(parts, size, correlation_id), is_urgent=is_urgent)
        self.start()
        self._flush()
        return is_queued

    def _push(self, queued: Queued, *, is_urgent: bool) -> bool:
        dropped = self._queue.dropped
        is_queued = self._queue.push(queued, is_urgent=is_urgent)
        self._counters.messages_dropped += self._queue.dropped - dropped
        return is_queued

    def _ask(
        self,
        kind: int,
        correlation_id: int,
        payload: Buffer,
        timeout_ms: int,
        future: "asyncio.Future[bytes]",
    ) -> None:
        if not self._may_queue():
            raise NotConnected(self.node, self.last_problem or "not connected yet")
        if len(self._calls) >= self._settings.calls_in_flight_max:
            raise TooManyCalls(self.node, f"{len(self._calls)} calls are under way, the most")
        head = REQUEST_LAYOUT.pack(REQUEST, kind, correlation_id, timeout_ms)
        if len(head) + len(payload) > self._settings.frame_bytes_max:
            raise CallFailed(
                self.node,
                f"a request of {len(payload)} bytes is too large, a frame has at most "
                f"{self._settings.frame_bytes_max}",
            )
        self._calls.add(correlation_id, future)
        if not self._offer([head, payload], correlation_id, is_urgent=False):
            raise TooManyCalls(self.node, "too much waits to be sent")

    def _flush(self) -> None:
        connection = self._connection
        if self.peer is None or connection is None:
            return
        while connection.is_writable and (queued := self._queue.pop()) is not None:
            if queued.correlation_id and not self._calls.note_sent(queued.correlation_id):
                continue  # nobody waits for it any more
            self._counters.bytes_sent += queued.size_bytes
            self._counters.messages_sent += 1
            connection.send(queued.parts)

    def _tick(self) -> None:
        """Close a silent or idle connection, or send the next ping."""
        connection, settings = self._connection, self._settings
        if connection is None or self.peer is None:
            return
        is_bulk = self.purpose is Purpose.BULK
        silence_ms_max = settings.accepted_silence_ms_max if is_bulk else settings.silence_ms_max
        idle_ms = (self._loop.time() - self._used_at) * 1000
        if connection.silent_ms() > silence_ms_max:
            connection.close(f"not a word for {silence_ms_max} ms")
        elif is_bulk and idle_ms > settings.bulk_idle_ms_max and not self._calls:
            self._is_parked = True
            connection.close("nothing to send", is_gentle=True)
        elif self._address() not in (None, self._dialled):
            connection.close("the peer has another address now", is_gentle=True)
        else:
            ping: list[Buffer] = [PING_LAYOUT.pack(PING, 0)]
            self._push(Queued(ping, PING_LAYOUT.size), is_urgent=True)
            self._flush()
            self._ticker = self._loop.call_later(settings.ping_interval_ms / 1000, self._tick)

    def _fail_all(self, reason: str) -> None:
        dropped = self._queue.dropped
        self._queue.clear()
        self._counters.messages_dropped += self._queue.dropped - dropped
        self._calls.fail_all(reason)
