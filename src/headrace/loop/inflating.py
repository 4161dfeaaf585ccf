"""Work that inflates batches, off the loop and little of it at once.

A small request can make a node inflate hundreds of megabytes. The loop must not wait for that, and
the memory of all such work together must have a bound: a few threads, each with one batch at a
time, which headrace.inflated.batch.max.bytes bounds. Whoever asks first is served first.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from headrace.records.errors import RecordsError
from headrace.records.header import BatchHeader
from headrace.records.validation import TopicRules, finish_validation

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Inflating:
    """The threads that inflate, as many as headrace.inflating.threads says."""

    def __init__(self, threads_max: int) -> None:
        self._free = asyncio.Semaphore(threads_max)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Return what `work` returns, from a thread and when it is its turn.

        To be fair to others, a request asks for one thing after the other.
        """
        async with self._free:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, work, *arguments)

    async def validate(
        self, batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int
    ) -> tuple[BatchHeader, memoryview]:
        """Return what `validate_batch` would, for a batch that is costly; RecordsError likewise."""
        outcome = await self.run(finish_validation, batch, header, rules, now_ms)
        if isinstance(outcome, RecordsError):
            raise outcome
        return outcome

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a handler's task that asks for threads; it sees to its errors itself."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
