"""Running and waiting in tests of our own client: every wait has a deadline."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.client import ErrorCode, KafkaError

T = TypeVar("T")
DEADLINE_SECONDS = 60


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test on a loop of its own, up to the deadline."""

    async def with_deadline() -> T:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await work

    return asyncio.run(with_deadline())


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that happens by itself."""
    while not is_so():
        await asyncio.sleep(0.01)  # polls, up to the deadline of `run`


async def eventually(find: Callable[[], Coroutine[Any, Any, object]], wanted: object) -> None:
    """Ask until the answer is `wanted`."""
    while await find() != wanted:
        await asyncio.sleep(0.02)  # polls, up to the deadline of `run`


def code_of(outcome: object) -> ErrorCode:
    """Return the code of what was refused."""
    assert isinstance(outcome, KafkaError)
    return outcome.code
