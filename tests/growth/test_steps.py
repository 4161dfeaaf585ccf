"""The counting itself: it must tell a loop from a loop inside a loop."""

import pytest

from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps


def once(size: int) -> int:
    return steps(lambda: [number + 1 for number in range(size)])


def every_pair(size: int) -> int:
    return steps(lambda: [left for left in range(size) for right in range(size)])


def test_a_loop_is_linear_and_not_flat() -> None:
    assert_grows_linearly(once, 100)
    with pytest.raises(AssertionError, match="what exists is paid for"):
        assert_stays_flat(once, 100)


def test_a_loop_inside_a_loop_is_noticed() -> None:
    with pytest.raises(AssertionError, match="times as many"):
        assert_grows_linearly(every_pair, 20)


def test_work_that_asks_for_nothing_is_flat() -> None:
    assert_stays_flat(lambda size: steps(lambda: range(size)), 100)
