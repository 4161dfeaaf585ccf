"""confluent-kafka (librdkafka): transactions."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker, eventually

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def transactional(bootstrap: str, name: str, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 2, **named}
    )
    producer.init_transactions(DEADLINE_SECONDS)
    return producer


def write(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def code_of(error: KafkaException) -> int:
    code: int = error.args[0].code()
    return code


def values(
    bootstrap: str, topic: str, isolation: str = COMMITTED, partition: int = 0
) -> list[bytes]:
    """What a reader of this isolation finds up to the end that it sees now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            assert time.monotonic() < deadline, f"no end after {len(found)} records"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(message.error())
    finally:
        consumer.close()


def test_committed_records_are_seen_and_aborted_ones_are_not(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(partitions=2)
    producer = transactional(bootstrap, topic)
    for number in range(4):
        producer.begin_transaction()
        write(producer, topic, b"a%d" % number)
        write(producer, topic, b"b%d" % number, partition=1)
        if number % 2:
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            producer.commit_transaction(DEADLINE_SECONDS)
    assert values(bootstrap, topic) == [b"a0", b"a2"]
    assert values(bootstrap, topic, partition=1) == [b"b0", b"b2"]
    assert values(bootstrap, topic, UNCOMMITTED) == [b"a0", b"a1", b"a2", b"a3"]


def test_an_open_transaction_holds_back_what_comes_behind_it(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    producer = transactional(bootstrap, topic)
    producer.begin_transaction()
    write(producer, topic, b"open")
    write(Producer({"bootstrap.servers": bootstrap}), topic, b"plain")
    assert values(bootstrap, topic) == []
    assert values(bootstrap, topic, UNCOMMITTED) == [b"open", b"plain"]
    producer.commit_transaction(DEADLINE_SECONDS)
    assert values(bootstrap, topic) == [b"open", b"plain"]


def test_a_new_producer_with_the_id_aborts_what_is_open_and_fences_the_old_one(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    old = transactional(bootstrap, topic)
    old.begin_transaction()
    write(old, topic, b"lost")
    new = transactional(bootstrap, topic)
    new.begin_transaction()
    write(new, topic, b"kept")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(DEADLINE_SECONDS)
    assert code_of(refused.value) == KafkaError._FENCED
    new.commit_transaction(DEADLINE_SECONDS)
    assert values(bootstrap, topic) == [b"kept"]


def test_offsets_count_with_the_transaction_and_not_without(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    source, sink = new_topic(), new_topic()
    write(Producer({"bootstrap.servers": bootstrap}), source, b"1", b"2", b"3")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": source,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (message := consumer.poll(0.2)) is None or message.error():
        assert time.monotonic() < deadline
    producer = transactional(bootstrap, sink)
    place = TopicPartition(source, 0)

    def committed() -> int:
        (found,) = consumer.committed([place], DEADLINE_SECONDS)
        offset: int = found.offset
        return offset

    nothing = committed()
    for is_kept, offset in ((False, 1), (True, 2), (False, 3)):
        producer.begin_transaction()
        write(producer, sink, b"%d" % offset)
        moved = [TopicPartition(source, 0, offset)]
        producer.send_offsets_to_transaction(
            moved, consumer.consumer_group_metadata(), DEADLINE_SECONDS
        )
        if is_kept:
            producer.commit_transaction(DEADLINE_SECONDS)
        else:
            producer.abort_transaction(DEADLINE_SECONDS)
        assert committed() == (offset if is_kept else nothing if offset == 1 else 2)
    assert values(bootstrap, sink) == [b"2"]
    consumer.close()


def test_a_transaction_that_lasts_too_long_is_aborted_by_the_broker(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    producer = transactional(bootstrap, topic, transaction_timeout_ms=1000)
    producer.begin_transaction()
    write(producer, topic, b"forgotten")
    write(Producer({"bootstrap.servers": bootstrap}), topic, b"plain")
    eventually(lambda: values(bootstrap, topic), [b"plain"])
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_SECONDS)


def test_a_timeout_above_the_brokers_limit_is_refused(bootstrap: str, new_name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        transactional(bootstrap, new_name, transaction_timeout_ms=1_000_000)
    assert code_of(refused.value) == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_many_transactions_of_one_producer_are_all_or_nothing(
    bootstrap: str, new_topic: TopicMaker, admin: AdminClient
) -> None:
    topic = new_topic(partitions=3)
    producer = transactional(bootstrap, topic)
    for number in range(60):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 2:
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            producer.commit_transaction(DEADLINE_SECONDS)
    kept = [b"%d" % number for number in range(60) if number % 3 != 2]
    for partition in range(3):
        assert values(bootstrap, topic, partition=partition) == kept
