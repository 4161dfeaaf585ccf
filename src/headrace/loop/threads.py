"""Work in threads of the loop, a few pieces at a time: others of its threads wait for disks.

First come, first served. Whoever has much to do gives it piece by piece, to be fair to others.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class FewThreads:
    """So many of the loop's threads, and no more."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def run(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Run `work` in a thread when it is its turn and return its result."""
        async with self._free:
            return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
