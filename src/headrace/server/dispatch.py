"""From a frame to a handler: the table of supported APIs, and what happens when a handler fails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from struct import Struct as Layout
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from headrace.config import DECODE_MEMORY_FLOOR_BYTES
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.loop.slices import in_slices
from headrace.server.failures import failing
from headrace.server.request import LATER, Handler, Peer, Request
from headrace.wire import APIS, Api, ApiKey, WireError, decode_from, read_request_start
from headrace.wire.codec import OBJECT_BYTES_PER_BYTE, prepare
from headrace.wire.schema import Message

if TYPE_CHECKING:
    from headrace.server.broker import Broker

INLINE_OBJECT_BYTES_MAX: Final = 512 * 1024
"""The memory budget for the objects of a request decoded on the loop: some thousand."""
_KEY_AND_VERSION: Final = Layout(">hh")
_PRODUCE: Final = int(ApiKey.PRODUCE)

Reading: TypeAlias = "asyncio.Future[Request]"

logger = logging.getLogger(__name__)


class Undecodable(HeadraceError):
    """A frame that is not a request we serve: its connection is closed."""


class Fault(Protocol):
    """An injected fault before a handler, for tests: see `headrace.testing.faults`."""

    def __call__(self, request: Request, go_on: Callable[[], None]) -> None:
        """Call `go_on`, now or later, or respond in another way."""


class Dispatcher:
    """Calls the handler of each request and makes sure that there is a response."""

    def __init__(
        self, broker: "Broker", served: Iterable[ApiKey], load: Callable[[ApiKey], Handler]
    ) -> None:
        """`load` returns the handler of an API at its first request: most are never requested."""
        self.faults: dict[int, Fault] = {}
        self._broker = broker
        self._handle: Callable[[Request], None] = self.handle
        self._load = load
        self._decode_floor_bytes = broker.settings[DECODE_MEMORY_FLOOR_BYTES]
        self._handlers: dict[int, Handler] = {}
        self._ready: dict[tuple[int, int], type[Message]] = {}
        """API versions that were used before, and their request types."""
        self._versions = {int(key): served_versions(APIS[key]) for key in served}
        broker.served_apis = tuple(APIS[key] for key in sorted(self._versions))
        broker.version_responses = {}
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="headrace-prepare")
        self._tasks: set[asyncio.Task[None]] = set()
        self._incidents = count(1)

    def read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request | None:
        """Return the request in a frame; raise Undecodable if it cannot get a response.

        None if this version of its API was never used before, or if it has very many elements:
        decoding it would stall the loop, so use `read_in_thread`.
        """
        try:
            api, version, correlation_id, client_id, position = read_request_start(frame)
            key = int(api.key)
            kind = self._ready.get((key, version))
            if kind is not None:
                # Bytes after the body are ignored, as in Kafka.
                try:
                    body, _ = decode_from(kind, frame, version, position, INLINE_OBJECT_BYTES_MAX)
                except WireError:
                    return None  # it has very many elements, or is invalid: a thread finds out
            else:
                versions = self._versions.get(key)
                if versions is not None and version in versions:
                    return None
                if key != ApiKey.API_VERSIONS:
                    raise self._refuse(peer, api, version, client_id)
                # Version 0 is the only one that any client can read (KIP-511); its empty body
                # is how the handler knows.
                version, body = 0, None
        except (WireError, UnicodeDecodeError) as error:
            raise self._undecodable(peer, error) from None
        return Request(peer, key, version, correlation_id, client_id, body, len(frame), now_ns)

    @staticmethod
    def is_produce(frame: memoryview) -> bool:
        """Return whether a frame is a produce request, by its first two bytes."""
        return len(frame) > 1 and frame[0] == frame[1] == _PRODUCE

    def read_in_thread(self, peer: Peer, frame: memoryview, now_ns: int) -> "Reading":
        """Read a request that is large or of a new kind; new kinds in the order of arrival.

        A kind counts as known when its first request is about to be handled: none overtakes it.
        """
        key_and_version = _KEY_AND_VERSION.unpack_from(frame) if len(frame) >= 4 else (-1, -1)
        is_known = key_and_version in self._ready
        reading: Reading = asyncio.get_running_loop().run_in_executor(
            None if is_known else self._preparing, self._prepare_and_read, peer, frame, now_ns
        )
        if not is_known:
            reading.add_done_callback(partial(self._on_prepared, key_and_version))
        return reading

    def _prepare_and_read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request:
        try:
            api, version, correlation_id, client_id, position = read_request_start(frame)
            if version not in self._versions.get(int(api.key), ()):
                raise self._refuse(peer, api, version, client_id)
            self._prepare(api, version)
            room = self._decode_floor_bytes + OBJECT_BYTES_PER_BYTE * len(frame)
            body, _ = decode_from(api.request, frame, version, position, room)
        except (WireError, UnicodeDecodeError) as error:
            raise self._undecodable(peer, error) from None
        size_bytes = len(frame)
        return Request(
            peer, int(api.key), version, correlation_id, client_id, body, size_bytes, now_ns
        )

    def _prepare(self, api: Api, version: int) -> None:
        """Load and compile what a version of an API needs."""
        self.load(api.key)
        prepare(api.request, api.response, version)

    def load(self, key: ApiKey) -> None:
        """Load the handler of an API, which may take milliseconds: in a thread."""
        if int(key) not in self._handlers:
            self._handlers[int(key)] = self._load(key)

    def _on_prepared(self, key_and_version: tuple[int, int], reading: "Reading") -> None:
        if not reading.cancelled() and reading.exception() is None:
            self._ready[key_and_version] = APIS[key_and_version[0]].request

    def prepare_all(self) -> None:
        """Load and compile everything now, for tests without a loop."""
        for key, versions in self._versions.items():
            for version in versions:
                self._prepare(APIS[key], version)
                self._ready[key, version] = APIS[key].request

    def _undecodable(self, peer: Peer, error: Exception) -> Undecodable:
        self._broker.counters.undecodable_requests += 1
        return Undecodable(f"{error} (from {_name(peer)})")

    def dispatch(self, request: Request) -> None:
        """Handle a request. The response may be ready on return or arrive later."""
        if self.faults and (fault := self.faults.get(request.api_key)) is not None:
            request.hold()
            fault(request, lambda: self._handle_held(request))
        else:
            self._handle(request)

    def _handle_held(self, request: Request) -> None:
        """Handle a request that a fault let through, before any later request."""
        request.is_holding = False
        self._handle(request)
        if not request.is_holding:
            request.peer.on_released()

    async def drain(self) -> None:
        """Wait until no handler task is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Stop the thread that prepares requests of a new kind."""
        self._preparing.shutdown(wait=False)

    def meter(self, metered: "Callable[[Request], None] | None") -> None:
        """Pass requests to `metered`, which calls `handle`, or with None to `handle` itself.

        So quotas cost nothing where there are none.
        """
        self._handle = metered or self.handle

    def handle(self, request: Request) -> None:
        """Call the handler of a request, and respond if that fails."""
        try:
            handler = self._handlers.get(request.api_key)
            if handler is None:
                handler = self._handlers[request.api_key] = self._load(ApiKey(request.api_key))
            answer = handler(self._broker, request)
            if answer is LATER:
                return
            if type(answer) is CoroutineType:
                task = asyncio.get_running_loop().create_task(self._await(request, answer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
            request.answer(answer)  # type: ignore[arg-type]
        except Exception as error:
            self.fail(request, error)

    async def _await(self, request: Request, answer: Awaitable[Any]) -> None:
        try:
            body: Any = await request.timed(answer)
            if body is not LATER:  # its rights took several turns to be checked
                request.answer(body)
        except Exception as error:
            self.fail(request, error)

    def fail(self, request: Request, error: Exception) -> None:
        """Send an error response for a request whose handler failed."""
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            incident = next(self._incidents)
            self._broker.counters.apis[request.api_key].errors += 1
            api = APIS[request.api_key]
            logger.error(
                "incident %d: %s v%d from %s failed",
                *(incident, api.name, request.version, _name(request.peer)),
                exc_info=error,
            )
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            message = (
                f"the broker failed to handle this request; see incident {incident} in its log"
            )
        if request.peer.is_closed:
            return
        response = in_slices(failing(request, code, message))
        if type(response) is CoroutineType:  # it asked for very much
            task = asyncio.get_running_loop().create_task(self._await(request, response))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        request.answer(response)  # type: ignore[arg-type]
        if response is None:
            request.peer.close(f"a request without a response failed: {message}")

    def _refuse(self, peer: Peer, api: Api, version: int, client_id: str | None) -> Undecodable:
        self._broker.counters.undecodable_requests += 1
        who = f"client {client_id!r}, {_name(peer)}"
        if api.key not in self._versions:
            return Undecodable(f"{api.name} is not served here, {who} asked for it")
        versions = served_versions(api)
        return Undecodable(
            f"{api.name} v{version} is not served, {versions.start} to {versions.stop - 1} are; "
            f"{who} asked for it"
        )


def served_versions(api: Api) -> range:
    """Return the stable versions of an API, which clients may use."""
    return _VERSIONS[api.key]


def _name(peer: Peer) -> str:
    return f"{peer.client_software or 'unnamed software'} at {peer.address}"


_FIRST_SERVED: Final[dict[int, int]] = {ApiKey.SASL_HANDSHAKE: 1}
"""Where it is not the first that there is."""
_VERSIONS: Final = {
    key: range(
        _FIRST_SERVED.get(key, api.versions.first),
        api.versions.last + (not api.is_newest_unstable),
    )
    for key, api in APIS.items()
}
