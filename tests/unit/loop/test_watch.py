"""A loop that stands still is noticed, with the code that holds it up."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable

import pytest

from headrace.config import LOOP_STALL_WARN_MS
from headrace.loop.counters import Counters
from headrace.loop.watch import LoopWatch, explain_place
from headrace.testing.broker import TestBroker

STALL_MS = 20
DEADLINE_SECONDS = 20


def hold_up(counters: Counters, hold: Callable[[], None]) -> None:
    """Run a loop that is held up again and again until that is noticed."""

    async def run() -> None:
        watch = LoopWatch(counters, STALL_MS)
        watch.start()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not counters.loop_stalls:
                    hold()
                    await asyncio.sleep(0.001)  # the sign of life
        finally:
            watch.stop()

    asyncio.run(run())


def busy() -> None:
    until = time.monotonic() + 4 * STALL_MS / 1000
    while time.monotonic() < until:
        pass


def test_a_stall_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    hold_up(counters, busy)
    assert counters.loop_stall_ns >= counters.loop_stalls * STALL_MS * 1_000_000
    [line, *_] = [record.getMessage() for record in caplog.records]
    assert line.startswith("the event loop stood still for ")
    assert caplog.records[0].levelno == logging.WARNING


def test_a_loop_that_waits_for_work_is_not_stuck() -> None:
    counters = Counters()

    async def run() -> None:
        watch = LoopWatch(counters, 10_000)
        watch.start()
        await asyncio.sleep(0.05)
        watch.stop()

    asyncio.run(run())
    assert counters.loop_stalls == 0


def test_the_handler_and_the_function_that_it_called_are_named() -> None:
    frames: list[str] = []
    code = compile(
        "def handle(look):\n    rows(look)\ndef rows(look):\n    look()\n",
        sys.modules["headrace.loop.watch"].__file__ or "",
        "exec",
    )
    names: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(code, names)
    names["handle"](lambda: frames.append(explain_place(sys._getframe())))
    assert frames == ["rows (loop/watch.py:4), called by handle (loop/watch.py:2)"]


def test_a_stall_outside_of_our_code_is_said_to_be_that() -> None:
    assert explain_place(None) == "code that is not Headrace's"
    assert explain_place(sys._getframe()) == "code that is not Headrace's"


def test_a_node_watches_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    with TestBroker(settings={LOOP_STALL_WARN_MS.name: str(STALL_MS)}) as broker:
        counters = broker.node.counters

        async def hold() -> None:
            busy()

        until = time.monotonic() + DEADLINE_SECONDS
        while not counters.loop_stalls and time.monotonic() < until:
            broker.run(hold())
    assert counters.loop_stalls
