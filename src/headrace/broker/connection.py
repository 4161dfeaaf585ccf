"""A connection of a client: frames in, answers out in the order of the requests.

Requests are handled as they come, without waiting for each other; an answer that is ready before
an earlier one waits for it. Nothing is copied: frames are views of the memory that the socket was
read into, answers are written as the parts that they are made of.

What a client can make us hold is bounded: a frame by socket.request.max.bytes, the requests under
way by headrace.connection.requests.max, and answers by not reading on while they are not taken.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, cast

from headrace.broker.dispatch import Dispatcher, Undecodable
from headrace.broker.request import Request
from headrace.broker.traffic import Traffic
from headrace.wire import ApiKey, FrameReader, WireError
from headrace.wire.frames import SIZE_BYTES

TLS_HANDSHAKE: Final = b"\x16\x03"
HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN")
FETCHES: Final = (int(ApiKey.FETCH), int(ApiKey.SHARE_FETCH))

logger = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """One client, until either side ends it."""

    def __init__(self, listener: str, dispatcher: Dispatcher, traffic: Traffic) -> None:
        self.listener = listener
        self.address = ""
        self.client_software = ""
        self.is_closed = False
        self.on_close: set[Callable[[], None]] = set()
        self.active_ns = monotonic_ns()
        """When it last sent something."""
        self._dispatcher = dispatcher
        self._traffic = traffic
        self._reader = FrameReader(traffic.request_bytes_max)
        self._waiting: deque[Request] = deque()
        """Requests that are not answered yet, in the order in which they came."""
        self._backlog: deque[memoryview] = deque()
        """Frames that arrived while no more requests could be taken."""
        self.drained = asyncio.Event()
        """Set once everything that was asked is answered, and the connection is ending."""
        self._reserved_bytes = 0
        """What the frame that is not whole yet will take, once the node has let it begin."""
        self._is_writable = True
        self._is_reading = True
        self._is_draining = False
        self._transport: asyncio.Transport

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else "(unknown)"
        if (refusal := self._traffic.admit(self)) is not None:
            logger.warning("connection from %s refused: %s", self.address, refusal)
            self.is_closed = True
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self.active_ns = now_ns = monotonic_ns()
        try:
            frames = self._reader.advance(count)
        except WireError as error:
            self._refuse_bytes(error)
            return
        if self._traffic.is_bounded:
            self._account(frames, now_ns)
        for frame in frames:
            if self.is_closed:  # by what came before it
                return
            if self._is_reading and not self._backlog:
                self._take(frame, now_ns)
            else:
                self._backlog.append(frame)
        if self._backlog or self._traffic.is_bounded:
            self.look_at_limits()

    def eof_received(self) -> bool:
        return False  # close, as a client that will not read answers has no use for them

    def pause_writing(self) -> None:
        self._is_writable = False
        self.look_at_limits()

    def resume_writing(self) -> None:
        self._is_writable = True
        self.look_at_limits()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        unanswered_bytes = sum(request.size_bytes for request in self._waiting)
        self._traffic.forget(self, unanswered_bytes + self._reserved_bytes)
        self._waiting.clear()
        self._backlog.clear()
        self.drained.set()
        for callback in tuple(self.on_close):
            callback()
        self.on_close.clear()

    # What the node calls

    def close(self, reason: str) -> None:
        """End the connection from this side; one log line says why."""
        if not self.is_closed:
            logger.info("connection from %s closed: %s", self.address, reason)
            self.is_closed = True
            self._transport.abort()

    @property
    def has_unanswered(self) -> bool:
        """Whether something that was asked has no answer yet."""
        return bool(self._waiting)

    def drain(self) -> None:
        """Take no more requests, and end once those under way are answered."""
        self._is_draining = True
        self._backlog.clear()
        self.look_at_limits()
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self.is_closed or not self._waiting:
            self.drained.set()
            if not self.is_closed:
                self._transport.close()

    # Requests

    def _take(self, frame: memoryview, now_ns: int) -> None:
        try:
            request = self._dispatcher.read(self, frame, now_ns)
        except Undecodable as error:
            self.close(str(error))
            return
        traffic = self._traffic
        traffic.in_flight_bytes += request.size_bytes
        waiting = self._waiting
        waiting.append(request)
        self._dispatcher.dispatch(request)
        if self._waits_for_records():
            self._is_reading = False
        if len(waiting) >= traffic.requests_max or traffic.is_full:
            self.look_at_limits()

    def on_answered(self, request: Request) -> None:
        """Send every answer that no earlier request holds up."""
        waiting = self._waiting
        if self.is_closed or request is not waiting[0]:
            return
        traffic = self._traffic
        while waiting and (parts := waiting[0].parts) is not None:
            answered = waiting.popleft()
            traffic.in_flight_bytes -= answered.size_bytes
            traffic.counters.answered(answered)
            if parts:
                self._transport.writelines(parts)
        if not self._is_reading:
            self.look_at_limits()
        if self._is_draining:
            self._end_if_drained()
        if traffic.starved:
            traffic.feed_starved()

    def on_failed(self, request: Request, error: Exception) -> None:
        self._dispatcher.fail(request, error)

    def look_at_limits(self) -> None:
        """Read on, or do not; take what came meanwhile."""
        while not self.is_closed:
            may_read = self._may_read()
            if may_read and self._backlog:
                self._is_reading = True
                self._take(self._backlog.popleft(), self.active_ns)
                continue
            if may_read != self._is_reading or self._backlog:
                self._is_reading = may_read
            if may_read:
                self._reserve()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
            return

    def _account(self, frames: list[memoryview], now_ns: int) -> None:
        """Take the frame that room was kept for; the others only if there is room."""
        traffic = self._traffic
        if frames and self._reserved_bytes:
            traffic.in_flight_bytes -= self._reserved_bytes
            self._reserved_bytes = 0
            if self._is_reading and not self._backlog:
                self._take(frames.pop(0), now_ns)
        if traffic.is_full and self._is_reading:
            self.look_at_limits()

    def _reserve(self) -> None:
        """Keep room for the rest of a frame that has begun, so that what has begun can end."""
        traffic = self._traffic
        if traffic.is_bounded and not self._reserved_bytes:
            start = self._reader.pending()[:SIZE_BYTES]
            if len(start) == SIZE_BYTES:
                self._reserved_bytes = int.from_bytes(start)
                traffic.in_flight_bytes += self._reserved_bytes

    def _may_read(self) -> bool:
        traffic = self._traffic
        if traffic.is_full and not self._reserved_bytes:
            traffic.starved.add(self)
            return False
        return (
            self._is_writable
            and not self._is_draining
            and not self._waits_for_records()
            and len(self._waiting) < traffic.requests_max
        )

    def _waits_for_records(self) -> bool:
        """Say whether a fetch is the last that was taken, and its answer has not been sent.

        What follows it would be answered behind it anyway; and as answers with records are large,
        a client must not have us hold more than one that it cannot be sent yet.
        """
        waiting = self._waiting
        return len(waiting) > 0 and waiting[-1].api_key in FETCHES

    def _refuse_bytes(self, error: WireError) -> None:
        """Close, and say what a client is most likely doing wrong."""
        start = bytes(self._reader.pending()[:4])
        if start in HTTP_METHODS:
            reason = f"an HTTP request on a Kafka port; {error}"
        elif start.startswith(TLS_HANDSHAKE):
            reason = f"a TLS handshake on a listener without TLS; {error}"
        else:
            reason = str(error)
        self.close(reason)
