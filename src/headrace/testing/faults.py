"""Fault injection for a broker: late, lost or error responses, closed connections.

    headrace.faults.delay("Fetch", 200)
    headrace.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    headrace.faults.clear()

A fault applies to the next `times` requests of an API, or until `clear`; a later one for the same
API replaces it. A request with a fault other than a delay is not handled.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from headrace.errors import ErrorCode
from headrace.server.dispatch import Dispatcher
from headrace.server.dispatch import Fault as Hook
from headrace.server.failures import failure_response
from headrace.server.request import Peer, Request
from headrace.wire import APIS, ApiKey

ApiName: TypeAlias = str | ApiKey
GoOn: TypeAlias = Callable[[], None]
Action: TypeAlias = Callable[[Request, GoOn], None]


class Faults:
    """Planned faults by API. Safe to use from any thread."""

    def __init__(self) -> None:
        self._planned: dict[int, Hook] = {}
        self._held: set[Peer] = set()
        """Connections with a request that never gets its response."""

    def delay(self, api: ApiName, milliseconds: int, *, times: int | None = None) -> None:
        """Delay the handling of requests. Later responses of the same connection wait.

        A broker that stops handles them at once.
        """

        def wait(request: Request, go_on: GoOn) -> None:
            def carry_out() -> None:
                request.on_drain = None
                if not request.peer.is_closed:
                    go_on()

            def hurry() -> None:
                timer.cancel()
                carry_out()
                if request.on_drain is not None:
                    request.on_drain()

            loop = asyncio.get_running_loop()
            timer = loop.call_later(milliseconds / 1000, carry_out)
            request.on_drain = hurry

        self._plan(api, wait, times)

    def drop(self, api: ApiName, *, times: int | None = None) -> None:
        """Never respond; so later requests of the same connection get no response either."""

        def forget(request: Request, go_on: GoOn) -> None:
            self._held.add(request.peer)
            request.peer.on_close[lambda: self._held.discard(request.peer)] = None

        self._plan(api, forget, times)

    def fail(self, api: ApiName, code: ErrorCode, *, times: int | None = None) -> None:
        """Respond with an error for everything in a request."""

        def answer(request: Request, go_on: GoOn) -> None:
            request.answer(failure_response(request, code, "a fault injected by the test"))

        self._plan(api, answer, times)

    def close_connection(self, api: ApiName, *, times: int | None = None) -> None:
        """Close the connection instead of responding."""

        def close(request: Request, go_on: GoOn) -> None:
            request.peer.close("a fault injected by the test")

        self._plan(api, close, times)

    def clear(self, api: ApiName | None = None) -> None:
        """Remove all faults, or those of one API. Dropped requests stay dropped."""
        if api is None:
            self._planned.clear()
        else:
            self._planned.pop(_key(api), None)

    def attach(self, dispatcher: Dispatcher) -> None:
        """Attach to a node's dispatcher; a restart creates a new one."""
        dispatcher.faults = self._planned

    def close_held(self) -> None:
        """Close connections with a dropped response, so that a stop need not wait for them."""
        for peer in tuple(self._held):
            peer.close("the test dropped the response")

    def _plan(self, api: ApiName, action: Action, times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: a fault happens at least once")
        key = _key(api)
        self._planned[key] = Fault(self, key, action, times)

    def end(self, key: int, fault: "Fault") -> None:
        """Remove a fault that is used up."""
        if self._planned.get(key) is fault:
            del self._planned[key]


class Fault:
    """One planned fault, which counts how often it happened."""

    def __init__(self, faults: Faults, key: int, action: Action, times: int | None) -> None:
        self._faults = faults
        self._key = key
        self._action = action
        self._left = times

    def __call__(self, request: Request, go_on: GoOn) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._faults.end(self._key, self)
        self._action(request, go_on)


def _key(api: ApiName) -> int:
    if isinstance(api, ApiKey):
        return int(api)
    for row in APIS.values():
        if row.name.lower() == api.lower():
            return int(row.key)
    names = ", ".join(row.name for row in APIS.values() if "broker" in row.listeners)
    raise ValueError(f"{api!r} is not an API; choose one of {names}")
