"""A node in a thread with its own loop."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from headrace.node.node import Node

WAIT_SECONDS_MAX: Final = 60
"""The timeout of every call to a node."""

T = TypeVar("T")


class LoopThread:
    """A loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headrace", daemon=True)
        self._thread.start()
        self._awake = threading.Event()
        self._awake.set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the broker's own loop, which cannot wait for itself")
        if not self._awake.is_set():
            work.close()
            raise RuntimeError("this broker is paused")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(WAIT_SECONDS_MAX)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"the broker took more than {WAIT_SECONDS_MAX} s") from None

    def call(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self.run(call())

    def pause(self) -> None:
        """Stop the loop until `resume`, as if its process was stopped by a signal."""
        self._awake.clear()
        self._loop.call_soon_threadsafe(self._awake.wait)

    def resume(self) -> None:
        self._awake.set()

    def end(self) -> None:
        """Stop the loop and wait for its thread."""
        self.resume()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            asyncio.set_event_loop(None)
            self._loop.close()


class Life(LoopThread):
    """A node in a thread with a loop, from start to stop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        super().__init__()


async def crash(node: Node) -> None:
    """End a node as if by kill -9."""
    node.crash()
    # Both only stop writers: a killed process has no threads left.
    await node.broker.quorum.stop()
    await cancel_all()


async def cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
