"""kafka-python: consumer groups."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker, eventually
from tests.kafka_python import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
    kafka_errors,
)

Made = Callable[..., Any]
POLL_MS = 1000
"""Long, as a poll returns when records come. kafka-python 3.0.12 loses a rejoin that the leader
starts on its own if the poll times out before the rejoin ends: the member stays in a rebalance,
sends no heartbeats and cannot commit."""


class Member:
    """A consumer that a thread of its own polls, as members that rebalance wait for each other."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    @property
    def owned(self) -> set[int]:
        return {row.partition for row in self._consumer.assignment()}

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        self._consumer.close()

    def _poll(self) -> None:
        while not self._is_closing.is_set():
            self._consumer.poll(timeout_ms=POLL_MS)


@pytest.fixture
def consumer_of(bootstrap: str) -> Iterator[Made]:
    opened: list[Any] = []

    def make(group: str, topic: str, **settings: Any) -> Any:
        client = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=30_000,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=100,
            **settings,
        )
        opened.append(client)
        client.subscribe([topic])
        # A leader that joins before it knows the topic's partitions assigns none of them, or joins
        # a second time when it learns of them. This waits for metadata.
        eventually(lambda: topic in client.topics(), True)
        return client

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def join(consumer_of: Made) -> Iterator[Made]:
    joined: list[Member] = []

    def make(group: str, topic: str, **settings: Any) -> Member:
        joined.append(Member(consumer_of(group, topic, **settings)))
        return joined[-1]

    yield make
    for member in joined:
        member.close()


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=number % partitions)
    producer.close()


def read(consumer: Any, count: int) -> list[Any]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Any] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        for rows in consumer.poll(timeout_ms=POLL_MS).values():
            found += rows
    return found


def commit(consumer: Any, offsets: dict[Any, Any]) -> None:
    """Commit; after a rebalance, if one is in progress."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            consumer.commit(offsets)
        except kafka_errors.RebalanceInProgressError:
            assert time.monotonic() < deadline, "the rebalance does not end"
            consumer.poll(timeout_ms=POLL_MS)
        else:
            return


def is_shared(members: list[Member], partitions: int) -> bool:
    shares = [member.owned for member in members]
    return all(shares) and sorted(n for row in shares for n in row) == list(range(partitions))


def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic(partitions=4)
    first = join(topic, topic)
    eventually(lambda: is_shared([first], 4), True)
    second = join(topic, topic)
    eventually(lambda: is_shared([first, second], 4), True)
    second.close()
    eventually(lambda: is_shared([first], 4), True)


def test_a_group_goes_on_where_it_committed(
    bootstrap: str, new_topic: TopicMaker, consumer_of: Made
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 2, 100)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    first = consumer_of(topic, topic)
    read(first, 100)
    commit(
        first,
        {
            places[0]: OffsetAndMetadata(40, "forty", -1),
            places[1]: OffsetAndMetadata(45, "", -1),
        },
    )
    assert first.committed(places[0], metadata=True).metadata == "forty"
    first.close()
    found = {(row.partition, row.offset) for row in read(consumer_of(topic, topic), 15)}
    assert found == {(0, n) for n in range(40, 50)} | {(1, n) for n in range(45, 50)}


def test_a_static_member_comes_back_to_its_partitions(new_topic: TopicMaker, join: Made) -> None:
    topic = new_topic(partitions=4)
    kept = join(topic, topic, group_instance_id="a")
    restarted = join(topic, topic, group_instance_id="b")
    eventually(lambda: is_shared([kept, restarted], 4), True)
    before = restarted.owned
    restarted.close()
    again = join(topic, topic, group_instance_id="b")
    eventually(lambda: is_shared([kept, again], 4), True)
    assert again.owned == before


def test_groups_are_listed_with_their_offsets_and_deleted(
    bootstrap: str, new_topic: TopicMaker, consumer_of: Made
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1, 5)
    client = consumer_of(topic, topic)
    read(client, 5)
    commit(client, {TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)})
    client.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        offsets = admin.list_group_offsets({topic: None})[topic]
        assert {place.partition: row.offset for place, row in offsets.items()} == {0: 3}
        admin.delete_groups([topic])
        assert topic not in {row["group_id"] for row in admin.list_groups()}
    finally:
        admin.close()
