"""One connection between two nodes, on the loop: the handshake, then frames.

What arrives is handled for a few milliseconds at a time; nothing is read meanwhile. What a peer
can make us hold is a handshake of a few kilobytes, then one frame that is not whole, and the frames
of one read. Whatever bytes come, the worst is that the connection ends with a reason.
"""

import asyncio
import ssl
from collections import deque
from typing import Final, Protocol, cast

from headrace.cluster.protocol import ProtocolError
from headrace.cluster.transport.handshake import (
    Acceptor,
    Established,
    Initiator,
    SeedClient,
    Step,
)
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.refusals import (
    CLOSED_EARLY,
    FORGED_FRAME,
    TIMED_OUT,
    Reason,
    Refused,
    tls_failed,
)
from headrace.cluster.transport.sealing import Opener, Sealer, frame_reader
from headrace.cluster.transport.settings import TransportSettings
from headrace.cluster.transport.tls import explain_tls
from headrace.surroundings import clocks
from headrace.wire.schema import Buffer

HANDSHAKE_READ_BYTES: Final = 4096
READ_BYTES_MAX: Final = 32 * 1024
"""How much is read at a time: so many tiny frames are split within a few milliseconds."""
SENT_TURNS: Final = 5
"""How many turns of the loop it takes at most until what was written is on its way."""
TURN_NS_MAX: Final = 4_000_000
"""How long the frames of one connection are handled before others have their turn."""


class Owner(Protocol):
    """The owner of a connection."""

    def make_handshake(self, transport: asyncio.Transport) -> Initiator | Acceptor | None:
        """Return the machine for a connection, None to end it at once."""

    def on_established(self, connection: "NodeConnection", established: Established) -> None: ...
    def on_payload(self, connection: "NodeConnection", payload: memoryview) -> None: ...
    def on_writable(self, connection: "NodeConnection") -> None: ...
    def on_client(self, connection: "NodeConnection", first_bytes: bytes) -> None:
        """Accept a program of seed 002; reading is paused."""

    def on_refused(self, connection: "NodeConnection", refused: Refused) -> None:
        """Learn of a refusal, here or there; `on_lost` follows."""

    def on_lost(self, connection: "NodeConnection", reason: str) -> None:
        """Learn, once, that it is over; nothing is delivered any more."""


