"""One request of a connection, and the three ways in which a handler responds.

A handler is a function of the broker and the request. It

- returns the response: the usual way, and the quick one;
- is `async def`: a task runs it, and its result is the response;
- returns `LATER` and calls `request.answer` later: for requests that often wait, as a fetch waits
  for new records, and should not cost a task.

The next request of the connection is handled when this one has its response. A produce is
different: a following produce is handled as soon as the handler returns, or, if it called
`request.hold`, when it calls `request.release`.

The dispatcher handles a handler's exception: the client gets UNKNOWN_SERVER_ERROR, the log a line.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from headrace.errors import KafkaError
from headrace.loop.slices import in_slices
from headrace.security.authentication import Authentication
from headrace.wire import ApiKey, response_parts, with_correlation_id
from headrace.wire.codec import Part
from headrace.wire.elements import has_elements
from headrace.wire.schema import Message

if TYPE_CHECKING:
    from headrace.server.broker import Broker
    from headrace.server.metering import Toll

INLINE_ELEMENTS_MAX: Final = 2000
"""A response with more elements (some milliseconds of work) is encoded in a thread."""
SMALL_RESPONSES: Final = frozenset(
    {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.HEARTBEAT}
)
"""The hot APIs: small requests have small responses, whose elements are not counted."""
SMALL_REQUEST_BYTES: Final = 64 * 1024


class Peer(Protocol):
    """A request's view of its connection."""

    listener: str
    """The name of the listener."""
    address: str
    """The client's address, as `host:port`."""
    host: str
    """The client's address without its port, as ACLs name it."""
    principal: str
    """The authenticated client, as `User:NAME`."""
    authentication: Authentication | None
    """The exchange of SASL, on listeners that have it."""
    client_software: str
    """The client's software name and version (KIP-511); empty if it sent none."""
    is_closed: bool
    on_close: dict[Callable[[], None], None]
    """Called once when the connection closes."""

    def on_answered(self, request: "Request") -> None:
        """Send the responses that are ready, in the order of their requests."""

    def on_released(self) -> None:
        """Handle the produce requests that waited for an earlier one to take effect."""

    def on_failed(self, request: "Request", error: Exception) -> None:
        """Respond to a request that failed after its handler returned `LATER`."""

    def close(self, reason: str) -> None:
        """Close the connection; one log line has the reason."""

    def mute(self, duration_ms: int, left_ms: Callable[[], int] | None = None) -> None:
        """Handle no further request for a while; `left_ms` says how much of it is left."""

    def finish(self, reason: str) -> None:
        """Close the connection once the responses to its requests are sent."""

    @property
    def is_expired(self) -> bool:
        """Whether its client has to authenticate again before it is served."""

    @property
    def failure_delay_ms(self) -> int:
        """How long a client waits to hear that it failed to authenticate."""

    def on_authenticated(self) -> None:
        """Admit the client: its authentication has a principal."""


