"""Goodbyes are said though their caller is cancelled, and leave nothing behind."""

import asyncio
import inspect

import pytest

from headrace.client.goodbyes import carry_through


def test_work_ends_before_the_cancellation_of_its_caller_is_raised() -> None:
    done: list[str] = []

    async def say_goodbye() -> None:
        await asyncio.sleep(0)
        done.append("goodbye")

    async def cancel() -> None:
        caller = asyncio.create_task(carry_through(say_goodbye()))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(cancel())
    assert done == ["goodbye"]


def test_without_a_loop_there_is_no_goodbye_and_no_warning() -> None:
    """So it is when a program's coroutines are closed after its loop."""

    async def say_goodbye() -> None:
        await asyncio.sleep(0)

    work = say_goodbye()
    with pytest.raises(RuntimeError, match="no running event loop"):
        carry_through(work).send(None)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
