"""Decompression of batches, in a few threads off the loop.

A small request can make a node decompress hundreds of megabytes. The loop must not wait for that,
and the total memory must be bounded: a few threads, each with one batch at a time, whose size
headrace.inflated.batch.max.bytes bounds. First come, first served.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from headrace.loop.threads import FewThreads
from headrace.records.errors import RecordsError
from headrace.records.header import BatchHeader
from headrace.records.validation import TopicRules, finish_validation

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Inflating:
    """The decompression threads, as many as headrace.inflating.threads."""

    def __init__(self, threads_max: int) -> None:
        self._threads = FewThreads(threads_max)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Run `work` in a thread when it is its turn and return its result.

        To be fair to others, a request should submit one piece of work at a time.
        """
        return await self._threads.run(work, *arguments)

    async def validate(
        self, batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int
    ) -> tuple[BatchHeader, memoryview]:
        """Run `validate_batch` for a costly batch; the result and RecordsError are the same."""
        outcome = await self.run(finish_validation, batch, header, rules, now_ms)
        if isinstance(outcome, RecordsError):
            raise outcome
        return outcome

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a handler's task that uses the threads; it handles its own errors."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
