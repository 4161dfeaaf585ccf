"""Time that jumps."""

import asyncio
import time

import pytest

from headrace.testing.virtual_loop import Deadlock, run_virtual


def test_an_hour_passes_at_once_and_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def sleep(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, asyncio.get_running_loop().time()))

        await asyncio.gather(sleep("hour", 3600), sleep("minute", 60))
        return seen

    begin = time.monotonic()
    assert run_virtual(main()) == [("minute", 60.0), ("hour", 3600.0)]
    assert time.monotonic() - begin < 10


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(main())
