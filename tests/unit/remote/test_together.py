"""Several things at once: their results, and the one error that ended them."""

import asyncio

import pytest

from headrace.remote.together import do_together
from headrace.testing.virtual_loop import run_virtual


async def after(seconds: float, outcome: int | Exception) -> int:
    await asyncio.sleep(seconds)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def test_results_come_in_the_order_of_what_was_asked_for() -> None:
    works = [after(3, 1), after(1, 2), after(2, 3)]
    assert run_virtual(do_together(works)) == [1, 2, 3]


def test_the_first_error_is_raised_as_it_is_and_ends_the_others() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def wait() -> int:
            try:
                return await after(1000, 1)
            except asyncio.CancelledError:
                ended.append("it")
                raise

        with pytest.raises(KeyError, match="first"):
            await do_together([wait(), after(1, KeyError("first")), after(2, ValueError())])
        assert ended == ["it"]

    run_virtual(main())
