"""A connection that a peer opened: its messages and requests come in, responses go out.

Handlers are called on the loop, in the order of the frames. What they raise is this node's fault
and is logged; the peer gets a failure, and the node goes on.
"""

import asyncio
import logging
from typing import Final, Protocol

from headrace.cluster.transport.calls import (
    MESSAGE,
    MESSAGE_LAYOUT,
    PING,
    PING_LAYOUT,
    REQUEST,
    REQUEST_LAYOUT,
    RESPONSE_LAYOUT,
    CallHandler,
    IncomingCall,
    InvalidPayload,
    MessageHandler,
    Status,
)
from headrace.cluster.transport.connection import NodeConnection
from headrace.cluster.transport.events import ConnectionRefused, Event, PeerCounters
from headrace.cluster.transport.handshake import Acceptor, Established, Local
from headrace.cluster.transport.hello import OPERATOR, Identity, Purpose
from headrace.cluster.transport.refusals import MALFORMED, Refused
from headrace.cluster.transport.settings import TransportSettings
from headrace.ids import BrokerId as NodeId
from headrace.wire.schema import Buffer

_COPIED_BYTES_MAX: Final = 64 * 1024
"""A smaller payload is copied, so that a waiting call does not hold the memory of a whole read."""

logger = logging.getLogger(__name__)


class AcceptingHub(Protocol):
    """What the accepted connections of a node have in common."""

    settings: TransportSettings
    message_handlers: dict[int, MessageHandler]
    call_handlers: dict[int, CallHandler]
    operator_kinds: set[int]
    newcomer_kinds: set[int]
    unregistered_kinds: set[int]

    def local(self, transport: asyncio.Transport) -> Local: ...
    def admit(self, accepted: "AcceptedPeer") -> bool: ...
    def judge_accepted(self, peer: Identity, purpose: Purpose) -> Refused | None: ...
    def may_act(self, peer: Identity) -> bool: ...
    def note_accepted(self, accepted: "AcceptedPeer") -> None: ...
    def note_gone(self, accepted: "AcceptedPeer", reason: str) -> None: ...
    def note_client(self, accepted: "AcceptedPeer", first_bytes: bytes) -> None: ...
    def note_refused(self, refused: Refused, node: NodeId | None) -> None: ...
    def emit(self, event: Event) -> None: ...
    def counters_of(self, node: NodeId) -> PeerCounters: ...
    def note_call_ended(self) -> None: ...


