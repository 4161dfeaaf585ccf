"""Waiting after errors."""

from headrace.tier.backoff import Backoff


def test_each_error_doubles_the_wait_up_to_the_longest() -> None:
    backoff = Backoff(500, 30_000, 0.0)
    waits = [backoff.wait_ms(errors, 0.5) for errors in (1, 2, 3, 7, 1000)]
    assert waits == [500, 1000, 2000, 30_000, 30_000]


def test_chance_varies_the_wait_by_the_jitter() -> None:
    backoff = Backoff(1000, 30_000, 0.2)
    assert [backoff.wait_ms(1, chance) for chance in (0.0, 0.5, 1.0)] == [800, 1000, 1200]
