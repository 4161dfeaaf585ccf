"""The cost of work that is done in slices: how long the loop is held, and how long it all takes."""

from typing import Any, Final

from headrace.loop.slices import Slices, run_whole
from tests.growth.steps import steps

SLICE_STEPS_MAX: Final = 150_000
"""What the loop may be held for: some five milliseconds of a core that has nothing else to do."""


def total_steps(work: Slices[Any]) -> int:
    """Return how many instructions work takes as a whole."""
    return steps(lambda: run_whole(work))


def longest_slice(work: Slices[Any]) -> tuple[int, Any]:
    """Return how many instructions the longest slice of work takes, and what the work returns."""
    longest = 0
    while True:
        done: list[Any] = []

        def run() -> None:
            try:
                next(work)
            except StopIteration as end:
                done.append(end.value)  # noqa: B023  called at once

        longest = max(longest, steps(run))
        if done:
            return longest, done[0]


def assert_slices_are_short(work: Slices[Any]) -> Any:
    """Raise AssertionError if work holds the loop for long; return what it returns."""
    longest, result = longest_slice(work)
    assert longest <= SLICE_STEPS_MAX, f"one slice had {longest:,} steps"
    return result


async def finish_measured(work: Slices[Any]) -> Any:
    """Stand in for `finish` of `headrace.loop.slices`, and fail if slices are long."""
    return assert_slices_are_short(work)
