"""kafka-python: records to a broker and back, and its administration."""

import gc
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.clients.conftest import DEADLINE_SECONDS, START_MS, TopicMaker, eventually
from tests.kafka_python import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
    kafka_admin,
    kafka_codec,
    kafka_errors,
)

CREATE_TIME, LOG_APPEND_TIME = 0, 1


def codec(name: str, *, is_there: bool) -> Any:
    missing = pytest.mark.skipif(not is_there, reason=f"kafka-python lacks a library for {name}")
    return pytest.param(name, marks=missing)


CODECS = [
    None,
    "gzip",
    codec("snappy", is_there=kafka_codec.has_snappy()),
    codec("lz4", is_there=kafka_codec.has_lz4()),
    codec("zstd", is_there=kafka_codec.has_zstd()),
]


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Any]:
    client = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    with closing(client):
        yield client


@pytest.fixture
def admin_client(bootstrap: str) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def send(bootstrap: str, topic: str, records: list[dict[str, Any]], **settings: Any) -> list[Any]:
    """Send the records to partition 0; give what the broker acknowledged."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as client:
        sent = [client.send(topic, partition=0, **record) for record in records]
        client.flush(DEADLINE_SECONDS)
        return [future.get(DEADLINE_SECONDS) for future in sent]


def read(consumer: Any, wanted: int) -> list[Any]:
    """The next `wanted` records of what is assigned."""
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < wanted:
        assert time.monotonic() < deadline, f"only {len(found)} of {wanted} records came"
        for records in consumer.poll(200).values():
            found += records
    return found


@pytest.mark.parametrize("compression", CODECS)
def test_records_come_back_as_they_were_sent(
    bootstrap: str, new_topic: TopicMaker, consumer: Any, compression: str | None
) -> None:
    topic = new_topic()
    sent = [
        {
            "key": None if n % 5 == 1 else b"key-%d" % n,
            "value": None if n % 35 == 0 else b"value " * (n % 50) + b"%d" % n,
            "headers": [("trace", b"%d" % n), ("empty", b"")] if n % 3 == 0 else [],
            "timestamp_ms": START_MS + n,
        }
        for n in range(500)
    ]
    send(bootstrap, topic, sent, compression_type=compression, linger_ms=20)
    consumer.assign([TopicPartition(topic, 0)])
    assert [
        {
            "key": record.key,
            "value": record.value,
            "headers": [tuple(header) for header in record.headers],
            "timestamp_ms": record.timestamp,
        }
        for record in read(consumer, len(sent))
    ] == sent


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_every_kind_of_acknowledgement(
    bootstrap: str, new_topic: TopicMaker, consumer: Any, acks: object
) -> None:
    topic = new_topic()
    values = [b"%d" % n for n in range(50)]
    send(bootstrap, topic, [{"value": v} for v in values], acks=acks, enable_idempotence=False)
    consumer.assign([TopicPartition(topic, 0)])
    assert [record.value for record in read(consumer, 50)] == values


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    bootstrap: str, new_topic: TopicMaker, consumer: Any
) -> None:
    topic = new_topic()
    records = [{"value": b"%d" % n} for n in range(1000)]
    delivered = send(bootstrap, topic, records, enable_idempotence=True, batch_size=500)
    assert [metadata.offset for metadata in delivered] == list(range(1000))
    consumer.assign([TopicPartition(topic, 0)])
    assert [int(record.value) for record in read(consumer, 1000)] == list(range(1000))
    assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1000}


def test_a_record_above_max_message_bytes_is_refused(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(max_message_bytes="200000")
    send(bootstrap, topic, [{"value": b"x" * 199_900}])
    with pytest.raises(kafka_errors.MessageSizeTooLargeError):
        send(bootstrap, topic, [{"value": b"x" * 200_001}])


def test_append_time_is_the_brokers(bootstrap: str, new_topic: TopicMaker, consumer: Any) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    send(bootstrap, topic, [{"value": b"x", "timestamp_ms": START_MS}])
    after = time.time_ns() // 1_000_000
    consumer.assign([TopicPartition(topic, 0)])
    record = read(consumer, 1)[0]
    assert record.timestamp_type == LOG_APPEND_TIME
    assert before <= record.timestamp <= after


def test_a_seek_by_time_finds_the_first_record_at_or_after_it(
    bootstrap: str, new_topic: TopicMaker, consumer: Any
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    records = [{"value": b"%d" % n, "timestamp_ms": START_MS + 10 * n} for n in range(200)]
    send(bootstrap, topic, records, linger_ms=20)
    found = consumer.offsets_for_times({partition: START_MS + 1001})[partition]
    assert (found.offset, found.timestamp) == (101, START_MS + 1010)
    assert consumer.offsets_for_times({partition: START_MS + 2000})[partition] is None
    consumer.assign([partition])
    consumer.seek(partition, found.offset)
    record = read(consumer, 1)[0]
    assert (record.value, record.timestamp_type) == (b"101", CREATE_TIME)


def test_a_topic_is_created_changed_emptied_and_deleted(
    bootstrap: str, admin_client: Any, consumer: Any, new_name: str
) -> None:
    topic = kafka_admin.NewTopic(new_name, 2, 1, topic_configs={"retention.ms": "60000"})
    admin_client.create_topics([topic])
    with pytest.raises(kafka_errors.TopicAlreadyExistsError):
        admin_client.create_topics([topic])
    eventually(lambda: _config(admin_client, new_name, "retention.ms"), "60000")
    change = kafka_admin.ConfigResource(
        kafka_admin.ConfigResourceType.TOPIC, new_name, {"retention.ms": "70000"}
    )
    admin_client.alter_configs([change])
    eventually(lambda: _config(admin_client, new_name, "retention.ms"), "70000")
    admin_client.create_partitions({new_name: kafka_admin.NewPartitions(3)})
    eventually(lambda: len(admin_client.describe_topics([new_name])[0]["partitions"]), 3)

    send(bootstrap, new_name, [{"value": b"%d" % n} for n in range(10)])
    partition = TopicPartition(new_name, 0)
    admin_client.delete_records({partition: 6})
    assert consumer.beginning_offsets([partition]) == {partition: 6}
    consumer.assign([partition])
    assert [record.offset for record in read(consumer, 4)] == [6, 7, 8, 9]

    admin_client.delete_topics([new_name])
    eventually(lambda: new_name in admin_client.list_topics(), False)


def _config(admin: Any, topic: str, name: str) -> object:
    described = admin.describe_configs(
        [kafka_admin.ConfigResource(kafka_admin.ConfigResourceType.TOPIC, topic)],
        config_filter="all",
    )
    return described["topic"][topic][name]["value"]


def test_a_connection_that_is_refused_leaves_no_socket_to_other_tests() -> None:
    with pytest.raises(kafka_errors.KafkaTimeoutError):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=500)
    gc.collect()
