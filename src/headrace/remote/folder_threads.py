"""Threads for a file system that may never respond, as that of a dead NFS server.

A thread in a system call cannot be cancelled. Those of `concurrent.futures` are waited for when the
interpreter exits, however long; these are not.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREAD_NAME: Final = "tier-folder"
_Job = tuple[Future[Any], Callable[[], Any]]


class FolderThreads(Executor):
    """A few threads, begun when they are needed, that nobody has to wait for."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._unfinished: set[Future[Any]] = set()
        self._is_closed = False
        self._mutex = Lock()

    def submit(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._mutex:
            if self._is_closed:
                raise RuntimeError("the threads of a folder were told to end")
            self._unfinished.add(future)
            self._jobs.put((future, lambda: work(*arguments, **named)))
            if len(self._unfinished) > self._count and self._count < self._count_max:
                self._count += 1
                Thread(target=self._run, name=THREAD_NAME, daemon=True).start()
        future.add_done_callback(self._forget)
        return future

    def unfinished(self) -> list[Future[Any]]:
        """Return the jobs that are waiting or under way."""
        with self._mutex:
            return list(self._unfinished)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End each thread after the queued jobs, without waiting for it."""
        with self._mutex:
            if not self._is_closed:
                self._is_closed = True
                for _ in range(self._count):
                    self._jobs.put(None)

    def _forget(self, future: Future[Any]) -> None:
        with self._mutex:
            self._unfinished.discard(future)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del job, future, work
