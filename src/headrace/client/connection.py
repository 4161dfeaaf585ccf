"""One connection to one node: pipelined requests, with responses in their order.

`open_connection` connects and negotiates versions; from then on a request uses the newest version
that both sides know. A broker too old for our ApiVersions responds in version 0 and lists the
versions that it knows (KIP-511).

A request that times out closes the connection, because a late response would shift all later ones.
When a connection ends, all its pending requests fail with one error that names the node.

TLS and SASL are in `security.opening`. While a connection authenticates again (KIP-368), requests
wait as they do while the socket is full.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct as Layout
from typing import Final, TypeVar, cast

import msgspec

from headrace import __version__
from headrace.client.addresses import Address
from headrace.client.errors import (
    AuthenticationFailed,
    NotReachable,
    TlsFailed,
    UnsupportedApi,
    raise_for,
)
from headrace.client.security.settings import PLAINTEXT
from headrace.client.settings import CLIENT_SOFTWARE, RESPONSE_BYTES_MAX, ClientSettings
from headrace.errors import ErrorCode
from headrace.wire import APIS, ApiKey, FrameReader, WireError, read_response, request_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.messages.request_header import RequestHeader
from headrace.wire.schema import Message, VersionRange

M = TypeVar("M", bound=Message)

_ERROR_CODE: Final = Layout(">h")
_CORRELATION_ID_BYTES: Final = 4
_CORRELATION_ID_MAX: Final = 2**31 - 1


async def open_connection(address: Address, settings: ClientSettings) -> "Connection":
    """Connect, negotiate versions and authenticate.

    Raise NotReachable with the reason if that fails, AuthenticationFailed if one side does not
    accept who the other is, and InvalidSecurity for key material that cannot be used.
    """
    loop = asyncio.get_running_loop()
    connection = Connection(address, settings)
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            if settings.security.protocol == PLAINTEXT.protocol:
                await loop.create_connection(lambda: connection, address.host, address.port)
                await connection.negotiate()
            else:
                from headrace.client.security.opening import open_secured  # noqa: PLC0415

                await open_secured(connection, settings.security)
    except TimeoutError:
        connection.close()
        raise NotReachable(
            f"{address} did not respond within {settings.connect_timeout_ms} ms; "
            "is it a Kafka listener, and does a firewall block it?"
        ) from None
    except (OSError, UnicodeError) as error:  # some names cannot be looked up: a..b
        raise NotReachable(f"cannot connect to {address}: {_reason(error)}") from None
    except BaseException:
        connection.close()
        raise
    return connection


class _Waiting(msgspec.Struct):
    """A request in flight."""

    correlation_id: int
    key: ApiKey
    version: int
    answer: asyncio.Future[memoryview]
    timer: asyncio.TimerHandle


class Connection(asyncio.BufferedProtocol):
    """Requests and responses of one node. Created by `open_connection`."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.versions: dict[int, VersionRange] = {}
        """The broker's supported versions, by API key."""
        self.features: dict[str, int] = {}
        """The cluster's finalized features, by name."""
        self._settings = settings
        self._reader = FrameReader(RESPONSE_BYTES_MAX)
        self._waiting: deque[_Waiting] = deque()
        self._next_correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._failure: NotReachable | AuthenticationFailed | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_full = False
        self._is_held = False
        self._explains: Callable[[Exception], NotReachable | AuthenticationFailed] | None = None
        self._on_end: list[Callable[[], object]] = []

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self._failure is None

    @property
    def certificate(self) -> bytes:
        """The certificate of the broker, in DER; empty without TLS."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return b"" if tls is None else tls.getpeercert(binary_form=True) or b""

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return len(self._waiting)

    def version_of(self, key: ApiKey) -> int:
        """Return the newest version of an API that both sides know, or raise UnsupportedApi."""
        theirs, api = self.versions.get(key), APIS[key]
        if theirs is None:
            raise UnsupportedApi(f"{self.address} does not serve {api.name}; a newer broker might")
        newest = api.versions.last - (1 if api.is_newest_unstable else 0)
        version = min(theirs.last, newest)
        if version < max(theirs.first, api.versions.first):
            raise UnsupportedApi(
                f"{self.address} serves {api.name} in versions {theirs}, "
                f"this client knows {api.versions}"
            )
        return version

    async def request(
        self,
        body: Message,
        answer_type: type[M],
        *,
        version: int | None = None,
        patience_ms: int = 0,
    ) -> M:
        """Send a request and return its response.

        `patience_ms` is how long the request lets the broker wait, on top of the request timeout.
        """
        key = ApiKey(body.API_KEY)
        if version is None:
            version = self.version_of(key)
        while not self._may_write.is_set():
            await self._may_write.wait()
        frame = await self._send(key, version, body, patience_ms)
        return self._read(frame, key, version, answer_type)

    async def send_unanswered(self, body: Message) -> None:
        """Send a request without a response: Produce with acks=0."""
        key = ApiKey(body.API_KEY)
        while not self._may_write.is_set():
            await self._may_write.wait()
        self._write(key, self.version_of(key), body)

    async def negotiate(self) -> None:
        """Ask which versions the broker serves."""
        version = APIS[ApiKey.API_VERSIONS].versions.last
        answer = await self._ask_versions(version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = (row for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS)
            newest = max((row.max_version for row in offered), default=0)
            answer = await self._ask_versions(min(version, newest))
        raise_for(answer.error_code, None, f"the first exchange with {self.address}")
        self.versions = {
            row.api_key: VersionRange(row.min_version, row.max_version) for row in answer.api_keys
        }
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}

    def close(self) -> None:
        """Close the connection; pending requests fail."""
        self.fail(NotReachable(f"the connection to {self.address} was closed here"))

    # What the security of a connection needs.

    def converse(
        self, make_body: Callable[[], Message], key: ApiKey, answer_type: type[M]
    ) -> Awaitable[M]:
        """Send a request even while others are held; return its response when awaited.

        The body may hold a secret, so it lives only while this runs, and in no frame that an error
        of the connection could show.
        """
        version = self.version_of(key)
        self._check_open()
        sent = self._send(key, version, make_body(), 0)
        return self._received(sent, key, version, answer_type)

    async def _received(
        self, sent: asyncio.Future[memoryview], key: ApiKey, version: int, answer_type: type[M]
    ) -> M:
        return self._read(await sent, key, version, answer_type)

    def hold(self) -> None:
        """Make requests wait until `release`; those in flight go on."""
        self._is_held = True
        self._may_write.clear()

    def release(self) -> None:
        """Resume requests."""
        self._is_held = False
        if not self._is_full:
            self._may_write.set()

    def explain_with(
        self, explain: Callable[[Exception], NotReachable | AuthenticationFailed]
    ) -> None:
        """Use this function to explain why the transport ended, if it ends with an error."""
        self._explains = explain

    def when_ended(self, call: Callable[[], object]) -> None:
        """Call this when the connection ends."""
        self._on_end.append(call)

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        body = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=__version__
        )
        frame = await self._send(ApiKey.API_VERSIONS, version, body, 0)
        if len(frame) >= _CORRELATION_ID_BYTES + _ERROR_CODE.size:
            (code,) = _ERROR_CODE.unpack_from(frame, _CORRELATION_ID_BYTES)
            if code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        return self._read(frame, ApiKey.API_VERSIONS, version, ApiVersionsResponse)

    def _send(
        self, key: ApiKey, version: int, body: Message, patience_ms: int
    ) -> asyncio.Future[memoryview]:
        correlation_id = self._write(key, version, body)
        loop = asyncio.get_running_loop()
        timeout_ms = self._settings.request_timeout_ms + patience_ms
        waiting = _Waiting(
            correlation_id,
            key,
            version,
            loop.create_future(),
            loop.call_later(timeout_ms / 1000, self._time_out, key, timeout_ms),
        )
        self._waiting.append(waiting)
        return waiting.answer

    def _write(self, key: ApiKey, version: int, body: Message) -> int:
        """Write a request to the socket; return its correlation id."""
        self._check_open()
        assert self._transport is not None, "a connection is opened before it is used"
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._settings.client_id,
        )
        self._transport.writelines(request_parts(header, body))
        return correlation_id

    def _check_open(self) -> None:
        if self._failure is not None:
            raise _again(self._failure)

    def _read(self, frame: memoryview, key: ApiKey, version: int, answer_type: type[M]) -> M:
        try:
            _, answer = read_response(frame, key, version)
        except WireError as error:
            failure = NotReachable(f"{self.address} sent an unreadable response: {error}")
            self.fail(failure)
            raise failure from error
        assert isinstance(answer, answer_type), (
            f"{answer_type.__name__} is the response to another request"
        )
        return answer

    def _time_out(self, key: ApiKey, timeout_ms: int) -> None:
        self.fail(
            NotReachable(
                f"{self.address} did not respond to {APIS[key].name} within {timeout_ms} ms"
            )
        )

    def fail(self, failure: NotReachable | AuthenticationFailed) -> None:
        """Close the connection; pending requests fail with the reason."""
        if self._failure is None:
            self._failure = failure
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.timer.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(_again(self._failure))
        ended, self._on_end = self._on_end, []
        for call in ended:
            call()
        self._is_held = False
        self.resume_writing()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        buffer_bytes = self._settings.receive_buffer_bytes
        opened: socket.socket | None = transport.get_extra_info("socket")
        if buffer_bytes > 0 and opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        if self._failure is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.advance(nbytes)
        except WireError as error:
            self.fail(NotReachable(f"{self.address} does not speak Kafka's protocol: {error}"))
            return
        for frame in frames:
            self._take(frame)

    def _take(self, frame: memoryview) -> None:
        if self._failure is not None:
            return
        number = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
        if not self._waiting or self._waiting[0].correlation_id != number:
            self.fail(NotReachable(f"{self.address} sent an unexpected response ({number})"))
            return
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        if not waiting.answer.done():
            waiting.answer.set_result(frame)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._explains is not None:
            self.fail(self._explains(exc))
            return
        reason = "closed the connection" if exc is None else f"is gone: {_reason(exc)}"
        self.fail(NotReachable(f"{self.address} {reason}{self._hint()}"))

    def _hint(self) -> str:
        """Return what may be wrong if the node ends a connection this early."""
        security = self._settings.security
        if not self.versions:
            if security.tls is None:
                return "; if its listener speaks TLS, set security.protocol=SSL or SASL_SSL"
            return "; if it wants a certificate of ours that it trusts, set ssl.keystore.location"
        # The first request after the versions is the first that a listener with SASL refuses.
        is_first = self._next_correlation_id <= 2 and bool(self._waiting)
        if is_first and security.sasl is None:
            wanted = "SASL_PLAINTEXT" if security.tls is None else "SASL_SSL"
            return f"; if its listener asks for SASL, set security.protocol={wanted}"
        return ""

    def pause_writing(self) -> None:
        self._is_full = True
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._is_full = False
        if not self._is_held:
            self._may_write.set()


def _again(failure: NotReachable | AuthenticationFailed) -> NotReachable | AuthenticationFailed:
    """Return a new error like this one: every request that fails raises its own."""
    if isinstance(failure, TlsFailed):
        return TlsFailed(failure.message)
    if isinstance(failure, AuthenticationFailed):
        return AuthenticationFailed(failure.code, failure.message)
    return NotReachable(str(failure))


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
