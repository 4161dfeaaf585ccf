"""Clients of others read what is in the tier."""

import asyncio
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer

from tests.kafka_python import KafkaConsumer
from tests.kafka_python import TopicPartition as KafkaPythonPartition
from tests.tier.brokers import COUNT, VALUES, fill, tiered_broker


def test_clients_of_others_read_the_tier_and_the_disk(tmp_path: Path) -> None:
    with tiered_broker(tmp_path) as broker:
        fill(broker, tmp_path)
        assert read_by_librdkafka(broker.bootstrap, "orders", COUNT) == VALUES
        assert read_by_kafka_python(broker.bootstrap, "orders", COUNT) == VALUES
        assert asyncio.run(read_by_aiokafka(broker.bootstrap, "orders", COUNT)) == VALUES


def read_by_librdkafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            for message in consumer.consume(100, timeout=20):
                assert message.error() is None, message.error()
                values.append(message.value())
    finally:
        consumer.close()
    return values


def read_by_kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values = []
    try:
        for record in consumer:
            values.append(record.value)
            if len(values) == count:
                break
    finally:
        consumer.close()
    return values


async def read_by_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        async with asyncio.timeout(60):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()
