"""Tasks that run until they are stopped, and whose failures are reported."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class Background:
    """The tasks of one membership or session."""

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def runs_here(self) -> bool:
        """Return whether the caller runs in one of them."""
        return asyncio.current_task() in self._tasks

    def start(self, runs: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        self._tasks += [asyncio.create_task(self._guard(run)) for run in runs]

    async def stop(self) -> None:
        """End them, and wait until they have ended."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _guard(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await run()
        except Exception as error:  # whatever it is, whoever waits for records must know
            self._on_failure(error)
