"""aiokafka: records to a broker and back, and its administration."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from tests.clients.conftest import DEADLINE_SECONDS, START_MS, TopicMaker

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
CREATE_TIME, LOG_APPEND_TIME = 0, 1


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, DEADLINE_SECONDS)

    asyncio.run(bounded())


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def producer(bootstrap: str, **settings: Any) -> Any:
    return started(AIOKafkaProducer(bootstrap_servers=bootstrap, **settings))


@asynccontextmanager
async def reading(bootstrap: str, topic: str) -> AsyncIterator[Any]:
    """A consumer at the beginning of the topic's partition 0."""
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    async with started(client):
        client.assign([TopicPartition(topic, 0)])
        yield client


async def read(consumer: Any, wanted: int) -> list[Any]:
    return [await consumer.getone() for _ in range(wanted)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    bootstrap: str, new_topic: TopicMaker, codec: str | None
) -> None:
    topic = new_topic()
    sent = [
        (
            None if n % 5 == 1 else b"key-%d" % n,
            None if n % 35 == 0 else b"value " * (n % 50) + b"%d" % n,
            (("trace", b"%d" % n), ("empty", b"")) if n % 3 == 0 else (),
            START_MS + n,
        )
        for n in range(500)
    ]

    async def test() -> None:
        async with producer(bootstrap, compression_type=codec, linger_ms=20) as client:
            for key, value, headers, timestamp in sent:
                await client.send(
                    topic, value, key, partition=0, timestamp_ms=timestamp, headers=list(headers)
                )
            await client.flush()
        async with reading(bootstrap, topic) as consumer:
            found = await read(consumer, len(sent))
        assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == sent
        assert [record.offset for record in found] == list(range(len(sent)))

    run(test())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_every_kind_of_acknowledgement(
    bootstrap: str, new_topic: TopicMaker, acks: object
) -> None:
    topic = new_topic()

    async def test() -> None:
        async with producer(bootstrap, acks=acks) as client:
            for n in range(20):
                await client.send_and_wait(topic, b"%d" % n, partition=0)
        async with reading(bootstrap, topic) as consumer:
            found = await read(consumer, 20)
        assert [int(record.value) for record in found] == list(range(20))

    run(test())


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()

    async def test() -> None:
        async with producer(bootstrap, enable_idempotence=True, max_batch_size=500) as client:
            sent = [await client.send(topic, b"%d" % n, partition=0) for n in range(1000)]
            offsets = [(await delivery).offset for delivery in sent]
        assert offsets == list(range(1000))
        async with reading(bootstrap, topic) as consumer:
            found = await read(consumer, 1000)
            ends = await consumer.end_offsets([TopicPartition(topic, 0)])
        assert [int(record.value) for record in found] == list(range(1000))
        assert ends == {TopicPartition(topic, 0): 1000}

    run(test())


def test_a_record_above_max_message_bytes_is_refused(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(max_message_bytes="200000")

    async def test() -> None:
        async with producer(bootstrap, max_request_size=1_000_000) as client:
            await client.send_and_wait(topic, b"x" * 199_900, partition=0)
            with pytest.raises(MessageSizeTooLargeError):
                await client.send_and_wait(topic, b"x" * 200_001, partition=0)

    run(test())


def test_append_time_is_the_brokers(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")

    async def test() -> None:
        async with producer(bootstrap) as client:
            before = time.time_ns() // 1_000_000
            await client.send_and_wait(topic, b"x", partition=0, timestamp_ms=START_MS)
            after = time.time_ns() // 1_000_000
        async with reading(bootstrap, topic) as consumer:
            record = await consumer.getone()
        assert record.timestamp_type == LOG_APPEND_TIME
        assert before <= record.timestamp <= after

    run(test())


def test_a_seek_by_time_finds_the_first_record_at_or_after_it(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)

    async def test() -> None:
        async with producer(bootstrap, linger_ms=20) as client:
            for n in range(200):
                await client.send(topic, b"%d" % n, partition=0, timestamp_ms=START_MS + 10 * n)
            await client.flush()
        async with reading(bootstrap, topic) as consumer:
            found = (await consumer.offsets_for_times({partition: START_MS + 1001}))[partition]
            assert (found.offset, found.timestamp) == (101, START_MS + 1010)
            nothing = await consumer.offsets_for_times({partition: START_MS + 2000})
            assert nothing == {partition: None}
            consumer.seek(partition, found.offset)
            record = await consumer.getone()
        assert (record.value, record.timestamp_type) == (b"101", CREATE_TIME)

    run(test())


def test_a_topic_is_created_changed_emptied_and_deleted(bootstrap: str, new_name: str) -> None:
    partition = TopicPartition(new_name, 0)

    async def test() -> None:
        async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            topic = NewTopic(new_name, 2, 1, topic_configs={"retention.ms": "60000"})
            assert _errors(await admin.create_topics([topic])) == [0]
            assert _errors(await admin.create_topics([topic])) == [TopicAlreadyExistsError.errno]
            await _wait_for_config(admin, new_name, "retention.ms", "60000")
            change = ConfigResource(ConfigResourceType.TOPIC, new_name, {"retention.ms": "70000"})
            await admin.alter_configs([change])
            await _wait_for_config(admin, new_name, "retention.ms", "70000")
            await admin.create_partitions({new_name: NewPartitions(3)})
            while len((await admin.describe_topics([new_name]))[0]["partitions"]) != 3:
                pass  # up to the deadline of the test

            async with producer(bootstrap) as client:
                for n in range(10):
                    await client.send_and_wait(new_name, b"%d" % n, partition=0)
            assert await admin.delete_records({partition: RecordsToDelete(6)}) == {partition: 6}
            async with reading(bootstrap, new_name) as consumer:
                assert [record.offset for record in await read(consumer, 4)] == [6, 7, 8, 9]

            await admin.delete_topics([new_name])
            while new_name in await admin.list_topics():
                pass

    run(test())


def _errors(response: Any) -> list[int]:
    return [row[1] for row in response.topic_errors]


async def _wait_for_config(admin: Any, topic: str, name: str, wanted: str) -> None:
    """Ask until it is so, up to the deadline of the test."""
    value = None
    while value != wanted:
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        value = {entry[0]: entry[1] for entry in answers[0].resources[0][4]}[name]
