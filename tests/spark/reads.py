"""Reads as Spark makes them, without Spark: plan, then every task in turn."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from headrace.client import Admin
from headrace.client.groups import fetch_offsets
from headrace.client.topics import TopicPartition
from headrace.spark.batch import BatchReader
from headrace.spark.read_options import read_options, stream_options
from headrace.spark.schema import spark_schema
from headrace.spark.streaming import StreamReader
from headrace.testing.broker import TestBroker

Row = dict[str, Any]


def options_of(broker: TestBroker, topic: str, more: Mapping[str, object]) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.retry.backoff.ms": "10"}
    if not {"assign", "subscribePattern"} & more.keys():
        given["subscribe"] = topic
    return given | {name: str(value) for name, value in more.items()}


def batch_reader(broker: TestBroker, topic: str, **more: object) -> BatchReader:
    given = options_of(broker, topic, more)
    return BatchReader(read_options(given), spark_schema(given))


def stream_reader(broker: TestBroker, topic: str, **more: object) -> StreamReader:
    given = options_of(broker, topic, more)
    return StreamReader(stream_options(given), spark_schema(given))


def read_batch(broker: TestBroker, topic: str, **more: object) -> list[Row]:
    """Plan a batch read and carry it out."""
    reader = batch_reader(broker, topic, **more)
    return rows_of(reader, reader.partitions())


def rows_of(reader: BatchReader | StreamReader, partitions: Any) -> list[Row]:
    return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def values_of(rows: list[Row]) -> list[bytes]:
    return [row["value"] for row in rows]


def committed(broker: TestBroker, group: str) -> dict[TopicPartition, int]:
    """What a group has committed."""

    async def ask() -> dict[TopicPartition, int]:
        async with Admin(broker.bootstrap) as admin:
            found = await fetch_offsets(admin.cluster, group)
        return {partition: each.offset for partition, each in found.items()}

    return broker.run(ask())


def delete_records(broker: TestBroker, topic: str, offset: int) -> None:
    async def ask() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 0): offset})

    broker.run(ask())


def delete_topic(broker: TestBroker, topic: str) -> None:
    async def ask() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topic(topic)

    broker.run(ask())


def transactional_producer(broker: TestBroker, transactional_id: str = "tx") -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(30)
    return producer
