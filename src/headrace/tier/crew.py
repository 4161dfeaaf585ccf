"""Work on many partitions, on a few at a time: what Kafka has a pool of threads for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.errors import HeadraceError
from headrace.tier.backoff import Backoff
from headrace.tier.tiered_partition import TieredPartition

DISMISS_SECONDS_MAX: Final = 5.0
"""How long whoever deletes a log waits for work that was cancelled."""

logger = logging.getLogger(__name__)


class Crew:
    """Runs one kind of work for partitions, each at most once at a time.

    Work that fails is due again after a while, longer each time. Failures are counted, and the
    first of several of one kind is logged.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[TieredPartition], Awaitable[None]],
        *,
        limit: Callable[[], int],
        backoff: Backoff,
        chance: Callable[[], float],
    ) -> None:
        self.failures = 0
        self._name = name
        self._work = work
        self._limit = limit
        self._backoff = backoff
        self._chance = chance
        self._waiting: dict[TieredPartition, None] = {}
        self._running: dict[TieredPartition, asyncio.Task[None]] = {}
        self._resting: dict[TieredPartition, asyncio.TimerHandle] = {}
        self._errors: dict[TieredPartition, tuple[int, Exception]] = {}
        """How many in a row, and the last one."""
        self._is_stopped = False

    def call(self, tiered: TieredPartition) -> None:
        """Start the work for a partition, unless it is under way or backing off after an error."""
        if not (tiered in self._running or tiered in self._resting or self._is_stopped):
            self._waiting[tiered] = None
            self._start_some()

    def error_of(self, tiered: TieredPartition) -> str | None:
        """Return the error that the work for a partition rests after."""
        found = self._errors.get(tiered)
        return None if found is None else str(found[1])

    def partitions(self) -> list[TieredPartition]:
        """Return the partitions that there is work for."""
        return [*self._running, *self._waiting, *self._resting]

    @property
    def running_count(self) -> int:
        return len(self._running)

    async def settle(self) -> None:
        """Return when no work is under way."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def dismiss(self, tiered: TieredPartition) -> None:
        """Forget a partition, which must have been stopped, and cancel what is done for it.

        Return when nobody works on it any more, at the latest after some seconds.
        """
        self._waiting.pop(tiered, None)
        self._errors.pop(tiered, None)
        if (timer := self._resting.pop(tiered, None)) is not None:
            timer.cancel()
        if (task := self._running.get(tiered)) is not None:
            task.cancel()
            await asyncio.wait([task], timeout=DISMISS_SECONDS_MAX)
        self._errors.pop(tiered, None)
        if (timer := self._resting.pop(tiered, None)) is not None:
            timer.cancel()

    async def stop(self) -> None:
        """Cancel all work."""
        self._is_stopped = True
        self._waiting.clear()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start_some(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._running) < self._limit():
            tiered = next(iter(self._waiting))
            del self._waiting[tiered]
            self._running[tiered] = loop.create_task(self._run(tiered))

    async def _run(self, tiered: TieredPartition) -> None:
        try:
            await self._work(tiered)
        except Exception as error:
            self._rest(tiered, error)
        else:
            if self._errors.pop(tiered, None) is not None:
                logger.info("%s of %s goes on", self._name, tiered.name)
        finally:
            del self._running[tiered]
            if not self._is_stopped:
                self._start_some()

    def _rest(self, tiered: TieredPartition, error: Exception) -> None:
        self.failures += 1
        count, last = self._errors.get(tiered, (0, None))
        if tiered.is_stopped or self._is_stopped:
            return
        if type(error) is not type(last):  # its text names other objects each time
            is_expected = isinstance(error, OSError | HeadraceError)
            logger.warning(
                "%s of %s failed, to be tried again: %s",
                *(self._name, tiered.name, error),
                exc_info=None if is_expected else error,
            )
        self._errors[tiered] = count + 1, error
        wait_ms = self._backoff.wait_ms(count + 1, self._chance())
        self._resting[tiered] = asyncio.get_running_loop().call_later(
            wait_ms / 1000, self._call_again, tiered
        )

    def _call_again(self, tiered: TieredPartition) -> None:
        del self._resting[tiered]
        self.call(tiered)
