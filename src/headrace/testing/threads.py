"""The threads of a simulated host: work that runs at one instant, some time after submission.

Threads never run at the same instant as the loop here, so two pieces of code never run at once.
Interleavings of a real machine are explored by when the work takes effect, and how much later its
loop gets the result. A pool runs as much concurrently as it has threads, in order of submission.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.raft.disk_thread import Then, Work
from headrace.testing.disk import PowerLost

if TYPE_CHECKING:
    from headrace.testing.host_loop import HostLoop

DEFAULT_THREADS: Final = 6
"""Those of the loop's own executor: asyncio makes four more than there are processors."""

Settle = Callable[[object, BaseException | None], None]


class Threads:
    """The pools of one life of a host."""

    def __init__(self, loop: "HostLoop") -> None:
        self._loop = loop
        self._pools: dict[Executor | None, Pool] = {}
        self._all: list[Pool] = []

    def submit(
        self, executor: Executor | None, work: Callable[..., Any], *arguments: Any
    ) -> "asyncio.Future[Any]":
        """Do what `loop.run_in_executor` does."""
        pool = self._pools.get(executor)
        if pool is None:
            threads: int = getattr(executor, "_max_workers", DEFAULT_THREADS)
            pool = self._pools[executor] = self.make_pool(threads)
        done: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: object, error: BaseException | None) -> None:
            if done.done():
                return  # cancelled, which does not stop a thread
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)

        pool.add(partial(work, *arguments), settle)
        return done

    def make_pool(self, threads: int) -> "Pool":
        pool = Pool(self._loop, threads)
        self._all.append(pool)
        return pool

    def kill(self, finish: Callable[[Callable[[], object]], None] | None) -> None:
        """End all work where it is; `finish` has each that was begun, to do some of it."""
        for pool in self._all:
            pool.kill(finish)


class Pool:
    """So many threads, and what waits for one."""

    def __init__(self, loop: "HostLoop", threads: int) -> None:
        self._loop = loop
        self._free = threads
        self._queue: deque[tuple[Callable[[], object], Settle]] = deque()
        self._begun: dict[int, Callable[[], object]] = {}
        self._count = 0
        self._is_dead = False

    def add(self, work: Callable[[], object], settle: Settle) -> None:
        self._queue.append((work, settle))
        self._begin()

    def kill(self, finish: Callable[[Callable[[], object]], None] | None) -> None:
        self._is_dead = True
        if finish is not None:
            for work in self._begun.values():
                finish(work)

    def _begin(self) -> None:
        while self._free and self._queue:
            work, settle = self._queue.popleft()
            self._free -= 1
            self._count += 1
            self._begun[self._count] = work
            host = self._loop.host
            seconds = host.thread_seconds()
            until_effect = seconds * host.random.random()
            host.simulation.call_later(
                until_effect, self._do, self._count, settle, seconds - until_effect
            )

    def _do(self, number: int, settle: Settle, seconds_left: float) -> None:
        host = self._loop.host
        if self._is_dead:
            return
        if host.paused_until > host.simulation.now:
            host.simulation.call_at(host.paused_until, self._do, number, settle, seconds_left)
            return
        work = self._begun.pop(number)
        result: object = None
        error: BaseException | None = None
        try:
            result = self._loop.root.copy().run(work)
        except PowerLost:
            return  # of this very host, which is gone
        except BaseException as raised:  # it is the caller's
            error = raised
        host.simulation.call_later(seconds_left, self._tell, settle, result, error)

    def _tell(self, settle: Settle, result: object, error: BaseException | None) -> None:
        if self._is_dead:
            return
        self._loop.call_soon(settle, result, error, context=self._loop.root.copy())
        self._free += 1
        self._begin()


class SimulatedWorker:
    """A dedicated thread, as a `headrace.raft.ports.DiskWorker`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(self, work: Work, then: Then) -> None:
        self._pool.add(work, lambda result, error: then(error))

    def close(self) -> None:
        """What was given is done, and more does not come."""
