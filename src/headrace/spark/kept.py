"""What each thread of a process keeps open between calls: connections to clusters and stores.

A loop runs in one thread at a time, so threads of a program that runs a table in one and compacts
it in another have connections of their own. What a parent process has opened is not a fork's to
use, nor to close.
"""

import os
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")


class Closable(Protocol):
    """Something that holds connections."""

    @property
    def is_busy(self) -> bool:
        """Whether a thread is using it now."""

    def close(self) -> None: ...


V = TypeVar("V", bound=Closable)


class Kept(Generic[K, V]):
    """Open things by key; of each thread the least recently used ones are closed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[tuple[int, int, K], V] = {}
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return this thread's thing of a key, which is made if there is none."""
        mine = os.getpid(), threading.get_ident(), key
        with self._lock:
            found = self._open.pop(mine, None)
        if found is None:
            found = make()
        with self._lock:
            self._open[mine] = found
            surplus = self._surplus()
        for each in surplus:
            each.close()
        return found

    def close(self) -> None:
        """Close what this process has open, but for what a thread is using now."""
        with self._lock:
            found = list(self._open.items())[::-1]
            self._open.clear()
        for (pid, _, _), each in found:
            if pid == os.getpid() and not each.is_busy:
                each.close()

    def _surplus(self) -> list[V]:
        """Take out what is too much, the oldest first, and return what of it is to be closed."""
        idle = [each for each in self._open if self._is_idle(each)]
        taken = [(each, self._open.pop(each)) for each in idle[: -self._most]]
        return [found for (pid, _, _), found in taken if pid == os.getpid()]

    def _is_idle(self, place: tuple[int, int, K]) -> bool:
        """Return whether no other thread of this process may use something."""
        pid, thread, _ = place
        if pid != os.getpid() or thread == threading.get_ident():
            return True
        return all(each.ident != thread for each in threading.enumerate())
