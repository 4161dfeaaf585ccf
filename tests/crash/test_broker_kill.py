"""A node that is killed under load, again and again, keeps every record it acknowledged."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.headrace_process import HeadraceProcess

PARTITIONS = 3
ACKNOWLEDGED_MAX = 400
UNACKNOWLEDGED_MAX = 200
DEADLINE_SECONDS = 60
TOPIC = "survivor"


class Load:
    """An idempotent producer of numbers that outlives the node, and what it was promised."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        """The number at each partition and offset."""
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 10,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,  # it has much to say about a broker that dies
            }
        )

    def press(self, acknowledgements: int) -> None:
        """Send until so many more records are acknowledged, and leave others on their way."""
        wanted = len(self.acknowledged) + acknowledgements
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "the node acknowledges nothing"
            if len(self._producer) < UNACKNOWLEDGED_MAX:
                self._send()
                self._producer.poll(0)
            else:
                self._producer.poll(0.1)

    def finish(self) -> int:
        """Wait for what is on its way; give the count of all numbers that were sent."""
        assert self._producer.flush(DEADLINE_SECONDS) == 0
        return self._number

    def _send(self) -> None:
        value, partition = b"%d" % self._number, self._number % PARTITIONS
        self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._note)
        self._number += 1

    def _note(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged[message.partition(), message.offset()] = int(message.value())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_nothing_acknowledged_is_lost_moved_or_written_twice(tmp_path: Path, kills: int) -> None:
    choose = random.Random(20)
    node = HeadraceProcess(tmp_path / "data")
    port = node.port
    try:
        create_topic(node.bootstrap)
        load = Load(node.bootstrap)
        for _ in range(kills):
            load.press(choose.randint(1, ACKNOWLEDGED_MAX))
            node.kill()
            node = HeadraceProcess(tmp_path / "data", port=port)
            found = read_all(node.bootstrap)
            assert load.acknowledged.items() <= found.items()
        sent = load.finish()
        kept = read_all(node.bootstrap)
        for partition in range(PARTITIONS):
            numbers = [number for where, number in kept.items() if where[0] == partition]
            assert numbers == list(range(partition, sent, PARTITIONS))
        assert node.stop() == 0
    finally:
        node.kill()


def create_topic(bootstrap: str) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"flush.messages": "1"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[TOPIC].result(DEADLINE_SECONDS)


def read_all(bootstrap: str) -> dict[tuple[int, int], int]:
    """The number at each partition and offset, in the order of each partition's offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
    )
    ends = {
        partition: consumer.get_watermark_offsets(
            TopicPartition(TOPIC, partition), DEADLINE_SECONDS
        )[1]
        for partition in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while any((partition, end - 1) not in found for partition, end in ends.items() if end):
            assert time.monotonic() < deadline, f"only {len(found)} records came"
            for message in consumer.consume(10_000, timeout=0.05):
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = int(message.value())
    finally:
        consumer.close()
    return found
