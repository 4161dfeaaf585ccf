"""aiokafka: transactions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, DEADLINE_SECONDS)

    asyncio.run(bounded())


@asynccontextmanager
async def transactional(bootstrap: str, name: str) -> AsyncIterator[Any]:
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def values(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    """The first records that a reader gets, and the proof that the next one is the last."""
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        **{"isolation_level": "read_committed", **settings},
    )
    await client.start()
    try:
        client.assign([TopicPartition(topic, 0)])
        return [(await client.getone()).value for _ in range(count)]
    finally:
        await client.stop()


async def write_last(bootstrap: str, topic: str) -> None:
    async with transactional(bootstrap, f"{topic}-last") as producer, producer.transaction():
        await producer.send_and_wait(topic, b"last", partition=0)


def test_committed_records_are_seen_and_aborted_ones_are_not(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()

    async def test() -> None:
        async with transactional(bootstrap, topic) as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        await write_last(bootstrap, topic)
        assert await values(bootstrap, topic, 4) == [b"0", b"2", b"4", b"last"]
        everything = await values(bootstrap, topic, 7, isolation_level="read_uncommitted")
        assert everything == [*(b"%d" % number for number in range(6)), b"last"]

    run(test())


def test_a_new_producer_with_the_id_fences_the_old_one(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()

    async def test() -> None:
        async with transactional(bootstrap, topic) as old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"lost", partition=0)
            async with transactional(bootstrap, topic) as new, new.transaction():
                await new.send_and_wait(topic, b"kept", partition=0)
            with pytest.raises(ProducerFenced):
                await old.commit_transaction()
        await write_last(bootstrap, topic)
        assert await values(bootstrap, topic, 2) == [b"kept", b"last"]

    run(test())


def test_offsets_are_committed_with_the_transaction_and_taken_back_with_it(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)

    async def committed() -> int | None:
        client = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=topic)
        await client.start()
        try:
            offset: int | None = await client.committed(place)
            return offset
        finally:
            await client.stop()

    async def test() -> None:
        async with transactional(bootstrap, f"{topic}-copy") as producer:
            async with producer.transaction():
                await producer.send(topic, b"x", partition=0)
                await producer.send_offsets_to_transaction({place: 7}, topic)
            assert await committed() == 7
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({place: 9}, topic)
            await producer.abort_transaction()
            assert await committed() == 7

    run(test())
