"""Work that is due in large numbers: how much of it belongs into one turn."""

import asyncio
import logging

import pytest

from headrace.loop.turns import TURN_COST_MAX, Turns


async def run_until_done(turns: Turns, done: list[int]) -> list[int]:
    """Return how much was done after each turn of the loop."""
    counts = []
    while len(turns):
        await asyncio.sleep(0)
        counts.append(len(done))
    return counts


def work(done: list[int], number: int, cost: int) -> int:
    done.append(number)
    return cost


def test_work_is_done_in_order_and_a_bounded_amount_per_turn() -> None:
    async def run() -> None:
        turns, done = Turns(), list[int]()
        for number in range(10):
            turns.soon(lambda number=number: work(done, number, TURN_COST_MAX // 4))  # type: ignore[misc]
        assert await run_until_done(turns, done) == [4, 8, 10]
        assert done == list(range(10))

    asyncio.run(run())


def test_work_that_makes_work_lets_others_have_their_turn() -> None:
    async def run() -> None:
        turns, done = Turns(), list[int]()

        def again() -> int:
            if len(done) < 5:
                turns.soon(again)
            return work(done, 0, 1)

        turns.soon(again)
        assert await run_until_done(turns, done) == [1, 2, 3, 4, 5, 6]

    asyncio.run(run())


def test_what_fails_does_not_take_the_rest_with_it(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        turns, done = Turns(), list[int]()

        def fail() -> int:
            raise ValueError("a mistake")

        turns.soon(fail)
        turns.soon(lambda: work(done, 1, 1))
        await run_until_done(turns, done)
        assert done == [1]

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "a mistake" in caplog.text
