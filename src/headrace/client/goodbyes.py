"""Work that goes on though its caller is cancelled: goodbyes, and closing what is open."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def carry_through(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that a cancellation of the caller does not interrupt.

    The cancellation is raised when the work is done, so this is only for work that soon is. Who
    cancels every task of a loop, as `asyncio.run` does at its end, ends the work too.
    """
    try:
        task = asyncio.create_task(work)
    except RuntimeError:
        work.close()  # the loop is gone, and nobody can wait for anything
        raise
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    if interruption is not None:
        if not task.cancelled():
            task.exception()  # seen: what interrupted it is raised
        raise interruption
    return task.result()
