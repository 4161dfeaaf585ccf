"""When a rebalance may happen."""

import asyncio

from headrace.client.steps import StepGate
from tests.unit.client.loops import on_a_loop


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_a_loop
async def test_a_rebalance_waits_until_the_reader_asks_for_more() -> None:
    gate, events = StepGate(), list[str]()
    gate.on_wanted = lambda: events.append("wanted")

    async def rebalance() -> None:
        async with gate.hold():
            events.append("began")
            await turns()
            events.append("ended")

    task = asyncio.create_task(rebalance())
    await turns()
    assert events == ["wanted"]
    await gate.pass_through()
    assert events == ["wanted", "began", "ended"]
    await task
    assert not gate.is_wanted


@on_a_loop
async def test_a_reader_that_waits_already_is_no_hindrance_and_does_not_go_on_before_the_end() -> (
    None
):
    gate = StepGate()
    gate.is_inside = True
    async with gate.hold():
        reader = asyncio.create_task(gate.pass_through())
        await turns()
        assert gate.is_held
        assert not reader.done()
    await reader


@on_a_loop
async def test_a_rebalance_that_began_goes_on_when_its_reader_is_cancelled() -> None:
    gate, ended = StepGate(), asyncio.Event()

    async def rebalance() -> None:
        async with gate.hold():
            await turns(20)
        ended.set()

    task = asyncio.create_task(rebalance())
    await turns()
    reader = asyncio.create_task(gate.pass_through())
    await turns()
    reader.cancel()
    await turns()
    assert gate.is_held
    await gate.wait_open()
    await asyncio.wait_for(ended.wait(), 10)
    await task


@on_a_loop
async def test_a_rebalance_that_is_cancelled_while_it_waits_lets_the_reader_go_on() -> None:
    gate = StepGate()

    async def rebalance() -> None:
        async with gate.hold():
            raise AssertionError("nobody asked for more")

    task = asyncio.create_task(rebalance())
    await turns()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(gate.pass_through(), 10)
