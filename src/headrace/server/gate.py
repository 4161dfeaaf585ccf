"""What a connection may ask before it has authenticated, and after its session has ended.

A gate takes the place of the dispatcher at a connection (`connection.Requests`), so a connection
that needs none pays nothing. It decides by the first two bytes of a frame, before the rest is
decoded.
"""

import asyncio
from typing import Final, Protocol

from headrace.server.audit import Audit
from headrace.server.dispatch import Undecodable
from headrace.server.request import Peer, Request
from headrace.wire import ApiKey

OPEN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE})
"""What is served to clients that have not authenticated."""
REQUESTS_MAX: Final = 32
"""How many requests a client may send until it has authenticated; clients of ours need four."""


class Dispatching(Protocol):
    """What is behind the gate (`dispatch.Dispatcher`)."""

    def read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request | None: ...

    def read_in_thread(
        self, peer: Peer, frame: memoryview, now_ns: int
    ) -> "asyncio.Future[Request]": ...

    def is_produce(self, frame: memoryview) -> bool: ...

    def dispatch(self, request: Request) -> None: ...

    def fail(self, request: Request, error: Exception) -> None: ...


class Gate:
    """The requests of one connection that has not authenticated."""

    def __init__(self, dispatcher: Dispatching, audit: Audit | None = None) -> None:
        self.dispatcher = dispatcher
        self.audit = audit
        self.dispatch = dispatcher.dispatch
        self._count = 0
        self.fail = dispatcher.fail

    def read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request | None:
        """Return the request in a frame; raise Undecodable unless it is one of the open ones."""
        self._count += 1
        if self._count > REQUESTS_MAX:
            raise Undecodable(
                f"more than {REQUESTS_MAX} requests of a client that has not authenticated, "
                f"from {peer.address}"
            )
        key = int.from_bytes(frame[:2], "big", signed=True)
        if len(frame) < 2 or key not in OPEN:
            if self.audit is not None:
                self.audit.unknown(peer, key, "not authenticated")
            raise Undecodable(
                f"a request (API key {key}) of a client that has not authenticated, "
                f"from {peer.address}"
            )
        return self.dispatcher.read(peer, frame, now_ns)

    def read_in_thread(
        self, peer: Peer, frame: memoryview, now_ns: int
    ) -> "asyncio.Future[Request]":
        """Read a request that `read` let through."""
        return self.dispatcher.read_in_thread(peer, frame, now_ns)

    @staticmethod
    def is_produce(frame: memoryview) -> bool:
        """Return True, which lets no frame get around `read`, however large."""
        return True


class SessionGate(Gate):
    """The requests of connections whose session ends, of which some may come too late."""

    def read(self, peer: Peer, frame: memoryview, now_ns: int) -> Request | None:
        """Return the request in a frame; raise Undecodable if its session has ended."""
        if (late := self._refuse_late(peer, frame)) is not None:
            raise late
        return self.dispatcher.read(peer, frame, now_ns)

    def read_in_thread(
        self, peer: Peer, frame: memoryview, now_ns: int
    ) -> "asyncio.Future[Request]":
        """Read a request, which may have come here without `read` as it is large."""
        if (late := self._refuse_late(peer, frame)) is not None:
            refused: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
            refused.set_exception(late)
            return refused
        return self.dispatcher.read_in_thread(peer, frame, now_ns)

    def _refuse_late(self, peer: Peer, frame: memoryview) -> Undecodable | None:
        key = int.from_bytes(frame[:2], "big", signed=True)
        if not peer.is_expired or key in OPEN:
            return None
        if self.audit is not None:
            self.audit.unknown(peer, key, "its session has ended")
        return Undecodable(f"the session of {peer.principal} at {peer.address} has ended")

    def is_produce(self, frame: memoryview) -> bool:  # type: ignore[override]
        return self.dispatcher.is_produce(frame)
