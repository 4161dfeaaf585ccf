"""Steps of a reader: where it asks for more, and so is done with what it has.

Partitions change hands only then. A rebalance that takes a partition away while one of its records
is still worked on would have it worked on twice.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class StepGate:
    """Lets a rebalance happen while its reader waits for records, and not otherwise."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether the reader has to wait: a rebalance goes on, or is to begin."""
        self.is_inside = False
        """Whether the reader waits for records now."""
        self.on_wanted: Callable[[], None] = lambda: None
        """Is told when a rebalance waits for a reader that is not inside."""
        self._turn = asyncio.Lock()
        self._granted = asyncio.Event()
        self._opened = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Whether a rebalance goes on."""
        return self.is_wanted and self._granted.is_set()

    async def pass_through(self) -> None:
        """Let a rebalance go first. One that began goes on if this is cancelled."""
        while self.is_wanted:
            self._granted.set()
            await self._opened.wait()

    async def wait_open(self) -> None:
        """Wait until a rebalance that began is over."""
        while self.is_held:
            await self._opened.wait()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Wait until the reader asks for more, and keep it waiting."""
        async with self._turn:
            self.is_wanted = True
            self._granted.clear()
            self._opened.clear()
            try:
                if self.is_inside:
                    self._granted.set()
                else:
                    self.on_wanted()
                    await self._granted.wait()
                yield
            finally:
                self.is_wanted = False
                self._opened.set()
