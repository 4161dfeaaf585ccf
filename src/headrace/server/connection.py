"""A client connection: frames in, responses out in the order of the requests.

Requests of one connection take effect in order, as in Kafka: each is handled when the previous one
has its response. Only produce requests overlap, since their records are in the log when the handler
returns: they wait for replicas and the disk. Nothing is copied: frames are views of the memory that
the socket was read into, responses are written in the parts that they consist of.

The memory that a client can use is bounded: a frame by socket.request.max.bytes, requests in flight
by headrace.connection.requests.max, responses by not reading more requests while the client does
not read them, and those of all clients by headrace.unsent.responses.max.bytes (`traffic`). Many
small requests in one read are handled over several turns of the loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol, cast

from headrace.security.authentication import Authentication
from headrace.security.principals import ANONYMOUS
from headrace.server.departures import has_left
from headrace.server.dispatch import Undecodable
from headrace.server.request import Request
from headrace.server.traffic import Traffic
from headrace.wire import ApiKey, FrameReader, WireError
from headrace.wire.frames import SIZE_BYTES

TLS_HANDSHAKE: Final = b"\x16\x03"
HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN")
PRODUCE: Final = int(ApiKey.PRODUCE)
TURN_NS_MAX: Final = 5_000_000
"""How long requests of one connection are handled before others get a turn."""
DIRECT_MAX: Final = 16
"""How many small requests of one read are handled on arrival, unless that takes a whole turn."""
MUTED_LOOK_SECONDS: Final = 1.0
"""How often a connection that is held back is looked at."""
SMALL_FRAME_BYTES_MAX: Final = 1024
INLINE_FRAME_BYTES_MAX: Final = 64 * 1024
"""A larger request, unless it is a produce, whose bytes are records, is decoded in a thread."""

logger = logging.getLogger(__name__)


class Requests(Protocol):
    """What the frames of a connection mean: Kafka's `Dispatcher`, or another protocol's."""

    def read(self, peer: "Connection", frame: memoryview, now_ns: int) -> Request | None:
        """Return the request in a frame, None if a thread should read it, or raise Undecodable."""

    def read_in_thread(
        self, peer: "Connection", frame: memoryview, now_ns: int
    ) -> "asyncio.Future[Request]":
        """Read a request that would stall the loop."""

    def is_produce(self, frame: memoryview) -> bool:
        """Return whether a frame holds records to append, and so may overlap with others."""

    def dispatch(self, request: Request) -> None:
        """Handle a request. The response may be ready on return or arrive later."""

    def fail(self, request: Request, error: Exception) -> None:
        """Respond to a request whose handler failed."""


class Connection(asyncio.BufferedProtocol):
    """One client connection, until either side closes it."""

    is_paced = False
    """Whether it has waited for its turn already, or need not."""

    def __init__(
        self,
        listener: str,
        dispatcher: Requests,
        traffic: Traffic,
        frame_bytes_max: int | None = None,
    ) -> None:
        """`frame_bytes_max` is a protocol's own limit; socket.request.max.bytes holds anyway."""
        self.listener = listener
        self.address = ""
        self.host = ""
        self.principal = ANONYMOUS
        self.authentication: Authentication | None = None
        self.client_software = ""
        self.is_closed = False
        self.on_close: dict[Callable[[], None], None] = {}
        self._monotonic_ns = traffic.monotonic_ns
        self.active_ns = self._monotonic_ns()
        """When the client last sent something."""
        self._dispatcher = dispatcher
        self._is_produce = dispatcher.is_produce
        self._traffic = traffic
        limit = traffic.request_bytes_max
        if frame_bytes_max is not None:
            limit = min(limit, frame_bytes_max)
        self._reader = FrameReader(limit)
        self._waiting: deque[Request] = deque()
        """Requests without a response yet, in order of arrival."""
        self._backlog: deque[memoryview] = deque()
        """Frames that arrived while no more requests could be accepted."""
        self.drained = asyncio.Event()
        """Set when all requests have their responses and the connection is draining."""
        self._reserved_bytes = 0
        """The size of the incomplete frame, once the node has admitted it."""
        self._is_writable = True
        self._is_reading = True
        """Whether frames are handled on arrival; else they go to the backlog."""
        self._is_taking = False
        self._direct_max = DIRECT_MAX
        self._decoding_bytes = 0
        """The size of the request that a thread decodes; later frames wait for it."""
        self._next_turn: asyncio.Handle | None = None
        self._is_draining = False
        self._is_muted = False
        """Whether no requests are handled for a while, because of quotas."""
        self._unmuting: asyncio.TimerHandle | None = None
        self._muted_until = 0.0
        self._left_ms: Callable[[], int] | None = None
        self._transport: asyncio.Transport

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = plain_host(peer[0]) if peer else ""
        self.address = f"{self.host}:{peer[1]}" if peer else "(unknown)"
        if (refusal := self._traffic.admit(self)) is not None:
            logger.warning("connection from %s refused: %s", self.address, refusal)
            self.is_closed = True
            self._transport.abort()
        elif self._traffic.pace is not None:
            self._traffic.pace.take(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self.active_ns = now_ns = self._monotonic_ns()
        try:
            frames = self._reader.advance(count)
        except WireError as error:
            self._refuse_bytes(error)
            return
        if self._traffic.is_bounded:
            self._account(frames, now_ns)
            if self.is_closed:
                return
        taken = 0
        if self._is_reading:
            for frame in frames:
                if taken == self._direct_max or not self._may_take(frame):
                    break
                if taken and self._monotonic_ns() > now_ns + TURN_NS_MAX:
                    break
                self._take(frame, now_ns)
                taken += 1
                if self.is_closed:
                    return
                if len(frame) > SMALL_FRAME_BYTES_MAX or not self._is_reading:
                    break
        if taken < len(frames):
            self._backlog.extend(frames[taken:])
            self.look_at_limits()
        elif self._traffic.is_bounded:
            self.look_at_limits()

    def eof_received(self) -> bool:
        return False  # close: a client that does not read responses has no use for them

    def pause_writing(self) -> None:
        self._is_writable = False
        self._traffic.on_unsent(self)
        self.look_at_limits()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._traffic.on_sent(self)
        self.look_at_limits()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        unanswered_bytes = sum(request.size_bytes for request in self._waiting)
        held_bytes = unanswered_bytes + self._reserved_bytes + self._decoding_bytes
        self._traffic.forget(self, held_bytes)
        self._waiting.clear()
        self._backlog.clear()
        if self._next_turn is not None:
            self._next_turn.cancel()
        if self._unmuting is not None:
            self._unmuting.cancel()
        self.drained.set()
        for callback in tuple(self.on_close):
            callback()
        self.on_close.clear()

    # What the node calls

    def feed(self, data: bytes) -> None:
        """Take bytes that somebody else has read from the socket, then read from it."""
        rest = memoryview(data)
        while rest and not self.is_closed:
            room = self.get_buffer(-1)[: len(rest)]
            room[:] = rest[: len(room)]
            self.buffer_updated(len(room))
            rest = rest[len(room) :]
        self.look_at_limits()

    def close(self, reason: str) -> None:
        """Close the connection from this side; one log line has the reason."""
        if not self.is_closed:
            logger.info("connection from %s closed: %s", self.address, reason)
            self.is_closed = True
            self._transport.abort()

    def mute(self, duration_ms: int, left_ms: Callable[[], int] | None = None) -> None:
        """Handle no further request for so long (KIP-219); the longest of several counts.

        Nothing is read meanwhile: what the client sends stays in its kernel and in ours. Now and
        then `left_ms` is asked how long that is to go on, and a client that has gone is let go.
        """
        if self.is_closed:
            return
        ends = asyncio.get_running_loop().time() + duration_ms / 1000
        if self._unmuting is not None:
            if self._muted_until >= ends:
                return
            self._unmuting.cancel()
        self._muted_until, self._left_ms = ends, left_ms
        self._look_again_later()
        self.hold()

    def _look_again_later(self) -> None:
        loop = asyncio.get_running_loop()
        when = min(self._muted_until, loop.time() + MUTED_LOOK_SECONDS)
        self._unmuting = loop.call_at(when, self._look_at_mute)

    def _look_at_mute(self) -> None:
        """Go on if the time is over or quotas have changed; close if the client has gone."""
        now = asyncio.get_running_loop().time()
        if self._left_ms is not None:
            self._muted_until = min(self._muted_until, now + self._left_ms() / 1000)
        if now >= self._muted_until:
            self.unmute()
        elif self._has_left():
            self.close("its client has gone while it was held back")
        else:
            self._look_again_later()

    def _has_left(self) -> bool:
        if self._backlog or self._waiting or self._decoding_bytes:
            return False  # what it has sent is done when it is its time
        own = self._transport.get_extra_info("socket")
        if own is None:
            return False
        begun = self._reader.pending()
        if len(begun) < SIZE_BYTES:
            return has_left(own.fileno())
        return has_left(own.fileno(), SIZE_BYTES + int.from_bytes(begun[:SIZE_BYTES]) - len(begun))

    def hold(self) -> None:
        """Handle no further request until `unmute`.

        A frame that has arrived in part has no room kept for it meanwhile: it cannot complete, and
        other clients would wait for the room. It is kept again once the frame is read further.
        """
        self._is_muted = True
        traffic = self._traffic
        if self._reserved_bytes:
            traffic.in_flight_bytes -= self._reserved_bytes
            self._reserved_bytes = 0
        self.look_at_limits()
        if traffic.starved:
            traffic.feed_starved()

    def unmute(self) -> None:
        """Go on with requests."""
        self._unmuting = self._left_ms = None
        self._is_muted = False
        if not self.is_closed:
            self.look_at_limits()

    def finish(self, reason: str) -> None:
        """Close the connection once the responses to its requests are sent."""
        logger.info("connection from %s is to end: %s", self.address, reason)
        self.drain()

    def pass_to(self, dispatcher: Requests) -> None:
        """Handle the next requests in another way, with frames as large as any client's."""
        self._dispatcher = dispatcher
        self._is_produce = dispatcher.is_produce
        self._reader.frame_bytes_max = self._traffic.request_bytes_max

    @property
    def is_expired(self) -> bool:
        """Whether its client has to authenticate again before it is served."""
        return False

    @property
    def failure_delay_ms(self) -> int:
        """How long a client waits to hear that it failed to authenticate."""
        return 0

    def on_authenticated(self) -> None:
        """Admit the client; only connections that must authenticate have an authentication."""
        raise RuntimeError("this connection needs no authentication")

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not read yet."""
        return self._transport.get_write_buffer_size()

    @property
    def has_unanswered(self) -> bool:
        """Whether a request has no response yet."""
        return bool(self._decoding_bytes or self._waiting)

    def drain(self) -> None:
        """Accept no more requests, and close once those in flight have their responses.

        Requests that wait for records or for other members get their responses now.
        """
        self._is_draining = True
        self._backlog.clear()
        self.look_at_limits()
        self._answer_waiting()
        self._end_if_drained()

    def _answer_waiting(self) -> None:
        for request in tuple(self._waiting):
            if request.on_drain is not None:
                request.on_drain()

    def _end_if_drained(self) -> None:
        if self.is_closed or not self.has_unanswered:
            self.drained.set()
            if not self.is_closed:
                self._transport.close()

    # Requests

    def _may_take(self, frame: memoryview) -> bool:
        """Return whether a request may be handled now: it must see the effects of earlier ones."""
        waiting = self._waiting
        if self._decoding_bytes:
            return False
        if not waiting:
            return True
        last = waiting[-1]
        return last.api_key == PRODUCE and not last.is_holding and self._is_produce(frame)

    def _take(self, frame: memoryview, now_ns: int) -> None:
        request: Request | None = None
        if len(frame) <= INLINE_FRAME_BYTES_MAX or self._is_produce(frame):
            try:
                request = self._dispatcher.read(self, frame, now_ns)
            except Undecodable as error:
                self.close(str(error))
                return
        if request is not None:
            self._handle(request)
            return
        # Nothing is read meanwhile: a client that disconnects is noticed when it is handled.
        self._is_reading = False
        self._transport.pause_reading()
        self._decoding_bytes = len(frame)
        self._traffic.in_flight_bytes += len(frame)
        reading = self._dispatcher.read_in_thread(self, frame, now_ns)
        reading.add_done_callback(self._on_decoded)

    def _on_decoded(self, decoding: "asyncio.Future[Request]") -> None:
        if self.is_closed or decoding.cancelled():
            return
        self._traffic.in_flight_bytes -= self._decoding_bytes
        self._decoding_bytes = 0
        error = decoding.exception()
        if error is not None:
            if not isinstance(error, Undecodable):
                logger.error("a request from %s cannot be read", self.address, exc_info=error)
            self.close(str(error))
            return
        self._handle(decoding.result())
        self.look_at_limits()
        if self._is_draining:
            self._answer_waiting()
            self._end_if_drained()

    def _handle(self, request: Request) -> None:
        traffic = self._traffic
        traffic.in_flight_bytes += request.size_bytes
        waiting = self._waiting
        waiting.append(request)
        self._dispatcher.dispatch(request)
        if len(waiting) >= traffic.requests_max or traffic.is_full:
            self.look_at_limits()

    def on_answered(self, request: Request) -> None:
        """Send every response that does not wait for an earlier request."""
        waiting = self._waiting
        if self.is_closed or request is not waiting[0]:
            return
        traffic = self._traffic
        while waiting and (parts := waiting[0].parts) is not None:
            answered = waiting.popleft()
            traffic.in_flight_bytes -= answered.size_bytes
            traffic.counters.answered(answered.api_key, answered.received_ns)
            if parts:
                self._transport.writelines(parts)
        if not self._is_reading:
            self.look_at_limits()
        if self._is_draining:
            self._end_if_drained()
        if traffic.starved:
            traffic.feed_starved()

    def on_released(self) -> None:
        if not self._is_reading:
            self.look_at_limits()

    def on_failed(self, request: Request, error: Exception) -> None:
        self._dispatcher.fail(request, error)

    def look_at_limits(self) -> None:
        """Handle the frames that the limits allow now, and resume reading once none is left."""
        if self._is_taking:
            return  # the loop below is running
        backlog = self._backlog
        self._is_taking = True
        try:
            turn_ends_ns = self._turn_ends_ns() if backlog else 0
            while (
                backlog and not self.is_closed and self._may_read() and self._may_take(backlog[0])
            ):
                if self._monotonic_ns() > turn_ends_ns:
                    self._take_on_next_turn()
                    break
                self._take(backlog.popleft(), self.active_ns)
        finally:
            self._is_taking = False
        if self.is_closed:
            return
        self._is_reading = not backlog and self._may_read()
        if self._is_reading:
            self._reserve()
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _turn_ends_ns(self) -> int:
        """Return until when requests are handled in this turn of the loop."""
        return self._monotonic_ns() + TURN_NS_MAX

    def _take_on_next_turn(self) -> None:
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._next_turn = None
        self.look_at_limits()

    def _account(self, frames: list[memoryview], now_ns: int) -> None:
        """Account for the frame with a reservation; for the others only if there is room."""
        traffic = self._traffic
        if frames and self._reserved_bytes:
            traffic.in_flight_bytes -= self._reserved_bytes
            self._reserved_bytes = 0
            if self._is_reading and not self._backlog and self._may_take(frames[0]):
                self._take(frames.pop(0), now_ns)
        if traffic.is_full and self._is_reading:
            self.look_at_limits()

    def _reserve(self) -> None:
        """Reserve room for the rest of a partial frame, so that it can complete."""
        traffic = self._traffic
        if traffic.is_bounded and not self._reserved_bytes:
            start = self._reader.pending()[:SIZE_BYTES]
            if len(start) == SIZE_BYTES:
                self._reserved_bytes = int.from_bytes(start)
                traffic.in_flight_bytes += self._reserved_bytes

    def _may_read(self) -> bool:
        traffic = self._traffic
        if traffic.is_full and not self._reserved_bytes:
            traffic.starved[self] = None
            return False
        return (
            self._is_writable
            and not self._decoding_bytes
            and not self._is_draining
            and not self._is_muted
            and len(self._waiting) < traffic.requests_max
        )

    def _refuse_bytes(self, error: WireError) -> None:
        """Close the connection and log what the client is most likely doing wrong."""
        start = bytes(self._reader.pending()[:4])
        if start in HTTP_METHODS:
            reason = f"an HTTP request on a Kafka port; {error}"
        elif start.startswith(TLS_HANDSHAKE):
            reason = f"a TLS handshake on a listener without TLS; {error}"
        else:
            reason = str(error)
        self.close(reason)


def plain_host(host: str) -> str:
    """Return an address as ACLs name it: an IPv4 client of an IPv6 socket has its own address."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
