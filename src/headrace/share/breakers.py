"""The shell around a group's circuit breaker: its timer, its log lines, its waiters."""

import asyncio
import logging
from collections.abc import Callable

from headrace.loop.clock import Clock
from headrace.share.breaker import Breaker, BreakerLimits, BreakerState
from headrace.share.durable import DeliveryState
from headrace.share.partition.changes import Change
from headrace.share.partition.types import Acquired, Cause

logger = logging.getLogger(__name__)


class GroupBreaker:
    """Pauses this node's delivery of one group's records."""

    __slots__ = (
        "_breaker",
        "_clock",
        "_group_id",
        "_limits",
        "_on_delivery",
        "_on_opened",
        "_timer",
        "openings",
    )

    def __init__(
        self,
        group_id: str,
        limits: Callable[[], BreakerLimits],
        clock: Clock,
        *,
        on_opened: Callable[[], None],
        on_delivery: Callable[[], None],
    ) -> None:
        """`on_delivery` is called when records may be delivered again."""
        self.openings = 0
        self._breaker = Breaker(limits)
        self._group_id = group_id
        self._limits = limits
        self._clock = clock
        self._on_opened = on_opened
        self._on_delivery = on_delivery
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> BreakerState:
        return self._breaker.state

    @property
    def is_on(self) -> bool:
        return self._limits().reject_percent > 0

    def counted(self) -> tuple[int, int]:
        """Return how many records were rejected, and how many had an outcome, in the window."""
        return self._breaker.counted(self._clock.now_ms())

    def pause_left_ms(self) -> int | None:
        """Return how much longer delivery pauses; None if it does not."""
        until_ms = self._breaker.next_deadline_ms()
        if until_ms is None or self.state is not BreakerState.OPEN:
            return None
        return max(until_ms - self._clock.now_ms(), 0)

    def is_holding(self) -> bool:
        """Return whether nothing may be delivered now."""
        if not self._breaker.is_holding:
            return False
        if not self.is_on:  # turned off in the meantime
            self._look()
        return self._breaker.is_holding

    def on_acquired(self, acquired: list[Acquired]) -> None:
        """Record that a member acquired records."""
        if self._breaker.state is BreakerState.HALF_OPEN:
            records = sum(each.last_offset - each.first_offset + 1 for each in acquired)
            self._breaker.on_acquired(records, self._clock.now_ms())
            self._arm()

    def count(self, change: Change) -> None:
        """Count the outcomes of records: accepted, rejected, or given up."""
        limits = self._limits()
        if not limits.reject_percent and self.state is BreakerState.CLOSED:
            return
        rejected = records = 0
        for first, last, state, _, cause in change.outcomes:
            if state != DeliveryState.AVAILABLE and cause is not Cause.GONE:
                records += last - first + 1
                if cause is Cause.REJECTED:
                    rejected += last - first + 1
        if self._breaker.on_outcomes(rejected, records, self._clock.now_ms()):
            self._tell(limits)

    # Time

    def rearm(self) -> None:
        """Reset the timer: the clock was moved."""
        self.disarm()
        self._arm()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.disarm()
        deadline_ms = self._breaker.next_deadline_ms()
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self._clock.now_ms(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._look)

    def _look(self) -> None:
        former = self.state
        if self._breaker.on_deadline(self._clock.now_ms()):
            if self.state is BreakerState.CLOSED and former is not BreakerState.CLOSED:
                logger.info("group %r: the circuit breaker was turned off", self._group_id)
            self._on_delivery()
        self._arm()

    def _tell(self, limits: BreakerLimits) -> None:
        if self.state is BreakerState.OPEN:
            self.openings += 1
            self._on_opened()
            logger.warning(
                "group %r: the circuit breaker opened because at least %d%% of its records are "
                "rejected; nothing is delivered for %d ms",
                *(self._group_id, limits.reject_percent, limits.pause_ms),
            )
        else:
            logger.info("group %r: the circuit breaker closed", self._group_id)
            self._on_delivery()
        self._arm()
