"""One fill for many readers, within a budget."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.remote.store import StoreError
from headrace.tier.fills import Budget, Fills


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Source:
    """Gives a value when its gate is opened."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.count = 0
        self.error: Exception | None = None

    async def fetch(self) -> int:
        self.count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return 42


def test_many_readers_share_a_fill() -> None:
    async def scenario() -> None:
        fills, source = Fills[str, int](), Source()
        fills.begin("a", source.fetch())
        readers = [asyncio.ensure_future(fills.wait("a")) for _ in range(5)]
        await asyncio.sleep(0)
        source.gate.set()
        assert await asyncio.gather(*readers) == [42] * 5
        assert source.count == 1
        assert "a" not in fills

    run(scenario())


def test_a_reader_that_gives_up_leaves_the_fill_alone() -> None:
    async def scenario() -> None:
        fills, source = Fills[str, int](), Source()
        fills.begin("a", source.fetch())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fills.wait("a"), 0.001)
        assert "a" in fills
        later = asyncio.ensure_future(fills.wait("a"))
        await asyncio.sleep(0)
        source.gate.set()
        assert await later == 42
        assert source.count == 1

    run(scenario())


def test_a_failure_reaches_every_reader_and_is_not_remembered() -> None:
    async def scenario() -> None:
        fills, source = Fills[str, int](), Source()
        source.error = StoreError("away")
        fills.begin("a", source.fetch())
        readers = [asyncio.ensure_future(fills.wait("a")) for _ in range(3)]
        await asyncio.sleep(0)
        source.gate.set()
        outcomes = await asyncio.gather(*readers, return_exceptions=True)
        assert all(isinstance(each, StoreError) for each in outcomes)
        source.error = None
        fills.begin("a", source.fetch())
        assert await fills.wait("a") == 42

    run(scenario())


def test_readers_hear_of_a_stop_as_an_error_not_as_their_own_cancellation() -> None:
    async def scenario() -> None:
        fills, source = Fills[str, int](), Source()
        fills.begin("a", source.fetch())
        reader = asyncio.ensure_future(fills.wait("a"))
        await asyncio.sleep(0)
        await fills.stop()
        with pytest.raises(StoreError):
            await reader
        assert len(fills) == 0

    run(scenario())


def test_what_was_given_up_does_not_answer_those_who_come_after() -> None:
    async def scenario() -> None:
        fills, source, ended = Fills[str, int](), Source(), []
        fills.begin("a", source.fetch(), lambda: ended.append("first"))
        await asyncio.sleep(0)
        fills.give_up("a")
        assert "a" not in fills
        source.gate.set()
        fills.begin("a", source.fetch(), lambda: ended.append("second"))
        assert await fills.wait("a") == 42
        assert ended == ["first", "second"]

    run(scenario())


def test_a_fill_that_somebody_waits_for_is_not_given_up() -> None:
    async def scenario() -> None:
        fills, source = Fills[str, int](), Source()
        fills.begin("a", source.fetch())
        reader = asyncio.ensure_future(fills.wait("a"))
        await asyncio.sleep(0)
        fills.give_up("a")
        source.gate.set()
        assert await reader == 42

    run(scenario())


# The budget


def test_a_budget_bounds_count_and_bytes_and_serves_in_order() -> None:
    async def scenario() -> None:
        budget = Budget(bytes_max=100, count_max=3)
        first, second = budget.lease(60), budget.lease(60)
        assert first.try_take()
        assert not second.try_take()
        waiting = asyncio.ensure_future(second.wait())
        small = budget.lease(1)
        await asyncio.sleep(0)
        assert not small.try_take()  # it would overtake the one that waits
        first.release()
        await waiting
        assert (budget.byte_count, budget.count) == (60, 1)
        assert small.try_take()
        second.release()
        small.release()
        assert (budget.byte_count, budget.count) == (0, 0)

    run(scenario())


def test_what_is_larger_than_the_budget_runs_alone() -> None:
    async def scenario() -> None:
        budget = Budget(bytes_max=100, count_max=3)
        large = budget.lease(1000)
        assert large.try_take()
        assert not budget.lease(1).try_take()
        large.release()
        assert budget.lease(1).try_take()

    run(scenario())


def test_one_that_gave_up_waiting_takes_nothing() -> None:
    async def scenario() -> None:
        budget = Budget(bytes_max=100, count_max=1)
        first, second, third = (budget.lease(1) for _ in range(3))
        assert first.try_take()
        given_up = asyncio.ensure_future(second.wait())
        waiting = asyncio.ensure_future(third.wait())
        await asyncio.sleep(0)
        given_up.cancel()
        second.release()
        first.release()
        await waiting
        third.release()
        assert (budget.byte_count, budget.count) == (0, 0)

    run(scenario())
