"""One host of a simulation: its loop, threads, clocks, luck and disk, and what can happen to it.

A host is started with `boot`, which gives it a new loop: code of a former life is on a former loop,
of which nothing ever runs again. That is what `crash` is. The disk stays, as far as it does.
"""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.surroundings import SURROUNDINGS, Clocks, Surroundings
from headrace.testing.disk import SimulatedDisk
from headrace.testing.host_loop import HostLoop

if TYPE_CHECKING:
    from headrace.testing.simulation import Simulation

T = TypeVar("T")

NEVER: Final = float("inf")
EPOCH_NS: Final = 1_700_000_000_000_000_000
"""What the clocks of all hosts would say at the beginning, if they were right."""
TURN_SECONDS: Final = 50e-6
"""What a turn of a loop takes, on average."""
LONG_TURN_CHANCE: Final = 0.002
LONG_TURN_SECONDS_MAX: Final = 0.03
LOOK_NS_MAX: Final = 4_000
"""The most that the clock advances between two reads in the same turn."""
FINISHING_CHANGES_MAX: Final = 6
"""How much of the work of a thread a crash may let through: so many changes of the disk."""


class Crashed(Exception):
    """The host on which something was to run is gone."""


class Host:
    """A machine with one process."""

    def __init__(self, simulation: "Simulation", name: str, *, is_observer: bool = False) -> None:
        self.simulation = simulation
        self.name = name
        self.boots = 0
        self.random = Random(f"{simulation.seed}/{name}")
        """Decides what happens to it, not what its programs draw."""
        self.disk = SimulatedDisk(self.random.getrandbits(32))
        self.clock_rate = 1.0
        """How fast its clocks run: 1.001 gains a millisecond in a second."""
        self.wall_offset_ns = 0
        """How wrong its wall clock is."""
        self.thread_seconds: Callable[[], float] = self.default_thread_seconds
        """Asked how long each piece of work of a thread takes."""
        self.is_powered = False
        self.loop: HostLoop | None = None
        self._is_observer = is_observer
        self._up_since = self.random.uniform(10, 1e6)
        """What its monotonic clock said at the beginning; others know nothing of it."""
        self._spent_ns = 0
        """How much of the current turn has passed."""
        self._free_at = 0.0
        """When its processor has time again."""
        self.paused_until = 0.0
        self._former: list[HostLoop] = []
        self._waiting: dict[int, tuple[asyncio.Future[Any], asyncio.AbstractEventLoop]] = {}
        self._numbers = count()
        self.on_crash: list[Callable[[], None]] = []
        """Called with a crash, for what a test keeps of a life; then forgotten."""

    def __repr__(self) -> str:
        return self.name

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    # Life

    def boot(self) -> None:
        """Start with nothing but the disk; what was running is gone."""
        if self.loop is not None:
            raise RuntimeError(f"{self.name} is up")
        if self.boots and not self.is_powered:
            self.disk.crash()
        self.boots += 1
        self.simulation.note(self, f"boots, the {self.boots}. time")
        self.is_powered = True
        self.disk.on_power_lost = self._on_power_lost
        self.loop = HostLoop(self, self._context())
        self._free_at = self.paused_until = self.simulation.now
        self.simulation.network.note_boot(self)

    def crash(self, *, power: bool = True) -> None:
        """Stop everything at this instant; call `boot` afterwards.

        With `power` the machine loses power: unsynced data may be lost, and no peer is told.
        Without, only the process ends, as by kill -9: files are as they were written, and the
        kernel closes all connections.
        """
        loop = self._take_down(power=power)
        if loop is None:
            return
        loop.threads.kill(self._finish)
        if power:
            self.disk.lose_power_after(0)
        else:
            self.disk.end_process()

    def lose_power_after(self, changes: int) -> None:
        """Crash in the middle of the work, at a change of the disk some changes from now."""
        self.disk.lose_power_after(changes)

    def pause(self, seconds: float) -> None:
        """Pause the host for a while, like a stopped process or a migrating virtual machine.

        Its clocks continue, and its kernel still responds.
        """
        self.simulation.note(self, f"pauses for {seconds:.3f} s")
        self.paused_until = max(self.paused_until, self.simulation.now + seconds)
        self._free_at = max(self._free_at, self.paused_until)

    def _take_down(self, *, power: bool) -> HostLoop | None:
        loop, self.loop = self.loop, None
        if loop is None:
            return None
        loop.drop_ready()
        self.simulation.note(self, "loses power" if power else "is killed")
        self.is_powered = not power
        self._former.append(loop)
        self.simulation.network.note_crash(self, loop, is_silent=power)
        for callback in self.on_crash:
            callback()
        self.on_crash.clear()
        waiting, self._waiting = self._waiting, {}
        for future, asking in waiting.values():
            asking.call_soon(_settle, future, None, Crashed(self.name))
        return loop

    def _on_power_lost(self) -> None:
        loop = self._take_down(power=True)
        if loop is not None:
            loop.threads.kill(None)

    def _finish(self, work: Callable[[], object]) -> None:
        """Run part of a thread's work before it ends, or none."""
        if self.random.random() < 0.5:
            self.disk.lose_power_after(self.random.randint(0, FINISHING_CHANGES_MAX))
            try:
                self._context().run(work)
            except BaseException as error:  # of a program that is gone
                self.simulation.note(self, f"goes while it works: {type(error).__name__}")

    def bury(self) -> None:
        """Dispose of what is left at the end of a simulation."""
        if self.loop is not None:
            self._former.append(self.loop)
            self.loop = None
        for loop in self._former:
            loop.bury()
        self._former.clear()

    # What runs on it

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Run a coroutine on the host, from another one; raise Crashed if the host dies first.

        The future belongs to the caller's loop.
        """
        asking = asyncio.get_running_loop()
        answer: asyncio.Future[T] = asking.create_future()
        if self.loop is None:
            work.close()
            answer.set_exception(Crashed(self.name))
            return answer
        number = next(self._numbers)
        self._waiting[number] = answer, asking
        task = self.spawn(work)

        def tell(done: "asyncio.Task[T]") -> None:
            if self._waiting.pop(number, None) is None:
                return
            if done.cancelled():
                asking.call_soon(answer.cancel)
                return
            error = done.exception()
            asking.call_soon(_settle, answer, None if error else done.result(), error)

        task.add_done_callback(tell, context=self._living().root.copy())
        return answer

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the host, from another one, and return what it returns."""
        return await self.start(work)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Make a task on the host's own loop."""
        loop = self._living()
        return loop.root.copy().run(self._on_loop, loop.create_task, work)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function as if the host did, at once."""
        loop = self._living()
        return loop.root.copy().run(self._on_loop, function, *arguments)

    def _on_loop(self, function: Callable[..., T], *arguments: Any) -> T:
        before = events._get_running_loop()
        events._set_running_loop(self._living())
        try:
            return function(*arguments)
        finally:
            events._set_running_loop(before)

    def tasks(self) -> list["asyncio.Task[Any]"]:
        """Return what runs on it and has not ended."""
        return sorted(asyncio.all_tasks(self._living()), key=lambda task: task.get_name())

    def _living(self) -> HostLoop:
        if self.loop is None:
            raise Crashed(self.name)
        return self.loop

    # Time

    def next_at(self) -> float:
        """Return when it has something to do."""
        loop = self.loop
        if loop is None:
            return NEVER
        if loop._ready:
            return self._free_at  # which may be over
        if not loop._scheduled:
            return NEVER
        due = (loop._scheduled[0]._when - self._up_since) / self.clock_rate
        return due if due > self._free_at else self._free_at

    def turn(self) -> None:
        """Run the loop once: what is ready now."""
        self._living().turn()
        if not self._is_observer:
            self._spend()

    def _spend(self) -> None:
        """Advance the host's time by the duration of the turn: others are ahead in the meantime."""
        took = self.random.expovariate(1 / TURN_SECONDS) + self._spent_ns / 1e9
        if self.random.random() < LONG_TURN_CHANCE:
            took += self.random.uniform(0, LONG_TURN_SECONDS_MAX)
        self._spent_ns = 0
        self._free_at = max(self._free_at, self.simulation.now + took)

    def monotonic(self) -> float:
        """Return what its loop takes for the time, in seconds."""
        return self._up_since + self.simulation.now * self.clock_rate

    def monotonic_ns(self) -> int:
        self._spent_ns += self.random.randrange(LOOK_NS_MAX)
        return int(self.monotonic() * 1e9) + self._spent_ns

    def time_ns(self) -> int:
        return EPOCH_NS + int(self.simulation.now * self.clock_rate * 1e9) + self.wall_offset_ns

    def default_thread_seconds(self) -> float:
        """Return how long a piece of work takes on a disk that is well."""
        luck = self.random.random()
        return luck * 0.002 if luck < 0.97 else self.random.uniform(0.002, 0.1)

    def _context(self) -> Context:
        """Return a context in which programs find the host's luck and clocks."""
        context = copy_context()
        luck = Random(f"{self.simulation.seed}/{self.name}/{self.boots}/{next(self._numbers)}")
        clocks = Clocks(self.time_ns, self.monotonic_ns)
        context.run(SURROUNDINGS.set, Surroundings(luck, clocks))
        return context


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
