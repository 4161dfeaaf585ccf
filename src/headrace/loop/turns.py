"""Work that is due at once, a bounded amount of it per turn of the loop.

One append may wake a thousand fetches, and a thousand locks may end in the same millisecond. Each
is little work; all of them in one turn would hold up every connection. Whatever can be due in such
numbers waits here for its turn, in the order in which it came.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_COST_MAX: Final = 128
"""How much is done in one turn of the loop. Looking at one partition costs 1: 10 us, or 50 us if
its file has to be opened."""
ANSWER_COST: Final = 4
"""What it costs to encode and send a response, and what any piece of work costs at least."""
BYTES_SHIFT: Final = 15
"""Reading this power of two of bytes (32 KiB) costs 1."""

Work = Callable[[], int]
"""Does a bounded piece of work and returns its cost. It raises nothing."""


class Turns:
    """Pieces of work, each done once."""

    __slots__ = ("_due", "_is_scheduled")

    def __init__(self) -> None:
        self._due: deque[Work] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._due)

    def soon(self, work: Work) -> None:
        """Have a piece of work done in the next turn of the loop, or in a later one."""
        self._due.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        due, left = self._due, TURN_COST_MAX
        try:
            # What is added meanwhile belongs to the next turn.
            for _ in range(len(due)):
                left -= due.popleft()()
                if left <= 0:
                    break
        finally:
            if due:
                asyncio.get_running_loop().call_soon(self._run)
            else:
                self._is_scheduled = False
