"""When a machine is called next: one timer that never keeps the loop busy without progress."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

PAUSE_SECONDS: Final = 0.05
"""How long to wait after a failed deadline; doubled with each further failure."""
PAUSE_SECONDS_MAX: Final = 1.0


class Time(Protocol):
    """The clock of the deadlines."""

    def now_ms(self) -> int: ...


class DeadlineTimer:
    """Calls `on_due` at the next deadline, with a delay after one that failed."""

    def __init__(self, clock: Time, on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms: int | None = None
        self.unmet_count = 0
        """How many deadlines failed in a row."""

    def arm(self, deadline_ms: int | None) -> None:
        """Schedule a call at a deadline, replacing the previous one; None cancels it."""
        if deadline_ms == self._deadline_ms:
            return
        self.disarm()
        if deadline_ms is None:
            return
        self._deadline_ms = deadline_ms
        delay_seconds = max(deadline_ms - self._clock.now_ms(), 0) / 1000
        if self.unmet_count:  # the failed deadline may be the one that is due
            pause_seconds = PAUSE_SECONDS * 2 ** min(self.unmet_count - 1, 10)
            delay_seconds = max(delay_seconds, min(pause_seconds, PAUSE_SECONDS_MAX))
        self._handle = asyncio.get_running_loop().call_later(delay_seconds, self._on_due)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._deadline_ms = None
