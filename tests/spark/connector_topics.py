"""Topics for the comparison with Spark's Kafka connector: what is in them, and what was written."""

import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.connector_cases import WRITES

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
EPOCH_MS: Final = 1_700_000_000_000
WAIT_SECONDS_MAX: Final = 60
WRITTEN_PARTITIONS: Final = 5
BROKER_SETTINGS: Final = {"log.cleaner.backoff.ms": "100"}
"""What a broker needs so that `fill` does not wait long for compaction."""
_COMPACTED_KEYS: Final = 10


def fill(bootstrap: str) -> None:
    """Topics with everything that a record can have, and empty ones to write to."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    forever = {"retention.ms": "-1"}  # records of 2023 stay
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
    }
    topics = [
        NewTopic("plain", 2, 1, config=forever),
        NewTopic("codecs", 1, 1),
        NewTopic("empty", 1, 1),
        NewTopic("appended", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
        NewTopic("transactional", 1, 1),
        NewTopic("compacted", 1, 1, config=compacted),
        NewTopic("expired", 1, 1),
    ]
    names = [*WRITES, "even", "odd", "stream"]
    topics += [
        NewTopic(f"{kind}-{name}", WRITTEN_PARTITIONS, 1)
        for kind in ("kafka", "headrace")
        for name in names
    ]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_SECONDS_MAX)
    _fill_plain(bootstrap)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(50):
            producer.produce("codecs", f"{codec} {number} ".encode() * 20)
        producer.flush(WAIT_SECONDS_MAX)
    _fill_transactional(bootstrap)
    _fill_compacted(bootstrap)
    _fill_expired(bootstrap, admin)


def _fill_plain(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(
            "plain",
            None if number % 7 == 0 else b"" if number % 7 == 1 else f"value {number}".encode(),
            None if number % 5 == 0 else b"" if number % 5 == 1 else b"key",
            number % 2,
            timestamp=EPOCH_MS + number,
            headers=None if number % 3 == 0 else [("a", b"1"), ("a", None), ("ü", b""), ("", b"x")],
        )
        producer.produce("appended", str(number).encode())
    producer.flush(WAIT_SECONDS_MAX)


def _fill_transactional(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "comparison"})
    producer.init_transactions(WAIT_SECONDS_MAX)
    for number in range(12):
        producer.begin_transaction()
        for index in range(5):
            producer.produce("transactional", f"{number} {index}".encode())
        producer.flush(WAIT_SECONDS_MAX)
        if number % 3:
            producer.commit_transaction(WAIT_SECONDS_MAX)
        else:
            producer.abort_transaction(WAIT_SECONDS_MAX)


def _fill_compacted(bootstrap: str) -> None:
    """Leave the last record of each key; a tombstone is one of them."""
    producer = Producer({"bootstrap.servers": bootstrap})
    hour_ms = 3_600_000
    now_ms = int(time.time() * 1000)
    for number in range(200):
        key = f"{number % _COMPACTED_KEYS}".encode()
        value = None if number == 199 else str(number).encode()
        producer.produce("compacted", value, key, timestamp=now_ms - hour_ms)
    producer.flush(WAIT_SECONDS_MAX)
    # So much later that a new segment begins, without which the first would not be compacted.
    producer.produce("compacted", b"last", b"last", timestamp=now_ms)
    producer.flush(WAIT_SECONDS_MAX)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(written_records(bootstrap, "compacted")) > _COMPACTED_KEYS + 1:
        assert time.monotonic() < deadline, "the topic is not compacted"


def _fill_expired(bootstrap: str, admin: AdminClient) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("expired", str(number).encode())
    producer.flush(WAIT_SECONDS_MAX)
    for deleted in admin.delete_records([TopicPartition("expired", 0, 10)]).values():
        deleted.result(WAIT_SECONDS_MAX)


def written_records(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Read a topic's committed records with confluent-kafka, by partition and in its order.

    Offsets are left out, as ends of transactions take some. Each record has its number.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",  # it must have one, and uses none
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, WAIT_SECONDS_MAX).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    found: list[tuple[Any, ...]] = []
    counts: Counter[int] = Counter()
    at_end = 0
    while at_end < len(partitions):
        message = consumer.poll(WAIT_SECONDS_MAX)
        assert message is not None, f"{len(found)} records of {topic} came, and then nothing"
        if message.error() is not None:
            at_end += 1
            continue
        where = message.partition()
        found.append((where, counts[where], message.key(), message.value(), message.headers()))
        counts[where] += 1
    consumer.close()
    return sorted(found, key=lambda record: record[:2])
