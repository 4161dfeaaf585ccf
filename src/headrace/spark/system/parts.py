"""How a frame is cut into tasks, and what they share: bounded concurrency, refusals by name."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from headrace.client.errors import ClientError, UnsupportedApi
from headrace.client.node_pages import NoPage
from headrace.errors import ErrorCode, KafkaError

K = TypeVar("K")
V = TypeVar("V")

Row: TypeAlias = tuple[Any, ...]

GROUPS_PER_TASK: Final = 100
TOPICS_PER_TASK: Final = 200
TASKS_MAX: Final = 64
"""The most tasks of a read; portions grow beyond that."""
CONCURRENT_MAX: Final = 16
"""How many requests a task has in flight."""


class Part(msgspec.Struct, frozen=True):
    """What one task reads: things by name, or what one node says."""

    names: tuple[str, ...] = ()
    node: int | None = None


class NotServed(ClientError):
    """A frame that this cluster cannot serve."""


async def each_of(names: Iterable[K], ask: Callable[[K], Awaitable[V]]) -> list[V]:
    """Return what is asked for each name, in their order, a few at a time."""
    gate = asyncio.Semaphore(CONCURRENT_MAX)

    async def one(name: K) -> V:
        async with gate:
            return await ask(name)

    return list(await asyncio.gather(*map(one, names)))


def refused_by_name(frame: str, error: Exception) -> Exception:
    """Return the error of a cluster that does not have what a frame needs, or the error itself."""
    if isinstance(error, NoPage):
        return NotServed(f"system frame {frame!r} needs the HTTP pages of Headrace nodes: {error}")
    if isinstance(error, UnsupportedApi) or (
        isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION
    ):
        return NotServed(f"system frame {frame!r} cannot be served by this cluster: {error}")
    return error


def moment(timestamp_ms: int) -> datetime | None:
    """Return a time in Kafka's milliseconds; None for one that is not set."""
    return None if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def known(value: int | None) -> int | None:
    """Return a number, None for Kafka's -1."""
    return None if value is None or value < 0 else value
