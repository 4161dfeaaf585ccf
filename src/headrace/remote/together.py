"""Doing several things at once, all or none."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def do_together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in order. If one fails, cancel the others and raise its error.

    A task group raises a group of errors, which people and `except` clauses do not expect.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        error: BaseException = failed
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    return [task.result() for task in tasks]
