"""An asyncio loop whose time jumps to the next timer instead of waiting for it.

Code that uses the loop's time and sleeps runs as fast as it computes, and deterministically. Code
that waits for anything outside the loop (threads, sockets) does not work: if nothing is due and
nothing is scheduled, that is reported as a deadlock.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """Every task waits, and nothing is left that could wake one."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that starts at time 0."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now_seconds


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new virtual loop, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class _JumpingSelector(selectors.SelectSelector):
    """Advances the time instead of waiting for the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is due, and nothing is scheduled")
        events = super().select(0)
        if not events:
            self._loop.now_seconds += max(timeout, 0)
        return events
