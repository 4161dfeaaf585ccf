"""Work that becomes due at once, done in bounded amounts per turn of the loop.

One append may wake a thousand fetches, and a thousand locks may expire in the same millisecond.
Each is little work; all of them in one turn would delay every connection. Work that can become due
in such numbers waits here for its turn, in order of arrival.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_COST_MAX: Final = 128
"""How much work fits in one turn of the loop. Visiting one partition costs 1: 10 us, or 50 us if
its file has to be opened."""
ANSWER_COST: Final = 4
"""The cost of encoding and sending a response, and the minimum cost of any work."""
BYTES_SHIFT: Final = 15
"""Reading this power of two of bytes (32 KiB) costs 1."""

Work = Callable[[], int]
"""Does a bounded piece of work and returns its cost. It raises nothing."""


class Turns:
    """A queue of work, each piece done once."""

    __slots__ = ("_due", "_is_scheduled")

    def __init__(self) -> None:
        self._due: deque[Work] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._due)

    def soon(self, work: Work) -> None:
        """Schedule a piece of work for the next turn of the loop or a later one."""
        self._due.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        due, left = self._due, TURN_COST_MAX
        try:
            # Work added in the meantime belongs to the next turn.
            for _ in range(len(due)):
                left -= due.popleft()()
                if left <= 0:
                    break
        finally:
            if due:
                asyncio.get_running_loop().call_soon(self._run)
            else:
                self._is_scheduled = False
