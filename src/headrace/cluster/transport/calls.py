"""Requests and responses between nodes: their bytes behind the seal, and how a call can fail.

from who opened:   0 | correlation id 8                                  a ping
                   1 | kind 1 | payload                                  a message
                   2 | kind 1 | correlation id 8 | timeout ms 4 | payload   a request
from who accepted: status 1 | correlation id 8 | payload                 a response
"""

from collections.abc import Callable
from enum import IntEnum, unique
from struct import Struct as Layout
from typing import Final

from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.refusals import Refused
from headrace.errors import HeadraceError
from headrace.ids import BrokerId as NodeId
from headrace.wire.schema import Buffer

PING: Final = 0
MESSAGE: Final = 1
REQUEST: Final = 2

PING_LAYOUT: Final = Layout(">BQ")
MESSAGE_LAYOUT: Final = Layout(">BB")
REQUEST_LAYOUT: Final = Layout(">BBQI")
RESPONSE_LAYOUT: Final = Layout(">BQ")

KIND_MAX: Final = 255
TIMEOUT_MS_MAX: Final = 2**32 - 1
FAILURE_BYTES_MAX: Final = 1000
RAFT_KIND: Final = 65
"""As in the list of our own messages: 64 hello, 65 Raft, 66 propose entry and on."""


@unique
class Status(IntEnum):
    """What a response is."""

    ANSWERED = 0
    FAILED = 1
    """The payload says why."""
    BUSY = 2
    """Too many calls are handled for this peer; nothing was done."""
    UNKNOWN_KIND = 3
    PONG = 4


class CallError(HeadraceError):
    """A call without a response."""

    is_uncertain = False
    """Whether the other node may have done what was asked."""
    refused: Refused | None = None
    """Why the connection was refused, if that is the reason."""

    def __init__(self, node: NodeId | None, reason: str) -> None:
        self.node = node
        self.reason = reason
        peer = "the node" if node is None else f"node {node}"
        super().__init__(f"{peer}: {reason}")


class NotConnected(CallError):
    """The request was never sent."""


class TooManyCalls(CallError):
    """This node or the other has as many calls under way as it may; nothing was done."""


class CallTimedOut(CallError):
    is_uncertain = True


class ConnectionLost(CallError):
    """The connection went while the call was under way."""

    is_uncertain = True


class CallFailed(CallError):
    """The other node says that it cannot be done."""


class InvalidPayload(HeadraceError):
    """Raised by a handler: no correct node sends this. The connection ends."""


MessageHandler = Callable[[Identity, memoryview], None]
"""Takes a message; the view is good until it returns. InvalidPayload if it is no such message."""


class IncomingCall:
    """A request of a peer: call `answer` or `fail`, once, now or later."""

    __slots__ = (
        "_respond",
        "correlation_id",
        "is_answered",
        "is_certified",
        "payload",
        "sender",
        "timeout_ms",
    )

    def __init__(
        self,
        sender: Identity,
        correlation_id: int,
        timeout_ms: int,
        payload: Buffer,
        respond: Callable[["IncomingCall", Status, list[Buffer]], None],
    ) -> None:
        self.sender = sender
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        """How long the caller waits."""
        self.payload = payload
        self.is_answered = False
        self.is_certified = True
        """Whether a certificate of the cluster says who the sender is, or none is needed."""
        self._respond = respond

    def answer(self, *parts: Buffer) -> None:
        """Send a response, which may have several pieces."""
        self._settle(Status.ANSWERED, list(parts))

    def fail(self, sentence: str) -> None:
        """Refuse the call, with the reason."""
        text = sentence.encode(errors="replace")[:FAILURE_BYTES_MAX]
        self._settle(Status.FAILED, [text])

    def _settle(self, status: Status, parts: list[Buffer]) -> None:
        if self.is_answered:
            raise RuntimeError("a call is answered once")
        self.is_answered = True
        self._respond(self, status, parts)


CallHandler = Callable[[IncomingCall], None]
