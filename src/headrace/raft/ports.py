"""What a node of the quorum is set among: a state machine, a network, a clock and disk threads."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from headrace.raft.disk_thread import DiskThread, Then, Work
from headrace.raft.messages import Message


class StateMachine(Protocol):
    """What the log is of. An exception from here stops the node: nothing is skipped."""

    def apply(self, index: int, data: bytes) -> None:
        """Apply a committed proposal. Indices grow, with gaps."""

    def snapshot(self) -> bytes:
        """Return the state as of the last `apply`; on the loop, so it should be quick."""

    def restore(self, index: int, data: bytes) -> None:
        """Be what `snapshot` gave at an index, whatever the state was."""


class Transport(Protocol):
    """The way to the other nodes; what comes from them goes to `RaftDriver.receive`."""

    def send(self, messages: list[Message]) -> None:
        """Send what can be sent, at once and without waiting; what is lost is sent again."""


class NoTransport:
    """For a quorum of one."""

    def send(self, messages: list[Message]) -> None:
        """Lose everything."""


class DiskWorker(Protocol):
    """Does what it is given, one after the other."""

    def run(self, work: Work, then: Then) -> None:
        """Do `work`, then call `then` on the loop with what it raised, None if it went well."""

    def close(self) -> None:
        """Accept no more work; queued work is still done."""


class Host(Protocol):
    """The clock and the threads of a node."""

    def now_ms(self) -> int:
        """Return the monotonic time."""

    def call_at(self, at_ms: int, ring: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back when `now_ms` has reached a time."""

    def make_worker(self, name: str) -> DiskWorker:
        """Return a worker that waits for the disk."""


class LoopHost:
    """The clock of the loop that runs where this is made, and real threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def call_at(self, at_ms: int, ring: Callable[[], None]) -> asyncio.TimerHandle:
        # Half a millisecond later, so that the time has come by a clock in whole ones.
        return self._loop.call_at(at_ms / 1000 + 0.0005, ring)

    def make_worker(self, name: str) -> DiskWorker:
        return DiskThread(name)
