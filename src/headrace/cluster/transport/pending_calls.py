"""Calls of this node that wait for a response, by correlation id. Each ends exactly once."""

import asyncio
from itertools import count

from headrace.cluster.transport.calls import (
    CallError,
    CallFailed,
    CallTimedOut,
    ConnectionLost,
    NotConnected,
    Status,
    TooManyCalls,
)
from headrace.ids import BrokerId as NodeId


class _Pending:
    __slots__ = ("future", "is_sent")

    def __init__(self, future: "asyncio.Future[bytes]") -> None:
        self.future = future
        self.is_sent = False


class PendingCalls:
    """The pending calls of one link. Ids are never reused, so a late response matches none."""

    def __init__(self, node: NodeId | None) -> None:
        self._node = node
        self._calls: dict[int, _Pending] = {}
        self._correlation_ids = count(1)

    def __len__(self) -> int:
        return len(self._calls)

    def new_id(self) -> int:
        return next(self._correlation_ids)

    def add(self, correlation_id: int, future: "asyncio.Future[bytes]") -> None:
        self._calls[correlation_id] = _Pending(future)

    def forget(self, correlation_id: int) -> None:
        self._calls.pop(correlation_id, None)

    def note_sent(self, correlation_id: int) -> bool:
        """Mark a request as sent. Return False if its caller no longer waits."""
        pending = self._calls.get(correlation_id)
        if pending is None:
            return False
        pending.is_sent = True
        return True

    def settle(self, correlation_id: int, status: int, body: memoryview) -> None:
        """Pass a response to its caller, if one still waits."""
        pending = self._calls.pop(correlation_id, None)
        if pending is None or pending.future.done():
            return
        data = bytes(body)
        error = self._error(status, data)
        if error is None:
            pending.future.set_result(data)
        else:
            pending.future.set_exception(error)

    def time_out(self, correlation_id: int, timeout_ms: int) -> None:
        pending = self._calls.pop(correlation_id, None)
        if pending is None or pending.future.done():
            return
        if pending.is_sent:
            reason = f"no response within {timeout_ms} ms"
            pending.future.set_exception(CallTimedOut(self._node, reason))
        else:
            reason = f"the request could not be sent within {timeout_ms} ms"
            pending.future.set_exception(NotConnected(self._node, reason))

    def fail_all(self, reason: str) -> None:
        """End every call: those that were sent may have been done."""
        calls, self._calls = self._calls, {}
        for pending in calls.values():
            if not pending.future.done():
                failure = ConnectionLost if pending.is_sent else NotConnected
                pending.future.set_exception(failure(self._node, reason))

    def _error(self, status: int, body: bytes) -> CallError | None:
        if status == Status.ANSWERED:
            return None
        if status == Status.BUSY:
            return TooManyCalls(self._node, "it handles as many calls of this node as it takes")
        if status == Status.UNKNOWN_KIND:
            return CallFailed(self._node, "it does not know this kind of request: is it older?")
        return CallFailed(self._node, body.decode(errors="replace"))
