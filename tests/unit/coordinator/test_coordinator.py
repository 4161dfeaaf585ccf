"""All partitions of an internal topic: what an operator reads when they are loaded."""

import asyncio
import logging

import pytest

from headrace.coordinator.coordinator import Coordinator
from headrace.ids import TopicName
from tests.unit.coordinator.shards import (
    TYPES,
    Clock,
    Journal,
    Offsets,
    commit,
    new_log,
    new_shard,
    settle,
    turn,
)

TOPIC = TopicName("__offsets")


def test_many_partitions_are_loaded_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def load() -> None:
        journals = [Journal(new_log()) for _ in range(5)]
        writer = new_shard(journals[3], Clock())
        await settle(writer)
        for offset in range(2):
            writer.write(commit("a", offset, print), print)
        await turn()
        writer.close()
        coordinator = Coordinator(TOPIC, TYPES, lambda _: Offsets(), Clock(), lambda: 5)
        for index, journal in enumerate(journals):
            coordinator.lead(index, journal)
        coordinator.resign(0)
        for shard in coordinator:
            await settle(shard)
        coordinator.lead(0, journals[0])
        for shard in coordinator:
            await settle(shard)

    asyncio.run(load())
    lines = [row.getMessage() for row in caplog.records if "loaded" in row.getMessage()]
    assert lines == [
        f"{TOPIC}: loaded 4 partitions with 2 records",
        f"{TOPIC}: loaded 1 partitions with 0 records",
    ]
