"""One thread that waits for the disk, so that the loop does not.

A thread of our own and a queue take half the time of an executor to hand work over and back,
which is what a lone proposal waits for beside the sync itself.
"""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

Work = Callable[[], None]


class DiskThread:
    """Runs what it is given, one after the other, until it is closed."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[Work, Work, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Work, then: Work) -> "asyncio.Future[None]":
        """Do `work` in the thread and `then` on the loop; raises what either raised.

        `then` runs a turn of the loop earlier than whoever awaits this. The work cannot be
        cancelled, only left, and without anybody to await it there is no `then`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((work, then, future))
        return future

    def close(self) -> None:
        """Let the work that was given be done, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, then, future = item
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # it is the caller's
                error = raised
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future, then, error)


def _finish(future: "asyncio.Future[None]", then: Work, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        try:
            then()
        except Exception as raised:
            error = raised
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
