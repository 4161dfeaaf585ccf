"""Members of a consumer group for tests: our own consumer, read in a task of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.client import (
    Admin,
    Consumer,
    Producer,
    Start,
    TopicPartition,
)
from headrace.client.fetched import ConsumedRecord

PROTOCOLS = ["consumer", "classic"]
both = pytest.mark.parametrize("protocol", PROTOCOLS)


async def make_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions, 1)


async def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, start: int = 0) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(start, start + count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def member(bootstrap: str, group: str, protocol: str = "auto", **options: Any) -> Consumer:
    options.setdefault("reset", Start.BEGINNING)
    if protocol == "classic":
        options.setdefault("heartbeat_interval_ms", 200)
        options.setdefault("session_timeout_ms", 30_000)
    return Consumer(bootstrap, group=group, protocol=protocol, **options)


class Reading:
    """A consumer that is read in a task of its own, and what happened to it."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.records: list[ConsumedRecord] = []
        self.events: list[tuple[str, list[int]]] = []
        self.task = asyncio.create_task(self._read())

    @property
    def values(self) -> list[int]:
        return [int(record.value or b"") for record in self.records]

    @property
    def owned(self) -> set[int]:
        return {partition for _, partition in self.consumer.assignment}

    def callbacks(self) -> dict[str, Any]:
        def note(name: str) -> Callable[[list[TopicPartition]], None]:
            return lambda rows: self.events.append((name, [row.partition for row in rows]))

        return {f"on_{name}": note(name) for name in ("assigned", "revoked", "lost")}

    async def _read(self) -> None:
        async for record in self.consumer:
            self.records.append(record)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def reading(
    bootstrap: str, group: str, topics: str | list[str], protocol: str = "auto", **options: Any
) -> AsyncIterator[Reading]:
    async with member(bootstrap, group, protocol, **options) as consumer:
        row = Reading(consumer)
        await row.stop()
        await consumer.subscribe(topics, **row.callbacks())
        row.task = asyncio.create_task(row._read())
        try:
            yield row
        finally:
            await row.stop()


def is_shared(rows: list[Reading], partitions: int) -> bool:
    shares = [row.owned for row in rows]
    return all(shares) and sorted(n for share in shares for n in share) == list(range(partitions))
