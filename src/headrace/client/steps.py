"""Steps of a reader: the points where it asks for more and has finished its records.

Partitions are revoked only then. A rebalance that revokes a partition while one of its records is
being processed would cause it to be processed twice.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class StepGate:
    """Lets a rebalance happen while its reader waits for records, and not otherwise."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether the reader has to wait: a rebalance is running, or about to."""
        self.is_inside = False
        """Whether the reader waits for records now."""
        self.on_wanted: Callable[[], None] = lambda: None
        """Called when a rebalance waits for a reader that is not inside."""
        self._turn = asyncio.Lock()
        self._granted = asyncio.Event()
        self._opened = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Whether a rebalance is running."""
        return self.is_wanted and self._granted.is_set()

    async def pass_through(self) -> None:
        """Wait for a rebalance. If this is cancelled, a started one continues."""
        while self.is_wanted:
            self._granted.set()
            await self._opened.wait()

    async def wait_open(self) -> None:
        """Wait until a rebalance that began is over."""
        while self.is_held:
            await self._opened.wait()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Wait until the reader asks for more, and hold it."""
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
