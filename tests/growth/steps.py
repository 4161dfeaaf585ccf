"""Cost counted in bytecode instructions, so that growth can be tested on a noisy machine.

    def fetch(partitions: int) -> int:
        reader = make_reader(partitions)          # not counted
        return steps(lambda: reader.read_all())   # counted

    assert_grows_linearly(fetch, 200)

A loop inside C (`sorted`, `in` on a list) counts as one step: keep the data such that it could not
hide there, or count calls of your own.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

DOUBLING_COST_MAX: Final = 2.5
"""What twice the work may cost, as a multiple of the work itself."""


def steps(work: Callable[[], object]) -> int:
    """Return the number of bytecode instructions that this thread executes in `work`."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        elif event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return on_event

    previous = sys.gettrace()
    sys.settrace(on_event)
    try:
        work()
    finally:
        sys.settrace(previous)
    return count


def assert_grows_linearly(cost: Callable[[int], int], size: int) -> None:
    """Raise AssertionError if `cost` of twice the size is more than 2.5 times that of `size`.

    `cost` is called once to warm up what is loaded or compiled with the first use.
    """
    cost(size)
    once, twice = cost(size), cost(2 * size)
    assert twice <= DOUBLING_COST_MAX * once, (
        f"{2 * size} cost {twice:,} steps, {size} cost {once:,}: {twice / once:.2f} times as many"
    )


def assert_stays_flat(cost: Callable[[int], int], size: int) -> None:
    """Raise AssertionError if `cost` depends on `size`: eight times as much may cost 1.5 times."""
    cost(size)
    once, eightfold = cost(size), cost(8 * size)
    assert eightfold <= 1.5 * once, (
        f"{8 * size} cost {eightfold:,} steps, {size} cost {once:,}: what exists is paid for"
    )
