"""aiokafka: consumer groups."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, DEADLINE_SECONDS)

    asyncio.run(bounded())


@asynccontextmanager
async def member(
    bootstrap: str, group: str, topic: str, listener: Any = None, **settings: Any
) -> AsyncIterator[Any]:
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=30_000,
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=100,
        **settings,
    )
    client.subscribe([topic], listener=listener)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)
        await producer.flush()
    finally:
        await producer.stop()


def owned(consumer: Any) -> set[int]:
    return {row.partition for row in consumer.assignment()}


async def commit(consumer: Any, offsets: Any = None) -> None:
    """Commit, up to the deadline of the test: a rebalance may be in progress."""
    while True:
        try:
            return await consumer.commit(offsets)  # type: ignore[no-any-return]  # untyped
        except (CommitFailedError, IllegalStateError):
            await asyncio.sleep(0.02)  # polls, up to the deadline of the test


async def until_shared(consumers: list[Any], partitions: int) -> None:
    """Wait until each has some and together they have all, up to the deadline of the test."""
    while True:
        shares = [owned(consumer) for consumer in consumers]
        if all(shares) and sorted(n for row in shares for n in row) == list(range(partitions)):
            return
        await asyncio.sleep(0.02)  # polls, up to the deadline of the test


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=lambda assignor: assignor.name,
)
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    bootstrap: str, new_topic: TopicMaker, assignor: Any
) -> None:
    topic = new_topic(partitions=4)
    strategy = {"partition_assignment_strategy": (assignor,)}

    async def test() -> None:
        async with member(bootstrap, topic, topic, **strategy) as first:
            async with member(bootstrap, topic, topic, **strategy) as second:
                await until_shared([first, second], 4)
                assert {len(owned(first)), len(owned(second))} == {2}
            await until_shared([first], 4)

    run(test())


def test_a_group_goes_on_where_it_committed(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(partitions=2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    async def test() -> None:
        await fill(bootstrap, topic, 2, 100)
        async with member(bootstrap, topic, topic) as first:
            seen = [await first.getone() for _ in range(100)]
            assert sorted(int(record.value) for record in seen) == list(range(100))
            await commit(first, {places[0]: (40, "forty"), places[1]: (45, "")})
            assert await first.committed(places[0]) == 40
        async with member(bootstrap, topic, topic) as second:
            seen = [await second.getone() for _ in range(15)]
        found = {(record.partition, record.offset) for record in seen}
        assert found == {(0, n) for n in range(40, 50)} | {(1, n) for n in range(45, 50)}

    run(test())


def test_many_members_that_join_at_once_share_everything(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(partitions=12)

    async def test() -> None:
        await fill(bootstrap, topic, 12, 240)
        clients = [member(bootstrap, topic, topic) for _ in range(6)]
        members = await asyncio.gather(*(client.__aenter__() for client in clients))
        try:
            await until_shared(members, 12)
            seen: set[int] = set()
            while len(seen) < 240:
                for client in members:
                    batches = await client.getmany(timeout_ms=50)
                    seen |= {int(row.value) for rows in batches.values() for row in rows}
            assert seen == set(range(240))
        finally:
            for client in clients:
                await client.__aexit__(None, None, None)

    run(test())


def test_a_rebalance_takes_partitions_away_before_it_gives_new_ones(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(partitions=2)
    events: list[tuple[str, int]] = []

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_revoked(self, revoked: Any) -> None:
            events.append(("revoked", len(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            events.append(("assigned", len(assigned)))

    async def test() -> None:
        async with member(bootstrap, topic, topic, Listener()) as first:
            await until_shared([first], 2)
            async with member(bootstrap, topic, topic) as second:
                await until_shared([first, second], 2)
                while events[-2:] != [("revoked", 2), ("assigned", 1)]:
                    await asyncio.sleep(0.02)  # polls, up to the deadline of the test

    run(test())


def test_groups_are_listed_and_described_with_their_offsets(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(partitions=2)

    async def test() -> None:
        await fill(bootstrap, topic, 2, 10)
        async with member(bootstrap, topic, topic) as client:
            for _ in range(10):
                await client.getone()
            await commit(client)
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                assert (topic, "consumer") in await admin.list_consumer_groups()
                (answer,) = await admin.describe_consumer_groups([topic])
                assert [row[2] for row in answer.groups] == ["Stable"]
                offsets = await admin.list_consumer_group_offsets(topic)
                assert {place.partition: row.offset for place, row in offsets.items()} == {
                    0: 5,
                    1: 5,
                }
            finally:
                await admin.close()

    run(test())