class AcceptedPeer:
    """One accepted connection."""

    def __init__(self, hub: AcceptingHub) -> None:
        self._hub = hub
        self._settings = hub.settings
        self.connection = NodeConnection(self, hub.settings)
        self.peer: Identity | None = None
        self.purpose = Purpose.CONTROL
        self.is_certified = True
        """Whether the peer has a certificate of the cluster, or needs none."""
        self._counters = PeerCounters()
        self.call_count = 0
        self._call_bytes = 0
        self._ticker: asyncio.TimerHandle | None = None

    # What its connection calls

    def make_handshake(self, transport: asyncio.Transport) -> Acceptor | None:
        if not self._hub.admit(self):
            return None
        return Acceptor(self._hub.local(transport), self._hub.judge_accepted)

    def on_established(self, connection: NodeConnection, established: Established) -> None:
        self.peer = established.peer
        self.purpose = established.purpose
        self.is_certified = established.is_certified
        self._counters = self._hub.counters_of(established.peer.node)
        self._hub.note_accepted(self)
        self._tick()

    def on_payload(self, connection: NodeConnection, payload: memoryview) -> None:
        assert self.peer is not None
        self._counters.bytes_received += len(payload)
        self._counters.messages_received += 1
        what = payload[0] if payload else None
        if what == MESSAGE and len(payload) >= MESSAGE_LAYOUT.size:
            self._on_message(self.peer, payload[1], payload[MESSAGE_LAYOUT.size :])
        elif what == PING and len(payload) == PING_LAYOUT.size:
            self._respond(Status.PONG, PING_LAYOUT.unpack_from(payload)[1], [])
        elif what == REQUEST and len(payload) >= REQUEST_LAYOUT.size:
            self._on_request(self.peer, payload)
        else:
            connection.refuse(MALFORMED)

    def on_writable(self, connection: NodeConnection) -> None:
        connection.hold(False)

    def on_client(self, connection: NodeConnection, first_bytes: bytes) -> None:
        self._hub.note_client(self, first_bytes)

    def on_refused(self, connection: NodeConnection, refused: Refused) -> None:
        node = None if self.peer is None else self.peer.node
        self._counters.refusals += 1
        self._hub.note_refused(refused, node)
        self._hub.emit(ConnectionRefused(node, connection.address, refused))

    def on_lost(self, connection: NodeConnection, reason: str) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._hub.note_gone(self, reason)

    # Inside

    def _on_message(self, peer: Identity, kind: int, payload: memoryview) -> None:
        handler = self._hub.message_handlers.get(kind)
        if handler is None or peer.node == OPERATOR or not self.is_certified:
            return  # a newer node's; it says it again or it does not matter
        if not self._hub.may_act(peer):
            return  # it was removed, or says it again once it is registered
        try:
            handler(peer, payload)
        except InvalidPayload as error:
            self.connection.refuse(MALFORMED._replace(sentence=f"a message of no sense: {error}"))
        except Exception:
            logger.exception("a message of kind %s from node %s failed", kind, peer.node)
            self.connection.close("a message could not be handled")

    def _on_request(self, peer: Identity, payload: memoryview) -> None:
        _, kind, correlation_id, timeout_ms = REQUEST_LAYOUT.unpack_from(payload)
        view = payload[REQUEST_LAYOUT.size :]
        handler = self._hub.call_handlers.get(kind)
        if handler is None or not self._may_call(peer, kind):
            self._respond(Status.UNKNOWN_KIND, correlation_id, [])
            return
        settings = self._settings
        is_full = self._call_bytes + len(view) > settings.incoming_call_bytes_max
        if is_full or self.call_count >= settings.incoming_calls_max:
            self._respond(Status.BUSY, correlation_id, [])
            return
        data: Buffer = bytes(view) if len(view) <= _COPIED_BYTES_MAX else view
        call = IncomingCall(peer, correlation_id, timeout_ms, data, self._on_answered)
        call.is_certified = self.is_certified
        self.call_count += 1
        self._call_bytes += len(data)
        try:
            handler(call)
        except InvalidPayload as error:
            call.fail(f"a request of no sense: {error}")
            self.connection.refuse(MALFORMED._replace(sentence=f"a request of no sense: {error}"))
        except Exception:
            logger.exception("a call of kind %s from node %s failed", kind, peer.node)
            if not call.is_answered:
                call.fail("an internal error, see the log of the node")

    def _may_call(self, peer: Identity, kind: int) -> bool:
        if peer.node == OPERATOR:
            return kind in self._hub.operator_kinds
        if kind in self._hub.newcomer_kinds:
            return True
        if not self.is_certified:
            return False
        return kind in self._hub.unregistered_kinds or self._hub.may_act(peer)

    def _on_answered(self, call: IncomingCall, status: Status, parts: list[Buffer]) -> None:
        self.call_count -= 1
        self._call_bytes -= len(call.payload)
        call.payload = b""
        size = RESPONSE_LAYOUT.size + sum(map(len, parts))
        if size > self._settings.frame_bytes_max:
            status = Status.FAILED
            parts = [b"the response is too large for a frame"]
        self._respond(status, call.correlation_id, parts)
        self._hub.note_call_ended()

    def _respond(self, status: Status, correlation_id: int, parts: list[Buffer]) -> None:
        connection = self.connection
        if connection.is_closed:
            return
        head = RESPONSE_LAYOUT.pack(status, correlation_id)
        self._counters.bytes_sent += len(head) + sum(map(len, parts))
        self._counters.messages_sent += 1
        connection.send([head, *parts])
        if not connection.is_writable:
            connection.hold(True)
            if connection.unsent_bytes > self._settings.unsent_response_bytes_max:
                connection.close("the peer leaves too many bytes of responses unread")

    def _tick(self) -> None:
        """Look whether the peer has been there: it pings."""
        silence_ms_max = self._settings.accepted_silence_ms_max
        silent_ms = self.connection.silent_ms()
        if silent_ms > silence_ms_max:
            self.connection.close(f"not a word for {silence_ms_max} ms")
        elif not self.connection.is_closed:
            seconds = max(1, silence_ms_max - silent_ms) / 1000
            self._ticker = asyncio.get_running_loop().call_later(seconds, self._tick)