class NodeConnection(asyncio.BufferedProtocol):
    """One socket, until either side ends it."""

    def __init__(self, owner: Owner, settings: TransportSettings) -> None:
        self.peer: Identity | None = None
        self.address = ""
        self.is_closed = False
        self.is_writable = True
        self.heard_ns = 0
        """When something last came."""
        self.certificate = b""
        """The certificate that the peer presented under TLS, whoever has signed it."""
        self._owner = owner
        self._settings = settings
        self._monotonic_ns = clocks().monotonic_ns
        self._handshake: Initiator | Acceptor | None = None
        self._memory = memoryview(bytearray(HANDSHAKE_READ_BYTES))
        self._reader = frame_reader(settings.frame_bytes_max)
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._backlog: deque[memoryview] = deque()
        self._next_turn: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._reason = ""
        self._is_held = False
        self._is_tls = False
        self._transport: asyncio.Transport | None = None

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else "(unknown)"
        self.heard_ns = self._monotonic_ns()
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            self._is_tls = True
            self.certificate = tls.getpeercert(binary_form=True) or b""
        handshake = None if self.is_closed else self._owner.make_handshake(self._transport)
        if handshake is None:
            self.is_closed = True
            self._transport.abort()
            return
        self._handshake = handshake
        self._transport.set_write_buffer_limits(high=self._settings.unsent_bytes_high)
        self._deadline = asyncio.get_running_loop().call_later(
            self._settings.handshake_timeout_ms / 1000, self._on_deadline
        )
        if isinstance(handshake, Initiator):
            self._advance(handshake.start())

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._opener is None:
            return self._memory
        return self._reader.buffer()[:READ_BYTES_MAX]

    def buffer_updated(self, count: int) -> None:
        if self.is_closed:
            return
        self.heard_ns = self._monotonic_ns()
        if self._opener is None:
            assert self._handshake is not None
            self._advance(self._handshake.receive(bytes(self._memory[:count])))
            return
        try:
            frames = self._reader.advance(count)
        except ProtocolError as error:
            self.refuse(_too_large(error))
            return
        self._take(frames)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        if not self.is_closed and self.peer is not None:
            self._owner.on_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason or (str(exc) if exc else "the other side hung up")
        if not self.is_closed and self._handshake is not None and self._opener is None:
            refused = self._handshake.closed()
            if isinstance(exc, ssl.SSLError):
                refused = tls_failed(explain_tls(exc))
            elif self._is_tls_client and refused == CLOSED_EARLY:
                # With TLS 1.3 a certificate is refused after the handshake is over for its owner.
                refused = tls_failed("it hung up; it may not take our certificate")
            self._owner.on_refused(self, refused)
        self._end(reason)

    # What the owner calls

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def silent_ms(self) -> int:
        """Return for how long nothing has come."""
        return (self._monotonic_ns() - self.heard_ns) // 1_000_000

    def send(self, parts: list[Buffer]) -> None:
        """Write a payload, which the caller has found to fit a frame."""
        if self.is_closed or self._sealer is None or self._transport is None:
            return
        self._transport.writelines(self._sealer.seal(parts))

    def hold(self, is_held: bool) -> None:
        """Read nothing more while held: the peer does not take what it is sent."""
        self._is_held = is_held
        self._look_whether_to_read()

    def close(self, reason: str, *, last_bytes: bytes = b"", is_gentle: bool = False) -> None:
        """End the connection; nothing is delivered any more.

        Gently, what was written is still sent.
        """
        if self.is_closed:
            return
        self._reason = reason
        transport = self._transport
        self._end(reason)
        if transport is not None:
            if last_bytes:
                transport.write(last_bytes)
            # Under TLS a farewell would wait for the other side's, which a stranger never says.
            is_said = self._is_tls_client and not transport.get_write_buffer_size()
            if last_bytes and self._is_tls:
                _abort_soon(transport)
            elif last_bytes or (is_gentle and not is_said):
                transport.close()
            else:
                transport.abort()

    def refuse(self, refused: Refused, last_bytes: bytes = b"") -> None:
        """End the connection for a reason that people should know of."""
        if not self.is_closed:
            self._owner.on_refused(self, refused)
            self.close(str(refused), last_bytes=last_bytes)

    def release(self) -> asyncio.Transport:
        """Hand the socket over to whoever sets another protocol on it."""
        assert self._transport is not None
        self._end("it is a program of seed 002")
        return self._transport

    # Inside

    @property
    def _is_tls_client(self) -> bool:
        return bool(self.certificate) and isinstance(self._handshake, Initiator)

    def _advance(self, step: Step) -> None:
        assert self._transport is not None
        outcome = step.outcome
        if isinstance(outcome, Refused):
            self.refuse(outcome, step.send)
            return
        if step.send:
            self._transport.write(step.send)
        if isinstance(outcome, SeedClient):
            self._transport.pause_reading()
            self._owner.on_client(self, outcome.first_bytes)
        elif isinstance(outcome, Established):
            self._establish(outcome)

    def _establish(self, established: Established) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.peer = established.peer
        self._memory = memoryview(b"")
        self._sealer = Sealer(established.send_key)
        self._opener = Opener(established.receive_key)
        self._owner.on_established(self, established)
        if established.rest and not self.is_closed:
            try:
                frames = self._reader.feed(established.rest)
            except ProtocolError as error:
                self.refuse(_too_large(error))
            else:
                self._take(frames)

    def _take(self, frames: list[memoryview]) -> None:
        self._backlog.extend(frames)
        if self._next_turn is None:
            self._run_turn()

    def _run_turn(self) -> None:
        """Handle frames until there are none, or it is the turn of others."""
        self._next_turn = None
        backlog, monotonic_ns, owner = self._backlog, self._monotonic_ns, self._owner
        assert self._opener is not None
        ends_ns = monotonic_ns() + TURN_NS_MAX
        while backlog and not self.is_closed:
            payload = self._opener.open(backlog.popleft())
            if payload is None:
                self.refuse(FORGED_FRAME)
                return
            owner.on_payload(self, payload)
            if backlog and monotonic_ns() > ends_ns:  # none is left once closed
                self._next_turn = asyncio.get_running_loop().call_soon(self._run_turn)
                break
        self._look_whether_to_read()

    def _look_whether_to_read(self) -> None:
        if self.is_closed or self._transport is None:
            return
        if self._is_held or self._next_turn is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _on_deadline(self) -> None:
        if not self.is_closed and self._opener is None:
            self.refuse(TIMED_OUT)

    def _end(self, reason: str) -> None:
        for handle in (self._next_turn, self._deadline):
            if handle is not None:
                handle.cancel()
        self._backlog.clear()
        if not self.is_closed:
            self.is_closed = True
            self._owner.on_lost(self, reason)


def _abort_soon(transport: asyncio.Transport, turns: int = SENT_TURNS) -> None:
    """End a connection whose last bytes are few: they are sent within some turns of the loop."""
    if turns:
        asyncio.get_running_loop().call_soon(_abort_soon, transport, turns - 1)
    else:
        transport.abort()


def _too_large(error: ProtocolError) -> Refused:
    return Refused(
        Reason.FRAME_TOO_LARGE, str(error), "give all nodes the same limits of Raft's entries"
    )
