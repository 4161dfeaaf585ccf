"""When delivery to a share group pauses, and when it goes on."""

from headrace.share.breaker import Breaker, BreakerLimits, BreakerState

LIMITS = BreakerLimits(reject_percent=50, window_ms=1000, records_min=10, pause_ms=500)
START_MS = 1_000_000


class Group:
    """A breaker, and the time."""

    def __init__(self, limits: BreakerLimits = LIMITS) -> None:
        self.limits = limits
        self.now = START_MS
        self.breaker = Breaker(lambda: self.limits)

    def outcomes(self, rejected: int, accepted: int) -> bool:
        return self.breaker.on_outcomes(rejected, rejected + accepted, self.now)

    def wait(self, ms: int) -> None:
        """Let time pass, and what is due be done."""
        self.now += ms
        deadline_ms = self.breaker.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now:
            assert self.breaker.on_deadline(self.now)

    def opened(self) -> "Group":
        assert self.outcomes(10, 0)
        return self


def test_opens_when_the_share_of_rejected_records_is_reached() -> None:
    group = Group()
    assert not group.outcomes(4, 5)
    assert not group.breaker.is_holding
    assert group.outcomes(1, 0)
    assert group.breaker.state is BreakerState.OPEN
    assert group.breaker.is_holding


def test_a_few_records_mean_nothing() -> None:
    group = Group()
    assert not group.outcomes(9, 0)
    assert group.breaker.counted(group.now) == (9, 9)
    assert group.outcomes(1, 0)


def test_what_is_longer_ago_than_the_window_does_not_count() -> None:
    group = Group()
    group.outcomes(9, 0)
    group.wait(LIMITS.window_ms)
    assert not group.outcomes(9, 0)
    assert group.breaker.counted(group.now) == (9, 9)


def test_the_window_moves_bit_by_bit() -> None:
    group = Group()
    group.outcomes(5, 0)
    group.wait(600)
    group.outcomes(2, 0)
    group.wait(300)
    assert group.breaker.counted(group.now) == (7, 7)
    group.wait(150)
    assert group.breaker.counted(group.now) == (2, 2)


def test_a_clock_that_is_set_back_forgets() -> None:
    group = Group()
    group.outcomes(9, 0)
    group.now -= 3_600_000
    assert not group.outcomes(9, 0)


def test_never_opens_unless_a_share_is_set() -> None:
    group = Group(BreakerLimits())
    assert not group.outcomes(1000, 0)
    assert not group.breaker.is_holding


def test_holds_until_the_pause_is_over_and_then_lets_one_fetch_through() -> None:
    group = Group().opened()
    group.wait(LIMITS.pause_ms - 1)
    assert group.breaker.is_holding
    group.wait(1)
    assert group.breaker.state is BreakerState.HALF_OPEN
    assert not group.breaker.is_holding
    group.breaker.on_acquired(3, group.now)
    assert group.breaker.is_holding


def test_what_was_delivered_before_does_not_end_the_pause_nor_decide_after_it() -> None:
    group = Group().opened()
    assert not group.outcomes(0, 100)
    group.wait(LIMITS.pause_ms)
    assert not group.outcomes(0, 100)
    assert group.breaker.state is BreakerState.HALF_OPEN


def test_closes_when_the_trial_goes_well() -> None:
    group = Group().opened()
    group.wait(LIMITS.pause_ms)
    group.breaker.on_acquired(3, group.now)
    assert not group.outcomes(1, 1)
    assert group.outcomes(0, 1)
    assert group.breaker.state is BreakerState.CLOSED
    assert not group.breaker.is_holding
    assert group.breaker.counted(group.now) == (0, 0)


def test_opens_again_when_it_does_not() -> None:
    group = Group().opened()
    group.wait(LIMITS.pause_ms)
    group.breaker.on_acquired(500, group.now)
    assert group.outcomes(5, 5)
    assert group.breaker.state is BreakerState.OPEN
    assert group.breaker.next_deadline_ms() == group.now + LIMITS.pause_ms


def test_a_trial_without_an_outcome_is_followed_by_another() -> None:
    group = Group().opened()
    group.wait(LIMITS.pause_ms)
    group.breaker.on_acquired(3, group.now)
    group.wait(LIMITS.pause_ms)
    assert not group.breaker.is_holding
    group.breaker.on_acquired(1, group.now)
    assert group.outcomes(0, 1)


def test_closes_when_it_is_turned_off() -> None:
    group = Group().opened()
    group.limits = BreakerLimits()
    assert group.breaker.on_deadline(group.now)
    assert group.breaker.state is BreakerState.CLOSED
    assert not group.breaker.is_holding
