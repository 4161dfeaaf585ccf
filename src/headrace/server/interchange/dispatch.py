"""From a frame of seed 002 to the handler of its request, and from there to a response.

Beside `server.dispatch`, which does this for Kafka's requests and handles most of these too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock
from types import CoroutineType
from typing import Final, cast

from headrace.cluster.protocol import (
    ClusterResponse,
    ProtocolError,
    decode_request,
    is_costly,
    prepare,
    requests,
)
from headrace.errors import KafkaError
from headrace.server.broker import Broker
from headrace.server.dispatch import Dispatcher, Undecodable
from headrace.server.interchange.bounds import explain_long_name, has_long_names
from headrace.server.interchange.call import ClusterCall, Forwarded, Handled
from headrace.server.interchange.elections import elect_leader
from headrace.server.interchange.metadata import fetch_metadata
from headrace.server.interchange.proposals import propose_metadata
from headrace.server.interchange.records import append, fetch
from headrace.server.interchange.refusals import Refusal, error_response
from headrace.server.interchange.replication import heartbeat, replica_state
from headrace.server.request import Peer, Request
from headrace.wire import ApiKey

APPEND_INDEX: Final = 3
"""The first byte of an Append."""

logger = logging.getLogger(__name__)


class InterchangeDispatcher:
    """Calls the handler of each request and makes sure that there is a response."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher) -> None:
        self._broker = broker
        self._kafka = dispatcher
        self._is_prepared = False
        self._preparing = Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request | None:
        """Return the request in a frame; None if a thread has to read it, or to prepare that.

        One that can be answered but not be read is a call that is answered with its refusal. Raise
        Undecodable for bytes that have no correlation id.
        """
        if not self._is_prepared or is_costly(frame) or has_long_names(frame):
            return None
        return self._read(peer, frame, now_ns)

    def read_in_thread(
        self, peer: Peer, frame: memoryview, now_ns: int
    ) -> "asyncio.Future[Request]":
        """Read a request that is large, or the first."""
        return asyncio.get_running_loop().run_in_executor(
            None, self._prepare_and_read, peer, frame, now_ns
        )

    @staticmethod
    def is_produce(frame: memoryview) -> bool:
        """Return whether a frame is an Append, by its first byte."""
        return len(frame) > 0 and frame[0] == APPEND_INDEX

    def dispatch(self, request: Request) -> None:
        """Handle a request. The response may be ready on return or arrive later."""
        call = cast(ClusterCall, request)
        if call.refusal is not None:
            call.respond(call.refusal)
            return
        try:
            handled = _HANDLERS[type(call.asked)](self._broker, call)
            if type(handled) is CoroutineType:
                task = asyncio.get_running_loop().create_task(self._await(call, handled))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._finish(call, cast(ClusterResponse | Forwarded, handled))
        except Exception as error:
            self.fail(call, error)
        if not isinstance(call.asked, requests.Append):  # a Produce has its own timeout
            call.start_timer()

    def fail(self, request: Request, error: Exception) -> None:
        """Send an error response for a request that was refused or whose handler failed."""
        if not isinstance(error, KafkaError | Refusal | ProtocolError):
            self._broker.counters.apis[request.api_key].errors += 1
            asked = type(cast(ClusterCall, request).asked).__name__
            logger.error("%s from %s failed", asked, request.peer.address, exc_info=error)
        if not request.peer.is_closed:
            response = error_response(request.correlation_id, error)
            cast(ClusterCall, request).respond(response)

    async def drain(self) -> None:
        """Wait until no handler task is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request:
        try:
            asked = decode_request(frame)
        except ProtocolError as error:
            self._broker.counters.undecodable_requests += 1
            if error.correlation_id is None:
                raise Undecodable(f"{error} (from {peer.address})") from None
            refusal = error_response(error.correlation_id, error)
            return ClusterCall.refused(peer, refusal, frame, now_ns)
        if (reason := explain_long_name(asked)) is not None:
            refusal = error_response(asked.header.correlation_id, reason)
            return ClusterCall.refused(peer, refusal, frame, now_ns)
        return ClusterCall(peer, asked, len(frame), now_ns)

    def _prepare_and_read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request:
        with self._preparing:
            if not self._is_prepared:
                prepare()
                for key in _FORWARDED:
                    self._kafka.load(key)
                self._is_prepared = True
        return self._read(peer, frame, now_ns)

    def _finish(self, call: ClusterCall, handled: ClusterResponse | Forwarded) -> None:
        if not isinstance(handled, Forwarded):
            call.respond(handled)
            return
        if call.parts is not None:
            return  # it has timed out
        call.forward(handled)
        self._kafka.dispatch(call)
        if call.parts is None:
            call.let_records_go()

    async def _await(
        self, call: ClusterCall, handled: Awaitable[ClusterResponse | Forwarded]
    ) -> None:
        try:
            self._finish(call, await handled)
        except Exception as error:
            self.fail(call, error)


_HANDLERS: Final[Mapping[type, Callable[[Broker, ClusterCall], Handled]]] = {
    requests.FetchMetadata: fetch_metadata,
    requests.ProposeMetadata: propose_metadata,
    requests.Fetch: fetch,
    requests.Append: append,
    requests.ReplicaState: replica_state,
    requests.ElectLeader: elect_leader,
    requests.Heartbeat: heartbeat,
}
_FORWARDED: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
)
"""The APIs whose handlers do the work."""
