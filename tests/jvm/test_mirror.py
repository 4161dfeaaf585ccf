"""`headrace mirror` from Apache Kafka 4.3.1, while the mirror and the target are killed at random.

What librdkafka reads from both clusters is the same: records, offsets, timestamps, what is
committed and what is not, and where groups are.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker import TestBroker
from tests.headrace_process import HeadraceProcess
from tests.jvm.kafka_broker import kafka

pytestmark = pytest.mark.slow
DEADLINE_SECONDS = 120
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "1000"}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "50",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (3, {"retention.ms": "-1", "max.message.bytes": "2000000"}),
    "transfers": (2, {}),
    "latest": (1, COMPACTED),
    "trimmed": (1, {"message.timestamp.type": "LogAppendTime"}),
    "emptied": (1, {}),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka") / "data", extra=SETTINGS) as bootstrap:
        fill(bootstrap)
        yield bootstrap


def fill(bootstrap: str) -> None:
    """Create the topics, with some of everything that a log may have."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, 1, config=configs) for name, (count, configs) in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(DEADLINE_SECONDS)
    for codec in CODECS:
        write(bootstrap, "codecs", 60, {"compression.type": codec, "linger.ms": 50})
    for topic in ("trimmed", "emptied"):
        write(bootstrap, topic, 50, {"linger.ms": 0, "batch.num.messages": 7})
    delete = [TopicPartition("trimmed", 0, 21), TopicPartition("emptied", 0, 50)]
    for future in admin.delete_records(delete).values():
        future.result(DEADLINE_SECONDS)
    transfer(bootstrap, "first", 6)
    for _ in range(5):  # segments end with time, and are compacted soon
        write(bootstrap, "latest", 40, {"linger.ms": 5}, keys=10)
        time.sleep(0.1)
    for group, protocol, offset in (("reports", "classic", 17), ("audits", "consumer", 33)):
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
        consumer = Consumer(settings)
        consumer.commit(
            offsets=[TopicPartition("codecs", each, offset) for each in range(3)],
            asynchronous=False,
        )
        consumer.close()


def write(
    bootstrap: str, topic: str, count: int, settings: dict[str, Any], *, keys: int = 1000
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings})
    for number in range(count):
        key = f"k{number % keys}".encode()
        producer.produce(topic, f"v{number}".encode() * 200, key, headers={"n": str(number)})
    assert producer.flush(DEADLINE_SECONDS) == 0


def transfer(bootstrap: str, name: str, count: int) -> None:
    """Write transactions, of which every third is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_SECONDS)
    for number in range(count):
        producer.begin_transaction()
        for partition in (0, 1):
            for each in range(5):
                producer.produce("transfers", f"{name} {number} {each}", partition=partition)
        producer.flush(DEADLINE_SECONDS)
        if number % 3 == 2:
            producer.abort_transaction(DEADLINE_SECONDS)
        else:
            producer.commit_transaction(DEADLINE_SECONDS)


class Writer(threading.Thread):
    """Keeps writing to the source until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._source = bootstrap
        self._is_over = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        number = 0
        try:
            while not self._is_over.is_set():
                number += 1
                write(self._source, "codecs", 40, {"compression.type": CODECS[number % 5]})
                transfer(self._source, "second", 3)
                write(self._source, "latest", 10, {}, keys=10)
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._is_over.set()
        self.join(DEADLINE_SECONDS)
        assert not self.is_alive()
        assert self.failure is None, repr(self.failure)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "mirror", *words]


