"""Work in slices: what is little is done at once, and what is much takes turns."""

import asyncio

import pytest

from headrace.loop.slices import (
    FIRST_SLICE_UNITS,
    SLICE_UNITS,
    Slice,
    Slices,
    finish,
    in_slices,
    run_whole,
)


def count_to(number: int, seen: list[str], name: str = "") -> Slices[int]:
    current = Slice()
    for _ in range(number):
        if current.spend():
            seen.append(name)
            yield
    return number


def test_little_work_is_done_at_once_without_a_coroutine() -> None:
    assert in_slices(count_to(FIRST_SLICE_UNITS - 1, [])) == FIRST_SLICE_UNITS - 1


def test_much_work_goes_on_after_others_had_their_turn() -> None:
    async def main() -> tuple[int, int]:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        loop.call_soon(turn)
        seen: list[str] = []
        work = in_slices(count_to(10 * SLICE_UNITS, seen))
        assert asyncio.iscoroutine(work)
        assert await work == 10 * SLICE_UNITS
        return turns, len(seen)

    turns, slices = asyncio.run(main())
    assert turns >= slices >= 10


def test_works_take_turns_in_the_order_in_which_they_came() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        works = [finish(count_to(4 * SLICE_UNITS, seen, name)) for name in "abc"]
        await asyncio.gather(*works)
        return seen

    assert asyncio.run(main())[:9] == list("abcabcabc")


def test_a_work_that_is_given_up_does_not_hold_up_the_others() -> None:
    async def main() -> int:
        seen: list[str] = []
        first = asyncio.ensure_future(finish(count_to(100 * SLICE_UNITS, seen)))
        second = asyncio.ensure_future(finish(count_to(3 * SLICE_UNITS, seen)))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(main()) == 3 * SLICE_UNITS


def test_an_error_reaches_who_asked() -> None:
    def fail() -> Slices[int]:
        yield
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await finish(fail())

    asyncio.run(main())
    with pytest.raises(ValueError, match="no"):
        run_whole(fail())
