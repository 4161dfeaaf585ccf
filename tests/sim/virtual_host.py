"""What a driver runs on in virtual time: a clock that may drift, and a disk that takes its time."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from headrace.raft.disk_thread import Then, Work


class VirtualHost:
    """A clock of its own and workers that are no threads."""

    def __init__(
        self,
        work_seconds: Callable[[], float] = lambda: 0.0005,
        *,
        clock_rate: float = 1.0,
        clock_offset_ms: float = 0.0,
    ) -> None:
        """`work_seconds` is asked how long each piece of work takes."""
        self._loop = asyncio.get_running_loop()
        self._clock_rate = clock_rate
        self._clock_offset_ms = clock_offset_ms
        self.work_seconds = work_seconds
        self.workers: list[VirtualWorker] = []

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000 * self._clock_rate + self._clock_offset_ms)

    def call_at(self, at_ms: int, ring: Callable[[], None]) -> asyncio.TimerHandle:
        due_ms = (at_ms + 0.5 - self._clock_offset_ms) / self._clock_rate
        return self._loop.call_at(due_ms / 1000, ring)

    def make_worker(self, name: str) -> "VirtualWorker":
        worker = VirtualWorker(self)
        self.workers.append(worker)
        return worker

    def kill(self, *, finishing: bool = False) -> None:
        """End all work where it is; `finishing` does what was begun first, as far as that goes."""
        for worker in self.workers:
            worker.kill(finishing=finishing)


class VirtualWorker:
    """Does its work at the end of the time that it takes."""

    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Work, Then]] = deque()
        self._is_dead = False

    @property
    def is_busy(self) -> bool:
        return bool(self._queue)

    def run(self, work: Work, then: Then) -> None:
        if self._is_dead:
            self._loop.call_soon(then, None)  # only the end of the driver is left to do
            return
        self._queue.append((work, then))
        if len(self._queue) == 1:
            self._begin()

    def close(self) -> None:
        """What was given is done, and more does not come."""

    def kill(self, *, finishing: bool) -> None:
        self._is_dead = True
        if finishing and self._queue:
            with suppress(Exception):
                self._queue[0][0]()
        self._queue.clear()

    def _begin(self) -> None:
        self._loop.call_later(self._host.work_seconds(), self._end)

    def _end(self) -> None:
        if self._is_dead:
            return
        work, then = self._queue[0]
        error: Exception | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        self._queue.popleft()
        then(error)
        if self._queue:
            self._begin()
