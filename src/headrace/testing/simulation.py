"""Whole nodes and clients in one process, in virtual time, from one seed.

    simulation = Simulation(seed=7)
    broker = simulation.host("10.0.0.1")
    client = simulation.host("10.0.0.2")

    async def main() -> None:
        await broker.run(start_a_node())       # on its own loop, disk and clocks
        sending = client.start(produce())
        broker.crash()                         # at this instant: nothing of it runs again
        await sending

    simulation.run(main())

A host is a machine with one process: it has a loop, threads, clocks, randomness and a disk, and
communicates only over the network. `hosts` has the events of one host, `network` those between two.
The seed determines which host runs next, how long its turn takes, when a thread is done and when
bytes arrive: the same seed replays the same run, in any process, and `trace` shows it. Time stands
still while code runs and jumps to the next event when nothing is left to run.
"""

import gc
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, TypeVar
from zlib import crc32

from headrace.testing.hosts import Host
from headrace.testing.network import Network
from headrace.testing.virtual_loop import Deadlock

T = TypeVar("T")

NEVER: Final = float("inf")
LINES_KEPT: Final = 200


class Event:
    """Something that happens at a time, unless it is cancelled."""

    __slots__ = ("arguments", "callback", "is_cancelled")

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Trace:
    """Everything that happened, as a checksum, and the last of it as text."""

    def __init__(self) -> None:
        self.checksum = 0
        self.length = 0
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.is_kept_whole = False

    def add(self, line: str) -> None:
        self.length += 1
        self.checksum = crc32(line.encode(), self.checksum)
        if self.is_kept_whole and self.lines.maxlen is not None:
            self.lines = deque(self.lines)
        self.lines.append(line)


class Simulation:
    """A world of hosts, and the order in which things happen in it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"simulation/{seed}")
        self.now = 0.0
        """Seconds since the beginning, which no host can see."""
        self.trace = Trace()
        self.failures: list[BaseException | str] = []
        """Errors in code that is not awaited: `run` raises the first."""
        self.network = Network(self)
        self.hosts: dict[str, Host] = {}
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = count()
        self.observer = Host(self, "observer", is_observer=True)
        """Where `main` runs: it is never late, never crashes, and is on no network."""
        self._all = [self.observer]

    def host(self, address: str) -> Host:
        """Add a host; its address is its name."""
        if address in self.hosts:
            raise ValueError(f"there is a host {address} already")
        host = self.hosts[address] = Host(self, address)
        self._all.append(host)
        host.boot()
        return host

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until `main` returns, and return its result. Use a simulation once.

        The first unhandled error of any host is raised instead. The garbage collector is off in
        the meantime: when it runs would depend on what ran before.
        """
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            self.observer.boot()
            task = self.observer.spawn(main)
            while not task.done() and not self.failures:
                self.step()
            if self.failures:
                raise SimulationFailure(self.failures[0])
            return task.result()
        finally:
            for host in self._all:
                host.bury()
            if is_collecting:
                gc.enable()

    def step(self) -> None:
        """Run the next event."""
        when, host = NEVER, self.observer
        for each in self._all:
            next_at = each.next_at()
            if next_at < when:
                when, host = next_at, each
        events = self._events
        while events and events[0][2].is_cancelled:
            heappop(events)
        if events and events[0][0] <= when:
            at, _, event = heappop(events)
            self.now = max(self.now, at)
            event.callback(*event.arguments)
        elif when == NEVER:
            raise Deadlock("nothing is due on any host, and nothing is under way")
        else:
            self.now = max(self.now, when)
            host.turn()

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> Event:
        """Schedule an event that belongs to no host."""
        return self.call_at(self.now + seconds, callback, *arguments)

    def call_at(self, at: float, callback: Callable[..., None], *arguments: Any) -> Event:
        event = Event(callback, arguments)
        heappush(self._events, (at, next(self._numbers), event))
        return event

    def note(self, host: object, what: str) -> None:
        """Add a line to the trace."""
        self.trace.add(f"{self.now:.9f} {host} {what}")

    def fail(self, failure: BaseException | str) -> None:
        """Record an unhandled error; `run` raises it."""
        self.note("simulation", f"fails: {failure!r}")
        self.failures.append(failure)


class SimulationFailure(Exception):
    """An error in a callback or in a task that is not awaited."""

    def __init__(self, failure: BaseException | str) -> None:
        super().__init__(str(failure) if isinstance(failure, str) else repr(failure))
        self.__cause__ = failure if isinstance(failure, BaseException) else None
