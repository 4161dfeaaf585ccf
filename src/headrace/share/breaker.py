"""The circuit breaker of a share group: delivery pauses when too many records are rejected.

Pure: time and outcomes are inputs. Closed, it counts the outcomes of a moving window. Open, nothing
is delivered for a while. Half open, one fetch gets records, and their outcomes decide. Records
delivered before it opened may be acknowledged at any time.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

SLICES: Final = 20
"""Slices of a window, which moves by one slice: outcomes are counted, not kept."""


class BreakerState(Enum):
    CLOSED = "closed"
    """Records are delivered."""
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerLimits(NamedTuple):
    """A group's current settings."""

    reject_percent: int = 0
    """The percentage of rejected records that opens it; 0 for never."""
    window_ms: int = 10_000
    records_min: int = 20
    """The minimum number of outcomes before it can open."""
    pause_ms: int = 10_000


class _Slice:
    """The outcomes of a part of the window."""

    __slots__ = ("number", "records", "rejected")

    def __init__(self, number: int) -> None:
        self.number = number
        self.records = 0
        self.rejected = 0


class Breaker:
    """Decides whether a group's records are delivered."""

    def __init__(self, limits: Callable[[], BreakerLimits]) -> None:
        self.state = BreakerState.CLOSED
        self.is_holding = False
        """Whether nothing may be delivered now."""
        self.opened_ms = 0
        """When it last opened."""
        self._limits = limits
        self._until_ms: int | None = None
        """When the pause ends, or when a trial without outcomes is abandoned."""
        self._slices: deque[_Slice] = deque()
        self._records = 0
        self._rejected = 0
        self._trial_records = 0
        """How many outcomes decide the trial, once a member has its records; 0 before."""

    def counted(self, now_ms: int) -> tuple[int, int]:
        """Return how many records were rejected, and how many had an outcome, in the window."""
        if self.state is BreakerState.CLOSED:
            self._forget(now_ms, self._limits())
        return self._rejected, self._records

    def on_acquired(self, records: int, now_ms: int) -> None:
        """Record that a member acquired records; half open, they are the trial."""
        if self.state is BreakerState.HALF_OPEN:
            limits = self._limits()
            self._trial_records = min(self._trial_records + records, limits.records_min)
            self._until_ms = now_ms + limits.pause_ms
            self.is_holding = True

    def on_outcomes(self, rejected: int, records: int, now_ms: int) -> bool:
        """Count outcomes of records; return whether that opened or closed the breaker.

        While it is open, outcomes do not count: those records were delivered before.
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
        """Return when to call `on_deadline`, or None."""
        return self._until_ms

    def on_deadline(self, now_ms: int) -> bool:
        """End the pause, or a trial without outcomes; return whether records may be delivered."""
        if not self._limits().reject_percent:
            self._close()
            return True
        if self._until_ms is None or now_ms < self._until_ms:
            return False
        # A trial has no outcome if its member died: another member may try.
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
        # If the clock was set back, or the window's length changed, slices may be from the future.
        while self._slices and not first <= self._slices[0].number < first + SLICES:
            oldest = self._slices.popleft()
            self._records -= oldest.records
            self._rejected -= oldest.rejected


def _slice_ms(limits: BreakerLimits) -> int:
    return max(limits.window_ms // SLICES, 1)
