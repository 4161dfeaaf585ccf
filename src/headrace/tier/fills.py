"""Fetching what several readers wait for, once, within a budget.

A fill goes on when a reader gives up, so that the next attempt finds the result. If it fails, all
of its readers hear why, and nothing is remembered: the next reader begins another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from headrace.errors import HeadraceError
from headrace.remote.store import StoreError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class _Fill(Generic[Value]):
    """A fill under way."""

    __slots__ = ("result", "task", "waiters")

    def __init__(self, task: "asyncio.Task[Value]") -> None:
        self.task = task
        self.result: asyncio.Future[Value] = task.get_loop().create_future()
        self.waiters = 0


class Fills(Generic[Key, Value]):
    """The fills under way, by what they fetch."""

    def __init__(self) -> None:
        self._under_way: dict[Key, _Fill[Value]] = {}
        self._given_up: dict[_Fill[Value], None] = {}
        """Those that were cancelled and have not ended yet."""

    def __len__(self) -> int:
        return len(self._under_way)

    def __contains__(self, key: Key) -> bool:
        return key in self._under_way

    def is_wanted(self, key: Key) -> bool:
        """Return whether somebody waits for a fill."""
        fill = self._under_way.get(key)
        return fill is not None and fill.waiters > 0

    def begin(
        self,
        key: Key,
        work: Coroutine[Any, Any, Value],
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Begin a fill that is not under way; `on_end` is called however it ends."""
        assert key not in self._under_way, f"{key} is being fetched already"
        fill = _Fill(asyncio.get_running_loop().create_task(work))
        self._under_way[key] = fill
        fill.task.add_done_callback(lambda task: self._ended(key, fill, on_end))

    async def wait(self, key: Key) -> Value:
        """Return the result of a fill under way, or raise its error."""
        fill = self._under_way[key]
        fill.waiters += 1
        try:
            return await asyncio.shield(fill.result)
        finally:
            fill.waiters -= 1

    def give_up(self, key: Key) -> None:
        """Cancel a fill that nobody waits for; who comes now begins another."""
        fill = self._under_way.get(key)
        if fill is not None and not fill.waiters:
            del self._under_way[key]
            self._given_up[fill] = None
            fill.task.cancel()

    async def stop(self) -> None:
        """Cancel every fill, and return when they have ended."""
        tasks = [fill.task for fill in (*self._under_way.values(), *self._given_up)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: Key, fill: _Fill[Value], on_end: Callable[[], None] | None) -> None:
        self._given_up.pop(fill, None)
        if self._under_way.get(key) is fill:
            del self._under_way[key]
        if on_end is not None:
            on_end()
        task, result = fill.task, fill.result
        if task.cancelled():
            result.set_exception(StoreError("the request to the store was given up"))
        elif (error := task.exception()) is not None:
            result.set_exception(error)
            if not isinstance(error, HeadraceError | OSError) and not fill.waiters:
                logger.error("a fill has failed that nobody waits for", exc_info=error)
        else:
            result.set_result(task.result())
            return
        result.exception()  # heard, also if nobody waits


class Budget:
    """How many fills may run, and how many bytes they may fetch together.

    A fill that is larger than all of it runs alone.
    """

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self.bytes_max = bytes_max
        self.count_max = count_max
        self.byte_count = 0
        self.count = 0
        self._waiting: deque[Lease] = deque()

    def lease(self, byte_count: int) -> "Lease":
        return Lease(self, byte_count)

    def has_room(self, byte_count: int) -> bool:
        """Return whether a fill could run at once; those that wait come first."""
        return not self._waiting and self._fits(byte_count)

    def _fits(self, byte_count: int) -> bool:
        return self.count == 0 or (
            self.count < self.count_max and self.byte_count + byte_count <= self.bytes_max
        )

    def wake(self) -> None:
        """Start waiting fills in order, as many as there is room for."""
        waiting = self._waiting
        while waiting and (waiting[0].is_over or self._fits(waiting[0].byte_count)):
            lease = waiting.popleft()
            if not lease.is_over:
                lease.take()

    def add(self, lease: "Lease") -> None:
        self._waiting.append(lease)


class Lease:
    """The share of a budget that one fill has. `release` it however the fill ends."""

    __slots__ = ("_budget", "_granted", "_is_taken", "byte_count", "is_over")

    def __init__(self, budget: Budget, byte_count: int) -> None:
        self._budget = budget
        self._granted: asyncio.Event | None = None
        self._is_taken = False
        self.byte_count = byte_count
        self.is_over = False

    def try_take(self) -> bool:
        """Take it if there is room now."""
        if self._budget.has_room(self.byte_count):
            self.take()
            return True
        return False

    def take(self) -> None:
        self._is_taken = True
        self._budget.byte_count += self.byte_count
        self._budget.count += 1
        if self._granted is not None:
            self._granted.set()

    async def wait(self) -> None:
        """Take it as soon as there is room, after those that came before."""
        if self._is_taken or self.try_take():
            return
        self._granted = asyncio.Event()
        self._budget.add(self)
        await self._granted.wait()

    def release(self) -> None:
        self.is_over = True
        if self._is_taken:
            self._is_taken = False
            self._budget.byte_count -= self.byte_count
            self._budget.count -= 1
        self._budget.wake()
