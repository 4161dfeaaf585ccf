"""One request of seed 002: read from its bytes, handled as Kafka's, answered in its own bytes.

To a connection and to a handler of Kafka's it is a `Request` like any other: it waits, holds later
ones back and is answered in turn.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from headrace.cluster.protocol import (
    ClusterErrorCode,
    ClusterRequest,
    ClusterResponse,
    ProtocolError,
    frame_parts,
    requests,
    response_parts,
    responses,
)
from headrace.cluster.protocol.postcard import Buffer
from headrace.server.interchange.refusals import Refusal, error_response
from headrace.server.request import Peer, Request
from headrace.wire import ApiKey
from headrace.wire.schema import Message

CLIENT_ID: Final = "seed-002"
"""The client that handlers see. Not the request's source: some client ids have rights."""
INLINE_PARTITIONS_MAX: Final = 300
"""A response with more partitions (some milliseconds of work) is encoded in a thread."""
TIMEOUT_MS_MAX: Final = 2**31 - 1
"""Kafka's timeouts have 31 bits."""

Translation: TypeAlias = Callable[[Any], ClusterResponse]
"""Makes the response of Kafka's; raises KafkaError or Refusal if that has an error."""


class Forwarded(NamedTuple):
    """A request of Kafka's that does what a request of seed 002 asks for."""

    body: Message
    version: int
    translate: Translation


Handled: TypeAlias = (
    ClusterResponse | Forwarded | Coroutine[Any, Any, ClusterResponse | Forwarded | None]
)
"""What a handler of this package returns."""


class ClusterCall(Request):
    """One request, from its bytes to its response."""

    __slots__ = ("_timer", "_translate", "asked", "is_answered_early", "refusal")

    asked: ClusterRequest
    """What it asks for, unless it was refused."""

    def __init__(
        self, peer: Peer, asked: ClusterRequest | None, size_bytes: int, received_ns: int
    ) -> None:
        key = ApiKey.METADATA if asked is None else _API_KEYS[type(asked)]
        correlation_id = 0 if asked is None else asked.header.correlation_id
        super().__init__(
            peer, int(key), 0, correlation_id, CLIENT_ID, None, size_bytes, received_ns
        )
        if asked is not None:
            self.asked = asked
        self.is_answered_early = False
        self.refusal: responses.Error | None = None
        """The response to a frame that is no request."""
        self._translate: Translation | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def refused(
        cls, peer: Peer, refusal: responses.Error, frame: memoryview, now_ns: int
    ) -> Request:
        """Return a call that is answered with its refusal, when it is its turn."""
        call = cls(peer, None, len(frame), now_ns)
        call.correlation_id = refusal.header.correlation_id
        call.refusal = refusal
        return call

    @property
    def timeout_ms(self) -> int:
        return min(self.asked.header.timeout_ms, TIMEOUT_MS_MAX)

    def forward(self, forwarded: Forwarded) -> None:
        """Become a request of Kafka's."""
        self.api_key = forwarded.body.API_KEY
        self.version = forwarded.version
        self.body = forwarded.body
        self._translate = forwarded.translate

    def answer(self, body: Message | None, *, is_large: bool = False) -> None:
        """Translate the response of Kafka's and send it; called once, by a handler of Kafka's."""
        assert self._translate is not None
        try:
            response = self._translate(body)
        except Exception as error:
            self.peer.on_failed(self, error)
        else:
            self.respond(response)

    def respond(self, response: ClusterResponse) -> None:
        """Send the response, unless the request has timed out and has one."""
        if self.parts is not None:
            return
        self._stop_timer()
        self.on_drain = None
        if isinstance(response, responses.Metadata) and _partition_count(response) > (
            INLINE_PARTITIONS_MAX
        ):
            loop = asyncio.get_running_loop()
            encoding = loop.run_in_executor(None, _encode, response)
            encoding.add_done_callback(self._on_encoded)
            return
        try:
            parts = _encode(response)
        except ProtocolError as error:  # it is too large
            parts = _encode(error_response(self.correlation_id, error))
        self._send(parts)

    def release(self) -> None:
        super().release()
        self.let_records_go()

    def let_records_go(self) -> None:
        """Forget the records of an Append that has taken effect.

        It may wait long for replicas, with nobody at the other end.
        """
        if isinstance(self.asked, requests.Append) and not self.is_holding:
            self.asked = replace(self.asked, records=b"")
            self.body.topic_data[0].partition_data[0].records = None

    def start_timer(self) -> None:
        """Answer with RequestTimedOut if there is no response in time."""
        if self.parts is None and self._timer is None:
            seconds = self.timeout_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)
            self.peer.on_close[self._stop_timer] = None

    def _time_out(self) -> None:
        self.respond(
            error_response(
                self.correlation_id,
                Refusal(
                    ClusterErrorCode.REQUEST_TIMED_OUT,
                    f"not done within {self.timeout_ms} ms; it may still be: look before asking "
                    "again",
                ),
            )
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.peer.on_close.pop(self._stop_timer, None)

    def _on_encoded(self, encoding: "asyncio.Future[list[Buffer]]") -> None:
        if self.peer.is_closed or self.parts is not None or encoding.cancelled():
            return
        error = encoding.exception()
        if isinstance(error, Exception):
            self.peer.on_failed(self, error)
        else:
            self._send(encoding.result())

    def _send(self, parts: list[Buffer]) -> None:
        self.parts = parts
        self.peer.on_answered(self)


def _encode(response: ClusterResponse) -> list[Buffer]:
    return frame_parts(response_parts(response))


def _partition_count(response: responses.Metadata) -> int:
    return len(response.brokers) + sum(1 + len(topic.partitions) for topic in response.topics)


_API_KEYS: Final[dict[type, ApiKey]] = {
    requests.FetchMetadata: ApiKey.METADATA,
    requests.ProposeMetadata: ApiKey.ENVELOPE,
    requests.Fetch: ApiKey.FETCH,
    requests.Append: ApiKey.PRODUCE,
    requests.ReplicaState: ApiKey.ALTER_PARTITION,
    requests.ElectLeader: ApiKey.ELECT_LEADERS,
    requests.Heartbeat: ApiKey.BROKER_HEARTBEAT,
}
"""Kafka's APIs for the same things: requests are counted as theirs, and an Append that waits lets
the next one begin, as a Produce does."""
