"""What waits for the disk, so that the loop does not.

A lone proposal waits for two hand-overs beside the sync itself, so they are made of pipes. To write
to one lets go of the interpreter, so the thread is at work at once and not only when the loop has
nothing left to do; and what comes out of the other is called without a further turn of the loop.
That is half of what a queue and `call_soon_threadsafe` take.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from threading import Thread
from typing import Final

Work = Callable[[], None]
Then = Callable[[BaseException | None], None]

_RING: Final = b"\0"


class DiskThread:
    """Runs work in sequence in a thread; results go to the loop that created it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._given: deque[tuple[Work, Then]] = deque()
        self._done: deque[tuple[Then, BaseException | None]] = deque()
        self._unanswered = 0
        self._is_open = True
        # The loop has the two ends that are kept here, and closes them; the thread has the others.
        given, self._ring_given = os.pipe()
        self._done_rings, ring_done = os.pipe()
        self._loop.add_reader(self._done_rings, self._answer)
        Thread(target=self._run, args=(given, ring_done), name=name, daemon=True).start()

    def run(self, work: Work, then: Then) -> None:
        """Do `work`, then call `then` on the loop with what it raised, None if it went well."""
        assert self._is_open, "given to a thread that was closed"
        self._unanswered += 1
        self._given.append((work, then))
        os.write(self._ring_given, _RING)

    def close(self) -> None:
        """Stop after the queued work."""
        self._is_open = False
        os.close(self._ring_given)
        if self._unanswered == 0:
            self._end()

    def _answer(self) -> None:
        os.read(self._done_rings, len(_RING))
        then, error = self._done.popleft()
        self._unanswered -= 1
        if self._unanswered == 0 and not self._is_open:
            self._end()  # first: `then` may end the loop
        then(error)

    def _end(self) -> None:
        self._loop.remove_reader(self._done_rings)
        os.close(self._done_rings)

    def _run(self, given: int, ring_done: int) -> None:
        while os.read(given, len(_RING)):
            work, then = self._given.popleft()
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # it is the caller's
                error = raised
            self._done.append((then, error))
            os.write(ring_done, _RING)
        os.close(given)
        os.close(ring_done)