def ask(*words: str) -> Any:
    done = subprocess.run(
        command(*words, "--json"), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def read(bootstrap: str, topic: str, isolation: str) -> list[tuple[Any, ...]]:
    """Return all records of a topic as librdkafka delivers them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    count = TOPICS[topic][0]
    consumer.assign([TopicPartition(topic, each, 0) for each in range(count)])
    found, ended, deadline = [], set[int](), time.monotonic() + DEADLINE_SECONDS
    while len(ended) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
            continue
        found.append(
            (
                *(message.partition(), message.offset(), message.timestamp()),
                *(message.key(), message.value(), tuple(message.headers() or ())),
            )
        )
    consumer.close()
    assert len(ended) == count
    return sorted(found)


def watermarks(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    found = [
        consumer.get_watermark_offsets(TopicPartition(topic, each), DEADLINE_SECONDS)
        for each in range(TOPICS[topic][0])
    ]
    consumer.close()
    return found


def committed(bootstrap: str, group: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition("codecs", each) for each in range(3)], 60)
    consumer.close()
    return [each.offset for each in found]


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        (3, 1),
        pytest.param(30, 2, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)]),
    ],
)
def test_a_mirror_of_kafka_is_exact_however_often_it_is_killed(
    source: str, tmp_path: Path, kills: int, seed: int
) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "target"
    node = HeadraceProcess(folder)
    port, target = node.port, node.bootstrap
    between = ("--from", source, "--to", target)
    output = (tmp_path / "mirror.out").open("wb")
    running = subprocess.Popen(command(*between), stdout=output, stderr=output)
    writer = Writer(source)
    writer.start()
    try:
        wait_for_records(target)
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 2.5))  # when it is killed is left to chance
            if chance.random() < 0.5:
                node.kill()
                node = HeadraceProcess(folder, port=port)
            else:
                running.kill()
                running.wait()
                running = subprocess.Popen(command(*between), stdout=output, stderr=output)
        writer.stop()
        running.kill()
        running.wait()
        ask(*between, "--once")
        compare(source, target, between)
        go_on_in_the_target(source, target, between)
    finally:
        running.kill()
        running.wait()
        node.kill()
        output.close()


def test_kafka_is_refused_as_a_target_before_anything_is_written(source: str) -> None:
    with TestBroker() as broker:
        broker.create_topic("elsewhere")
        words = ("--from", broker.bootstrap, "--to", source, "--once")
        done = subprocess.run(
            command(*words), capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
        )
    assert done.returncode == 1
    assert "only Headrace clusters keep the offsets" in done.stderr
    admin = AdminClient({"bootstrap.servers": source})
    assert "elsewhere" not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def wait_for_records(target: str) -> None:
    """Return when the mirror copies, so that kills come in the middle of it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    admin = AdminClient({"bootstrap.servers": target})
    while time.monotonic() < deadline:
        known = admin.list_topics(timeout=DEADLINE_SECONDS).topics
        if "transfers" in known and watermarks(target, "transfers")[0][1]:
            return
        time.sleep(0.1)  # polls, up to the deadline
    raise AssertionError("the mirror copies nothing")


def compare(source: str, target: str, between: tuple[str, ...]) -> None:
    for topic in TOPICS:
        theirs, ours = watermarks(source, topic), watermarks(target, topic)
        assert ours == theirs, topic
        if topic == "latest":
            continue
        for isolation in ("read_committed", "read_uncommitted"):
            assert read(target, topic, isolation) == read(source, topic, isolation), topic
    assert len(read(target, "transfers", "read_committed")) < len(
        read(target, "transfers", "read_uncommitted")
    )
    left, right = read(source, "latest", "read_committed"), read(target, "latest", "read_committed")
    assert {row[3]: row for row in left} == {row[3]: row for row in right}
    assert len(left) < watermarks(source, "latest")[0][1], "Kafka has compacted it"
    for group in ("reports", "audits"):
        assert committed(target, group) == committed(source, group)
    status = ask("status", *between)
    assert {row["lag"] for row in status["partitions"]} == {0}
    verified = ask("verify", *between)
    assert len(verified) == sum(count for count, _ in TOPICS.values())
    assert all(row["is_equal"] for row in verified)


def go_on_in_the_target(source: str, target: str, between: tuple[str, ...]) -> None:
    """Promote the topics, and write to them where the source ended."""
    with pytest.raises(KafkaException):
        delivered(target, "trimmed")
    ask("promote", *TOPICS, *between, "--yes")
    for topic in ("trimmed", "emptied"):
        assert delivered(target, topic) == watermarks(source, topic)[0][1]


def delivered(bootstrap: str, topic: str) -> int:
    """Return the offset of one more record."""
    outcomes: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"more", on_delivery=lambda *outcome: outcomes.append(outcome))
    producer.flush(DEADLINE_SECONDS)
    ((error, message),) = outcomes
    if error is not None:
        raise KafkaException(error)
    return int(message.offset())
