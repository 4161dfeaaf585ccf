"""The circuit breaker of a share group: delivery pauses when too many records are rejected.

Pure: time and outcomes are inputs. Closed, it counts the outcomes of a moving window. Open, nothing
is delivered for a while. Half open, one fetch gets records, and what becomes of them decides. What
was delivered before it opened may be acknowledged at any time.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

SLICES: Final = 20
"""Of a window, which moves by one at a time: outcomes are counted, not kept."""


class BreakerState(Enum):
    CLOSED = "closed"
    """All is delivered."""
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerLimits(NamedTuple):
    """A group's settings, as they are now."""

    reject_percent: int = 0
    """Which share of rejected records opens it; 0: it never does."""
    window_ms: int = 10_000
    records_min: int = 20
    """How many outcomes there must be before a share of them means anything."""
    pause_ms: int = 10_000


class _Slice:
    """The outcomes of a part of the window."""

    __slots__ = ("number", "records", "rejected")

    def __init__(self, number: int) -> None:
        self.number = number
        self.records = 0
        self.rejected = 0


class Breaker:
    """Whether a group's records are delivered."""

    def __init__(self, limits: Callable[[], BreakerLimits]) -> None:
        self.state = BreakerState.CLOSED
        self.is_holding = False
        """Whether nothing may be delivered now."""
        self.opened_ms = 0
        """When it last opened."""
        self._limits = limits
        self._until_ms: int | None = None
        """When the pause ends, or nobody waits any longer for what becomes of a trial."""
        self._slices: deque[_Slice] = deque()
        self._records = 0
        self._rejected = 0
        self._trial_records = 0
        """How many outcomes decide, once somebody has records to try; 0 before."""

    def counted(self, now_ms: int) -> tuple[int, int]:
        """Give how many records were rejected, and how many had an outcome, in the window."""
        if self.state is BreakerState.CLOSED:
            self._forget(now_ms, self._limits())
        return self._rejected, self._records

    def on_acquired(self, records: int, now_ms: int) -> None:
        """Take note of records that a member got; half open, they are the trial."""
        if self.state is BreakerState.HALF_OPEN:
            limits = self._limits()
            self._trial_records = min(self._trial_records + records, limits.records_min)
            self._until_ms = now_ms + limits.pause_ms
            self.is_holding = True

    def on_outcomes(self, rejected: int, records: int, now_ms: int) -> bool:
        """Take note of what became of some records; say whether it opened or closed by that.

        Open, outcomes do not count: those records were delivered before.
        """
        limits = self._limits()
        if not limits.reject_percent:
            return self._close()
        if self.state is BreakerState.OPEN or not records:
            return False
        if self.state is BreakerState.CLOSED:
            self._count(rejected, records, now_ms, limits)
            needed = limits.records_min
        else:
            if not self._trial_records:
                return False  # of records from before the pause
            self._rejected += rejected
            self._records += records
            needed = self._trial_records
        if self._records < needed:
            return False
        if self._is_too_much(limits):
            self._open(now_ms, limits)
            return True
        return self._close()

    def next_deadline_ms(self) -> int | None:
        """Give when to call `on_deadline`; None: never."""
        return self._until_ms

    def on_deadline(self, now_ms: int) -> bool:
        """End the pause, or a trial that comes to nothing; say whether there may be delivery."""
        if not self._limits().reject_percent:
            self._close()
            return True
        if self._until_ms is None or now_ms < self._until_ms:
            return False
        # A trial ends without an outcome if who got the records died: another one may try.
        self.state = BreakerState.HALF_OPEN
        self._start_over()
        return True

    def _is_too_much(self, limits: BreakerLimits) -> bool:
        return self._rejected * 100 >= limits.reject_percent * self._records

    def _open(self, now_ms: int, limits: BreakerLimits) -> None:
        self._start_over()
        self.state = BreakerState.OPEN
        self.is_holding = True
        self.opened_ms = now_ms
        self._until_ms = now_ms + limits.pause_ms

    def _close(self) -> bool:
        if self.state is BreakerState.CLOSED:
            return False
        self.state = BreakerState.CLOSED
        self._start_over()
        return True

    def _start_over(self) -> None:
        self._slices.clear()
        self._records = self._rejected = self._trial_records = 0
        self._until_ms = None
        self.is_holding = False

    # The window

    def _count(self, rejected: int, records: int, now_ms: int, limits: BreakerLimits) -> None:
        self._forget(now_ms, limits)
        number = now_ms // _slice_ms(limits)
        if not self._slices or self._slices[-1].number != number:
            self._slices.append(_Slice(number))
        newest = self._slices[-1]
        newest.records += records
        newest.rejected += rejected
        self._records += records
        self._rejected += rejected

    def _forget(self, now_ms: int, limits: BreakerLimits) -> None:
        first = now_ms // _slice_ms(limits) - SLICES + 1
        # A clock that was set back, or a window of another length, leaves numbers from the future.
        while self._slices and not first <= self._slices[0].number < first + SLICES:
            oldest = self._slices.popleft()
            self._records -= oldest.records
            self._rejected -= oldest.rejected


def _slice_ms(limits: BreakerLimits) -> int:
    return max(limits.window_ms // SLICES, 1)
