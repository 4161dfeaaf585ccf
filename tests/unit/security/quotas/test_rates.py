"""How much went in the last windows, and how long to wait for it."""

import pytest

from headrace.security.quotas.rates import WAIT_MS_MAX, SampledRate, TokenBucket, Windows

ELEVEN = Windows(11, 1000)


def test_a_burst_counts_as_if_the_client_had_been_silent_before() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(10_000, 0)
    assert rate.per_second(0) == 1000
    assert rate.wait_ms(1000, 0) == 0
    rate.record(1000, 0)
    assert rate.wait_ms(1000, 0) == 1000


def test_whoever_waits_as_long_as_told_is_at_the_limit() -> None:
    rate = SampledRate(Windows(3, 1000))
    rate.record(1, 0)
    rate.record(201, 2000)
    assert rate.wait_ms(100, 2000) == 20
    assert rate.wait_ms(100, 2020) == 0


def test_a_window_counts_until_its_last_value_is_older_than_all_windows() -> None:
    rate = SampledRate(Windows(2, 1000))
    rate.record(100, 0)
    rate.record(100, 999)
    assert rate.per_second(2998) == pytest.approx(200 * 1000 / 2998)
    assert rate.per_second(2999) == 0


def test_what_is_taken_back_was_never_counted() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(500, 0)
    before = rate.per_second(100)
    rate.record(70_000, 100)
    rate.record(-70_000, 100)
    assert rate.per_second(100) == before


def test_a_clock_that_is_put_back_makes_nobody_wait_for_it() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(1e9, 10_000_000)
    assert rate.wait_ms(1, 0) == 0


def test_one_window_is_measured_over_its_own_length() -> None:
    rate = SampledRate(Windows(1, 1000))
    rate.record(100, 0)
    assert rate.per_second(0) == 100


@pytest.mark.parametrize("limit", [0.0, 5e-324, 1e-300])
def test_no_wait_is_longer_than_a_response_can_tell(limit: float) -> None:
    rate, bucket = SampledRate(ELEVEN), TokenBucket(ELEVEN)
    rate.record(1e18, 0)
    bucket.record(1e18, limit, 0)
    assert rate.wait_ms(limit, 0) == WAIT_MS_MAX
    assert bucket.wait_ms(limit, 0) == WAIT_MS_MAX


def test_a_new_bucket_is_full_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(ELEVEN)
    assert bucket.wait_ms(5, 0) == 0
    bucket.record(55, 5, 0)
    assert bucket.wait_ms(5, 0) == 0
    bucket.record(60, 5, 0)
    assert bucket.wait_ms(5, 0) == 12_000
    assert bucket.wait_ms(5, 11_999) > 0
    assert bucket.wait_ms(5, 12_000) == 0


def test_a_bucket_never_holds_more_than_its_windows() -> None:
    bucket = TokenBucket(ELEVEN)
    bucket.record(1, 5, 0)
    bucket.record(56, 5, 3_600_000)
    assert bucket.wait_ms(5, 3_600_000) == 200


def test_a_bucket_keeps_its_debt_when_its_limit_changes() -> None:
    bucket = TokenBucket(ELEVEN)
    bucket.record(65, 5, 0)
    assert bucket.wait_ms(5, 0) == 2000
    assert bucket.wait_ms(1, 0) == 10_000
