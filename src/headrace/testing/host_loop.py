"""The asyncio loop of one life of a simulated host.

It is one of many in a process and runs only in the turns that the simulation gives it. Everything
that a loop reaches the outside by is the host's: time, threads, streams and datagrams.
"""

import asyncio
import inspect
import sys
import threading
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from headrace.raft.ports import DiskWorker
from headrace.testing.threads import SimulatedWorker, Threads

if TYPE_CHECKING:
    from headrace.testing.hosts import Host

CLOSE_ATTEMPTS_MAX: Final = 20


class HostLoop(asyncio.BaseEventLoop):
    """A loop that is run one turn at a time."""

    def __init__(self, host: "Host", root: Context) -> None:
        self.host = host
        self.root = root
        """The context that everything on the host descends from; copy it to run in it."""
        self._dropped: list[object] = []
        """What would have run: kept, as taking it apart runs code of the program."""
        super().__init__()
        self.threads = Threads(self)
        self._selector = _NoSelector()
        # asyncio's own, which it has had since its first version; its type stubs know none of it.
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[Any]
        self._run_once: Callable[[], None]
        self._asyncgen_firstiter_hook: Callable[[AsyncGenerator[Any, Any]], None]
        self._asyncgen_finalizer_hook: Callable[[AsyncGenerator[Any, Any]], None]
        # It counts as running for as long as it lives: between its turns the others have theirs.
        self._thread_id: int | None = threading.get_ident()

    def __repr__(self) -> str:
        return f"<loop {self.host.boots} of {self.host}>"

    def time(self) -> float:
        return self.host.monotonic()

    # What the simulation calls

    def turn(self) -> None:
        """Run what is ready now, as asyncio's own loop does between two polls of its sockets."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._asyncgen_firstiter_hook, self._asyncgen_finalizer_hook)
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def drop_ready(self) -> None:
        """Drop everything that is ready, even in the middle of a turn."""
        for handle in self._ready:
            self._dropped.append((handle._callback, handle._args))  # type: ignore[attr-defined]
            handle.cancel()

    def bury(self) -> None:
        """Silently dispose of what is left on a loop that never runs again."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self._thread_id = None
        self.close()

    # What asyncio calls

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no selector, and so there are no events of one."""

    def _write_to_self(self) -> None:
        """Do nothing: a simulated loop does not sleep."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.host.loop is self:
            error = context.get("exception")
            text = f"{self.host}: {context.get('message')}: {error!r}"
            self.host.simulation.fail(error if error is not None else text)

    # What programs call

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        return self.threads.submit(executor, func, *args)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> asyncio.AbstractServer:
        return self.host.simulation.network.listen(self, protocol_factory, host, port, options)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        network = self.host.simulation.network
        return await network.connect(self, protocol_factory, host, port, options)

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.DatagramProtocol],
        local_addr: tuple[str, int] | None = None,
        remote_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        network = self.host.simulation.network
        return network.open_datagrams(self, protocol_factory, local_addr, remote_addr, options)


def _close(coroutine: Any) -> None:
    """Close a coroutine of a program that is gone, which may want to wait for something first."""
    if inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
        for value in tuple(coroutine.cr_frame.f_locals.values()):
            if (
                inspect.iscoroutine(value)
                and inspect.getcoroutinestate(value) == inspect.CORO_CREATED
            ):
                value.close()  # nobody has begun to wait for it
    for _ in range(CLOSE_ATTEMPTS_MAX):
        chain = [coroutine]
        while (inner := getattr(chain[-1], "cr_await", None)) is not None:
            chain.append(inner)
        for each in reversed(chain):
            with suppress(BaseException):  # whatever it is, nobody is there to take it
                each.close()
        if getattr(coroutine, "cr_frame", None) is None:
            return


class SimulatedRaftHost:
    """The clock and the threads of the loop that runs, as `headrace.raft.ports.Host`."""

    def __init__(self, loop: HostLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def call_at(self, at_ms: int, ring: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(at_ms / 1000 + 0.0005, ring)

    def make_worker(self, name: str) -> DiskWorker:
        return SimulatedWorker(self._loop.threads.make_pool(1))


class _NoSelector:
    """Stands where asyncio would wait for sockets and time."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def close(self) -> None:
        """Nothing to close."""
