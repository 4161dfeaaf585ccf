"""A quota of bytes per second."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.loop.quota import Quota


def test_nothing_waits_below_the_rate() -> None:
    quota = Quota(window_count=11, window_ms=1000)
    assert quota.wait_ms(1000, 0) == 0
    quota.record(10_000, 0)
    assert quota.wait_ms(1000, 0) == 0
    quota.record(1_000, 0)
    assert quota.wait_ms(1000, 0) == 1000
    assert quota.wait_ms(2**63 - 1, 0) == 0


def test_whoever_waits_as_long_as_told_may_go_on() -> None:
    quota = Quota(window_count=3, window_ms=1000)
    quota.record(201, 0)
    assert quota.wait_ms(100, 0) == 10
    assert quota.wait_ms(100, 10) == 0


def test_old_windows_are_forgotten() -> None:
    quota = Quota(window_count=2, window_ms=1000)
    quota.record(100_000, 0)
    assert quota.wait_ms(1000, 1999) > 0
    assert quota.wait_ms(1000, 2000) == 0


def test_a_clock_that_is_put_back_does_not_make_anyone_wait_for_it() -> None:
    quota = Quota(window_count=2, window_ms=1000)
    quota.record(100_000, 10_000_000)
    assert quota.wait_ms(1000, 0) == 0


@given(
    st.integers(1000, 1_000_000),
    st.integers(2, 12),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=60),
)
def test_in_the_long_run_the_rate_holds(
    rate_max: int, window_count: int, parts: list[float]
) -> None:
    """Parts are at most what goes in a second: windows forget what is much more."""
    quota = Quota(window_count=window_count, window_ms=1000)
    now_ms = sent = 0
    for part in parts:
        turns = 0
        while wait_ms := quota.wait_ms(rate_max, now_ms):
            now_ms += wait_ms
            turns += 1
            assert turns < 100
        quota.record(int(part * rate_max), now_ms)
        sent += int(part * rate_max)
    burst = rate_max * (window_count + 1)
    share = window_count / (window_count - 1)  # of a span that is forgotten a window early
    assert sent <= burst + share * rate_max * now_ms / 1000 * 1.1
