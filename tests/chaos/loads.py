"""What every load on the nodes has in common."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable

DEADLINE_SECONDS = 60
"""How soon a load must go on, once all nodes are there again and reach each other."""
POLL_SECONDS = 0.01


class Load(ABC):
    """Clients that never stop, and what they were promised."""

    topic: str
    partitions: int
    coordinated: tuple[str, int]
    """The group (0) or transactional id (1) whose coordinator serves it."""
    rate_min: float
    """How much it has to get done per second, faults included, for a run to prove anything."""

    @abstractmethod
    def progress(self) -> dict[Hashable, int]:
        """Return how much was done so far by each part of it, in each partition."""

    def count(self) -> int:
        """Return how much was done so far."""
        return sum(self.progress().values())

    @abstractmethod
    def state(self) -> str:
        """Say how far it is, for a failure; raise what it failed with itself."""

    def wait_for_more(self, count: int) -> None:
        """Return when so much more was done by each part of it, in each partition."""
        wanted = {part: done + count for part, done in self.progress().items()}

        def is_done() -> bool:
            done = self.progress()
            return all(done[part] >= least for part, least in wanted.items())

        self.wait_for(is_done, f"{count} more in each partition")

    @abstractmethod
    def settle(self) -> None:
        """Check that what was promised since the last time is there, once and in order."""

    @abstractmethod
    def end(self) -> None:
        """Stop it, and check everything once more from the beginning."""

    @abstractmethod
    def close(self) -> None:
        """Stop it, whatever it is at."""

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_so():
            state = self.state()
            assert time.monotonic() < deadline, f"no {what} in {DEADLINE_SECONDS} s: {state}"
            time.sleep(POLL_SECONDS)  # polls, up to the deadline


class Pump:
    """A thread that calls `turn` until it is closed, or until that raises."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def raise_its_error(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "a load does not end"

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._turn()
        except BaseException as error:
            self._error = error
