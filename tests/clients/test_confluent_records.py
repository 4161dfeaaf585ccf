"""confluent-kafka (librdkafka): records to a broker and back."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.conftest import DEADLINE_SECONDS, START_MS, TopicMaker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Deliveries:
    """What became of the records that were sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.messages.append(message)


def producer(bootstrap: str, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, **named})


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    opened = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    yield opened
    opened.close()


def send(client: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Send the values and wait until each is acknowledged."""
    deliveries = Deliveries()
    for value in values:
        client.produce(topic, value, partition=partition, on_delivery=deliveries)
    assert client.flush(DEADLINE_SECONDS) == 0
    assert not deliveries.errors, deliveries.errors


def read(consumer: Consumer, wanted: int) -> list[Message]:
    """The next `wanted` records."""
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < wanted:
        assert time.monotonic() < deadline, f"only {len(found)} of {wanted} records came"
        for message in consumer.consume(wanted - len(found), timeout=0.2):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def read_from(consumer: Consumer, topic: str, offset: int, wanted: int) -> list[Message]:
    consumer.assign([TopicPartition(topic, 0, offset)])
    return read(consumer, wanted)


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer, codec: str
) -> None:
    topic = new_topic()
    sent = [
        (
            None if n % 5 == 0 else b"key-%d" % n,
            None if n % 7 == 0 else b"value " * (n % 50) + b"%d" % n,
            [("trace", b"%d" % n), ("trace", None), ("empty", b"")] if n % 3 == 0 else None,
            START_MS + n,
        )
        for n in range(2000)
    ]
    client = producer(bootstrap, compression_type=codec, linger_ms=20)
    for key, value, headers, timestamp in sent:
        client.produce(topic, value, key, 0, timestamp=timestamp, headers=headers)
    assert client.flush(DEADLINE_SECONDS) == 0

    found = read_from(consumer, topic, OFFSET_BEGINNING, len(sent))
    assert [
        (message.key(), message.value(), message.headers(), message.timestamp()[1])
        for message in found
    ] == sent
    assert [message.offset() for message in found] == list(range(len(sent)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_kind_of_acknowledgement(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer, acks: str
) -> None:
    topic = new_topic()
    values = [b"%d" % n for n in range(100)]
    send(producer(bootstrap, acks=acks), topic, *values)
    found = read_from(consumer, topic, OFFSET_BEGINNING, len(values))
    assert [message.value() for message in found] == values


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic(partitions=3)
    client = producer(bootstrap, enable_idempotence=True, batch_size=2000, linger_ms=1)
    for n in range(6000):
        client.produce(topic, b"%d" % n, partition=n % 3)
        client.poll(0)
    assert client.flush(DEADLINE_SECONDS) == 0

    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found = read(consumer, 6000)
    for partition in range(3):
        values = [int(m.value()) for m in found if m.partition() == partition]
        assert values == list(range(partition, 6000, 3))
    assert _ends(consumer, topic, 3) == [2000, 2000, 2000]


def test_a_record_just_below_max_message_bytes_arrives_and_one_above_is_refused(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic(max_message_bytes="200000")
    client = producer(bootstrap)
    send(client, topic, b"x" * 199_900)
    assert len(read_from(consumer, topic, 0, 1)[0].value()) == 199_900

    deliveries = Deliveries()
    client.produce(topic, b"x" * 200_001, partition=0, on_delivery=deliveries)
    assert client.flush(DEADLINE_SECONDS) == 0
    assert [error.code() for error in deliveries.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert _ends(consumer, topic, 1) == [1]


def test_records_of_eight_megabytes_pass_where_the_topic_allows_them(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic(max_message_bytes="10000000")
    values = [bytes([n]) * 8_000_000 for n in range(3)]
    send(producer(bootstrap, message_max_bytes=10_000_000), topic, *values)
    assert [message.value() for message in read_from(consumer, topic, 0, 3)] == values


def test_a_record_without_key_is_refused_by_a_compacted_topic(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(cleanup_policy="compact")
    deliveries = Deliveries()
    client = producer(bootstrap)
    client.produce(topic, b"no key", partition=0, on_delivery=deliveries)
    assert client.flush(DEADLINE_SECONDS) == 0
    assert [error.code() for error in deliveries.errors] == [KafkaError.INVALID_RECORD]


def test_timestamps_are_the_producers_unless_the_topic_says_append_time(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    created = new_topic(message_timestamp_type="CreateTime")
    appended = new_topic(message_timestamp_type="LogAppendTime")
    client = producer(bootstrap)
    before = time.time_ns() // 1_000_000
    for topic in (created, appended):
        client.produce(topic, b"x", partition=0, timestamp=START_MS)
    assert client.flush(DEADLINE_SECONDS) == 0
    after = time.time_ns() // 1_000_000

    assert read_from(consumer, created, 0, 1)[0].timestamp() == (TIMESTAMP_CREATE_TIME, START_MS)
    kind, timestamp = read_from(consumer, appended, 0, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp <= after


def test_a_seek_by_time_finds_the_first_record_at_or_after_it(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic()
    client = producer(bootstrap, linger_ms=20)
    for n in range(1000):
        client.produce(topic, b"%d" % n, partition=0, timestamp=START_MS + 10 * n)
    assert client.flush(DEADLINE_SECONDS) == 0

    def offset_at(timestamp: int) -> int:
        asked = TopicPartition(topic, 0, timestamp)
        offset: int = consumer.offsets_for_times([asked], DEADLINE_SECONDS)[0].offset
        return offset

    assert offset_at(0) == 0
    assert offset_at(START_MS + 5000) == 500
    assert offset_at(START_MS + 5001) == 501
    assert offset_at(START_MS + 9990) == 999
    assert offset_at(START_MS + 9991) == OFFSET_END
    found = read_from(consumer, topic, offset_at(START_MS + 5001), 1)[0]
    assert (found.value(), found.timestamp()[1]) == (b"501", START_MS + 5010)


def test_an_offset_inside_a_batch_is_where_reading_begins(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic()
    send(producer(bootstrap, linger_ms=50), topic, *[b"%d" % n for n in range(100)])
    for offset in (99, 1, 50):
        assert read_from(consumer, topic, offset, 1)[0].value() == b"%d" % offset


def test_an_offset_beyond_the_end_is_out_of_range(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic()
    send(producer(bootstrap), topic, b"only")
    consumer.assign([TopicPartition(topic, 0, 5)])
    message = consumer.poll(DEADLINE_SECONDS)
    # librdkafka reports that it has no way to reset; the reason it names is the broker's.
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in message.error().str()


def test_a_waiting_consumer_is_woken_by_an_append(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic()
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.3) is None
    send(producer(bootstrap), topic, b"awaited")
    assert read(consumer, 1)[0].value() == b"awaited"


def test_many_partitions_are_read_side_by_side(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic(partitions=20)
    client = producer(bootstrap)
    for n in range(2000):
        client.produce(topic, b"%d" % n, partition=n % 20)
    assert client.flush(DEADLINE_SECONDS) == 0
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(20)])
    found = read(consumer, 2000)
    assert sorted(int(message.value()) for message in found) == list(range(2000))
    assert all(int(message.value()) % 20 == message.partition() for message in found)


def test_writing_to_a_topic_that_is_not_there_creates_it(
    bootstrap: str, new_name: str, consumer: Consumer
) -> None:
    send(producer(bootstrap), new_name, b"first", partition=-1)
    assert read_from(consumer, new_name, 0, 1)[0].value() == b"first"


def test_asking_for_a_topic_that_is_not_there_says_so_and_does_not_create_it(
    consumer: Consumer, admin: AdminClient, new_name: str
) -> None:
    for _ in range(2):
        metadata = consumer.list_topics(new_name, DEADLINE_SECONDS).topics[new_name]
        assert metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert new_name not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def test_a_topic_that_was_deleted_and_made_again_begins_at_zero(
    bootstrap: str, admin: AdminClient, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic()
    old = producer(bootstrap)
    send(old, topic, *[b"old"] * 10)
    assert read_from(consumer, topic, 0, 10)[0].value() == b"old"

    admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
    _create_again(admin, topic)
    send(producer(bootstrap), topic, b"new")
    send(old, topic, b"from a producer that knew the old one")

    consumer.unassign()
    found = read_from(consumer, topic, OFFSET_BEGINNING, 2)
    assert [(message.offset(), message.value()) for message in found] == [
        (0, b"new"),
        (1, b"from a producer that knew the old one"),
    ]


def _create_again(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_SECONDS)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            assert time.monotonic() < deadline, "the topic was not deleted"


def _ends(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    return [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_SECONDS)[1]
        for partition in range(partitions)
    ]
