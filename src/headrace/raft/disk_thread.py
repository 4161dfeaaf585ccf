"""What waits for the disk, so that the loop does not.

A thread of our own and a queue take half the time of an executor to hand work over and back,
which is what a lone proposal waits for beside the sync itself.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

Work = Callable[[], None]
Then = Callable[[BaseException | None], None]


class DiskThread:
    """Does what it is given, one after the other; made on the loop that it answers to."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Work, Then] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def run(self, work: Work, then: Then) -> None:
        """Do `work`, then call `then` on the loop with what it raised, None if it went well."""
        self._queue.put((work, then))

    def close(self) -> None:
        """End behind what was given."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, then = item
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # it is the caller's
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(then, error)