class Request:
    """One request, from its bytes to its response."""

    __slots__ = (
        "amend",
        "api_key",
        "body",
        "client_id",
        "correlation_id",
        "denied",
        "is_holding",
        "on_drain",
        "parts",
        "peer",
        "received_ns",
        "size_bytes",
        "toll",
        "version",
    )

    amend: Callable[[Any], Any]
    """Completes the response of an `AmendedRequest`."""
    denied: "Denied"
    """Topics that a fetch or acknowledgement may not read; only there with an authorizer."""
    toll: "Toll"
    """What a `server.metering.MeteredRequest` uses up of quotas."""
    is_metered: bool = False
    """Whether quotas limit the client: only then there is a toll."""
    is_answered_early: bool = False
    """Whether a produce is answered when its records are in the log, whatever else is awaited."""

    def __init__(  # noqa: PLR0917  one a request: no keywords on the hot path
        self,
        peer: Peer,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
        size_bytes: int,
        received_ns: int,
    ) -> None:
        self.peer = peer
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        """The decoded message; the handler knows its type."""
        self.size_bytes = size_bytes
        self.received_ns = received_ns
        self.is_holding = False
        """Whether later produce requests have to wait: this one has not taken effect."""
        self.on_drain: Callable[[], None] | None = None
        """Responds to a waiting request early, because the node is stopping. Set by handlers that
        return `LATER`, and unused once there is a response."""
        self.parts: list[Part] | None = None
        """The encoded response once there is one; empty if the client wants none."""

    def hold(self) -> None:
        """Make later produce requests wait: this one takes effect after its handler returns."""
        self.is_holding = True

    def release(self) -> None:
        """Unblock later produce requests: this one has taken effect."""
        self.is_holding = False
        self.peer.on_released()

    def answer(self, body: Message | None, *, is_large: bool = False) -> None:
        """Send the response; None means that there is none. Call it once.

        `is_large` is for a response that has many elements although its request is small.
        """
        self.on_drain = None
        if body is None:
            self.parts = []
        elif is_large or (
            (self.api_key not in SMALL_RESPONSES or self.size_bytes > SMALL_REQUEST_BYTES)
            and has_elements(body, INLINE_ELEMENTS_MAX)
        ):
            self._answer_from_thread(body)
            return
        else:
            self.parts = response_parts(self.api_key, self.version, self.correlation_id, body)
        self.peer.on_answered(self)

    def answer_again(self, parts: list[Part]) -> None:
        """Send a response that was encoded for another request of this version.

        Not for a metered request, whose response says how long its client is held back.
        """
        self.on_drain = None
        self.parts = with_correlation_id(parts, self.correlation_id)
        self.peer.on_answered(self)

    def amend_with(self, amend: Callable[[Any], Any]) -> None:
        """Complete the response before it is sent: not all of the request was carried out."""
        self.amend = amend
        self.__class__ = AmendedRequest

    def timed(self, work: Awaitable[Message]) -> Awaitable[Message]:
        """Return what computes the response; a metered request measures how long that takes."""
        return work

    def _answer_from_thread(self, body: Message) -> None:
        """Encode a large response in a thread, where it does not delay other clients."""
        encoding = asyncio.get_running_loop().run_in_executor(
            None, response_parts, self.api_key, self.version, self.correlation_id, body
        )
        encoding.add_done_callback(self._on_encoded)

    def _on_encoded(self, encoding: "asyncio.Future[list[Part]]") -> None:
        if self.peer.is_closed or encoding.cancelled():
            return
        error = encoding.exception()
        if isinstance(error, Exception):
            self.peer.on_failed(self, error)
        else:
            self.parts = encoding.result()
            self.peer.on_answered(self)


class AmendedRequest(Request):
    """A request that its handler sees only a part of. Others pay nothing for this."""

    __slots__ = ()

    def answer(self, body: Message | None, *, is_large: bool = False) -> None:
        """Send the response with what is to be added to it."""
        amended: Any = None if body is None else self.amend(body)
        if type(amended) is GeneratorType:
            amended = in_slices(amended)
            if type(amended) is CoroutineType:
                # Its turns hold it until it is done.
                asyncio.get_running_loop().create_task(self._answer_later(amended, is_large))
                return
        super().answer(amended, is_large=is_large)

    async def _answer_later(self, amending: Awaitable[Message], is_large: bool) -> None:
        try:
            body = await amending
            if not self.peer.is_closed:
                super().answer(body, is_large=is_large)
        except Exception as error:
            self.__class__ = Request  # type: ignore[assignment]
            self.peer.on_failed(self, error)


class Denied(Protocol):
    """The topics that a client may not read (`rights.sessions.DeniedTopics`)."""

    def has(self, name: str, topic_id: bytes) -> bool | None:
        """Return whether a topic may not be read; None if there is no topic with that id."""

    def has_changed(self) -> bool:
        """Return, once, whether ACLs changed since the last look; KafkaError if all is denied."""

    def refusal(self) -> KafkaError:
        """Return the error for such a topic."""


class _Later:
    """The type of `LATER`."""


LATER: Final = _Later()
"""Returned by a handler that calls `Request.answer` itself."""

Answer: TypeAlias = Message | _Later | None
"""None is for requests without a response: a produce with acks=0."""
Handler: TypeAlias = Callable[["Broker", Request], Answer | Coroutine[Any, Any, Message]]
Guard: TypeAlias = Callable[[ApiKey, Handler], Handler]
"""Returns a handler that checks the rights of its clients before another one is called."""
