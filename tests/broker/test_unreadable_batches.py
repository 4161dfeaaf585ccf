"""Batches that nobody can read: not taken, and where an older version took one, read past."""

import asyncio
from struct import pack

import pytest

from headrace.client import Consumer, TopicPartition, UnreadableBatch
from headrace.client.settings import ConsumerSettings
from headrace.ids import TopicName
from headrace.records.builder import BatchBuilder
from headrace.records.header import HEADER_BYTES, assign_offset, seal
from headrace.testing.broker import TestBroker

ORDERS = TopicPartition("orders", 0)


def take_garbage(broker: TestBroker, count: int) -> None:
    """Have the log take a batch of zeros that claims some records."""

    async def run() -> None:
        partition = broker.node.broker.replicas.find(TopicName("orders"), 0)
        assert partition is not None
        builder = BatchBuilder()
        builder.append(broker.clock.now_ms(), b"key", bytes(200))
        batch = memoryview(builder.build())
        batch[HEADER_BYTES:] = bytes(len(batch) - HEADER_BYTES)
        batch[23:27] = pack(">i", count - 1)
        batch[57:61] = pack(">i", count)
        assign_offset(batch, partition.log.end_offset, 0)
        seal(batch)
        partition.log.append_replicated(batch)
        partition.on_appended(len(batch))

    broker.run(run())


def size_of_log(broker: TestBroker) -> int:
    async def run() -> int:
        partition = broker.node.broker.replicas.find(TopicName("orders"), 0)
        assert partition is not None
        return partition.log.size_bytes

    return broker.run(run())


@pytest.mark.parametrize("count", [3, 2**31 - 1])
def test_a_consumer_names_what_it_cannot_read_and_can_go_on_behind_it(
    headrace: TestBroker, count: int
) -> None:
    headrace.create_topic("orders", 2)
    headrace.produce("orders", "before", partition=0)
    take_garbage(headrace, count)
    headrace.produce("orders", "after", partition=0)
    headrace.produce("orders", "beside", partition=1)

    async def consume() -> tuple[list[bytes | None], list[UnreadableBatch]]:
        values: list[bytes | None] = []
        damage: list[UnreadableBatch] = []
        async with Consumer(headrace.bootstrap) as consumer:
            await consumer.assign("orders", until_end=True)
            while not consumer.is_at_end:
                try:
                    values += [record.value for record in await consumer.poll()]
                except UnreadableBatch as error:
                    damage.append(error)
                    if len(damage) == 2 and error.next_offset is not None:
                        consumer.seek(error.partition, error.next_offset)
        return values, damage

    values, damage = asyncio.run(consume())
    assert sorted(str(value) for value in values) == ["b'after'", "b'before'", "b'beside'"]
    for error in damage:
        assert (error.partition, error.offset, error.next_offset) == (ORDERS, 1, 1 + count)
    assert len(damage) == 2


def test_what_is_fetched_ahead_does_not_hide_what_cannot_be_read(headrace: TestBroker) -> None:
    headrace.create_topic("orders")
    headrace.produce("orders", *(["before"] * 600))
    take_garbage(headrace, 3)
    headrace.produce("orders", "after")

    async def consume() -> tuple[int, UnreadableBatch]:
        limits = ConsumerSettings(partition_max_bytes=partition_bytes)
        async with Consumer(headrace.bootstrap, limits=limits) as consumer:
            await consumer.assign("orders", until_end=True)
            count = len(await consumer.poll())
            headrace.faults.delay("Fetch", 200, times=1)
            for _ in range(10):
                await asyncio.sleep(0)  # the next fetch goes out
            for _ in range(2):
                with pytest.raises(UnreadableBatch) as damage:
                    await consumer.poll()
        return count, damage.value

    partition_bytes = size_of_log(headrace) - 20  # all but the last batch
    count, damage = asyncio.run(consume())
    assert (count, damage.offset) == (600, 600)


def test_look_ups_by_time_find_what_is_behind_it(headrace: TestBroker) -> None:
    headrace.create_topic("orders")
    headrace.produce("orders", "before")
    take_garbage(headrace, 3)
    headrace.produce("orders", "after")

    async def consume() -> list[int]:
        async with Consumer(headrace.bootstrap) as consumer:
            await consumer.assign_from_time("orders", 1, until_end=True)
            first = consumer.positions[ORDERS]
            await consumer.assign_from_time("orders", headrace.clock.now_ms() + 10**9)
            return [first, consumer.positions[ORDERS]]

    assert asyncio.run(consume()) == [0, 5]
