"""What a follower's fetch costs: what changed and what it names, not what the follower has."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.followers import (
    NOW_MS,
    Follower,
    a_batch,
    create_replicated,
    register_broker,
)
from tests.unit.harness import Harness

NODE = 7
TURNS = 10
"""How many turns of the loop it takes, at most, until what is due is done."""


class Leader:
    """A node with topics of some sizes, each of which a follower has a session of."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        assert harness.node._parts is not None
        harness.node._parts.isr_changes.close()  # it looks at all partitions now and then
        self.epoch = register_broker(harness, NODE)
        self.followers: dict[int, Follower] = {}

    def follower(self, partitions: int) -> Follower:
        """Return a follower that has everything of a topic."""
        if partitions not in self.followers:
            name = f"topic-{partitions}"
            topic_id = create_replicated(self.harness, name, (1, NODE), partitions=partitions)
            follower = Follower(self.harness, NODE, self.epoch, topic_id)
            follower.fetch(dict.fromkeys(range(partitions), 0))
            self.followers[partitions] = follower
        return self.followers[partitions]

    def partition(self, partitions: int) -> Any:
        """Return the last partition of a topic."""
        return self.harness.partition(f"topic-{partitions}", partitions - 1)

    def count(self, work: Callable[[], Awaitable[Any]]) -> int:
        async def run() -> None:
            await work()

        return steps(lambda: self.harness.run(run()))


def least(cost: Callable[[int], int]) -> Callable[[int], int]:
    """Return the least of eight costs: a node has other work now and then, and things to load."""
    return lambda size: min(cost(size) for _ in range(8))


@pytest.mark.parametrize("size", [100, pytest.param(1250, marks=pytest.mark.slow)])
def test_a_fetch_of_a_session_of_which_one_partition_changed(harness: Harness, size: int) -> None:
    """The larger one has 10,000 partitions."""
    leader = Leader(harness)

    def cost(partitions: int) -> int:
        follower, partition = leader.follower(partitions), leader.partition(partitions)

        async def append() -> None:
            partition.append(a_batch(b"x" * 100), NOW_MS, needs_replicas=False)

        async def fetch() -> None:
            end_offset = partition.log.end_offset
            assert await follower.ask()
            await follower.ask({partitions - 1: end_offset})
            assert partition.log.high_watermark == end_offset

        harness.run(append())
        return leader.count(fetch)

    assert_stays_flat(least(cost), size)


def test_a_look_at_a_session_that_waits(harness: Harness) -> None:
    leader = Leader(harness)

    def cost(partitions: int) -> int:
        follower, partition = leader.follower(partitions), leader.partition(partitions)

        async def begin() -> Any:
            return await follower.wait({partitions - 1: partition.log.end_offset})

        async def append() -> None:
            partition.append(a_batch(b"x" * 100), NOW_MS, needs_replicas=False)
            for _ in range(TURNS):
                await asyncio.sleep(0)

        async def end() -> None:
            assert await waiting

        waiting = harness.run(begin())
        spent = leader.count(append)
        harness.run(end())
        return spent

    assert_stays_flat(least(cost), 100)


def test_partitions_that_a_request_names(harness: Harness) -> None:
    leader = Leader(harness)

    def cost(partitions: int) -> int:
        follower = leader.follower(partitions)
        asked = dict.fromkeys(range(partitions), 0)
        return leader.count(lambda: follower.ask(asked, session_epoch=0))

    assert_grows_linearly(least(cost), 100)


def test_an_append_with_many_partitions_in_the_session(harness: Harness) -> None:
    leader = Leader(harness)

    def cost(partitions: int) -> int:
        leader.follower(partitions)
        partition, batch = leader.partition(partitions), a_batch(b"x")

        async def append() -> None:
            partition.append(batch, NOW_MS, needs_replicas=False)

        return leader.count(append)

    assert_stays_flat(least(cost), 100)


def test_the_end_of_a_session_is_spread_over_turns(harness: Harness) -> None:
    leader = Leader(harness)
    follower = leader.follower(2500)

    async def close() -> int:
        spent = steps(lambda: follower.peer.close("gone"))
        while leader.partition(2500).followers or harness.partition("topic-2500").followers:
            await asyncio.sleep(0)
        return spent

    assert harness.run(close()) < 60 * 1000
