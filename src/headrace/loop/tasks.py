"""Tasks that nobody awaits: kept until they are done, cancelled together, heard if they fail."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class Tasks:
    """The running tasks of one part of a node."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run `work` until it ends or `cancel` is called; its error is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        for task in tuple(self._running):
            task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        self.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s has failed", task.get_coro(), exc_info=error)
