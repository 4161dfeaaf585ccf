"""Work that goes on though its caller is cancelled: goodbyes, and closing what is open."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from headrace.client.retrying import Retries
from headrace.client.settings import ClientSettings
from headrace.errors import COORDINATOR_UNAVAILABLE, HeadraceError

T = TypeVar("T")

LEAVE_MS_MAX: Final = 2_000
"""How long a goodbye may take; without it the group notices when the session times out."""


async def say_goodbye(
    say: Callable[[], Awaitable[int]], look_again: Callable[[], None], settings: ClientSettings
) -> None:
    """Leave a group if its coordinator can be reached in two seconds.

    `say` sends the request and returns the error code of its response; it is called again after
    `look_again` while the coordinator moves.
    """
    retries = Retries(settings, LEAVE_MS_MAX)
    with suppress(HeadraceError, TimeoutError):
        async with asyncio.timeout(LEAVE_MS_MAX / 1000):
            while await say() in COORDINATOR_UNAVAILABLE:
                look_again()
                if not await retries.pause():
                    return


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
