"""Long work on the loop in slices, so that a large request does not delay the others.

    def describe(names: list[str]) -> Slices[list[Row]]:
        current, rows = Slice(), []
        for name in names:
            rows.append(row_of(name))
            if current.spend():
                yield
        return rows

    def handle(broker, request):
        return in_slices(describe(request.body.names))    # a response, or a coroutine

Work is a generator that yields where it may be interrupted. The cluster's state may change there:
work keeps rows, which are frozen, and no iterators over collections that others change.

However many such generators there are, each turn of the loop runs one slice of one of them.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

Slices: TypeAlias = Generator[None, None, T]

SLICE_UNITS: Final = 1000
"""The units of a slice; one takes 2 to 3 microseconds, like a partition's row in Metadata."""
FIRST_SLICE_UNITS: Final = 250
"""How much is done at once, without a task: one read may have dozens of requests."""


class Slice:
    """Counts the work of a slice."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FIRST_SLICE_UNITS

    def spend(self, units: int = 1) -> bool:
        """Count work; return True, once, when the slice is used up and the next begins."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = SLICE_UNITS
        return True


def in_slices(work: Slices[T]) -> T | Coroutine[Any, Any, T]:
    """Return the result of work if one slice is enough, else a coroutine that finishes it."""
    try:
        next(work)
    except StopIteration as done:
        result: T = done.value
        return result
    return finish(work)


async def finish(work: Slices[T]) -> T:
    """Run work to its end, one slice per turn of the loop."""
    turns = _turns()
    while True:
        await turns.wait()
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


def run_whole(work: Slices[T]) -> T:
    """Run work to its end at once: for work that is known to be small."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


class _Turns:
    """Hands out the turns of a loop, first come, first served."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self) -> "asyncio.Future[None]":
        """Return a future that is done when it is the caller's turn."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._hand_out)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        return turn

    def _hand_out(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else the waiter was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._hand_out)


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = _Turns()
    return found
