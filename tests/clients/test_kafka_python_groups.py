"""kafka-python: consumer groups."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker

with warnings.catch_warnings():
    # It reads its schemas through a function that Python 3.11 deprecates and 3.13 brought back.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

Made = Callable[..., Any]


@pytest.fixture
def join(bootstrap: str) -> Iterator[Made]:
    opened: list[Any] = []

    def make(group: str, topic: str, **settings: Any) -> Any:
        client = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=100,
            **settings,
        )
        opened.append(client)
        # A leader that joins before it knows the topic's partitions gives none of them to anybody.
        client.partitions_for_topic(topic)
        client.subscribe([topic])
        return client

    yield make
    for client in opened:
        client.close()


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=number % partitions)
    producer.close()


def owned(consumer: Any) -> set[int]:
    return {row.partition for row in consumer.assignment()}


def poll_until(consumers: list[Any], is_done: Callable[[], bool]) -> list[Any]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Any] = []
    while not is_done():
        assert time.monotonic() < deadline, [owned(consumer) for consumer in consumers]
        for consumer in consumers:
            for rows in consumer.poll(timeout_ms=50).values():
                found += rows
    return found


def is_shared(consumers: list[Any], partitions: int) -> bool:
    shares = [owned(consumer) for consumer in consumers]
    return all(shares) and sorted(n for row in shares for n in row) == list(range(partitions))


def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic(partitions=4)
    first = join(topic, topic)
    poll_until([first], lambda: is_shared([first], 4))
    second = join(topic, topic)
    poll_until([first, second], lambda: is_shared([first, second], 4))
    second.close()
    poll_until([first], lambda: is_shared([first], 4))


def test_a_group_goes_on_where_it_committed(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 2, 100)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    first = join(topic, topic)
    seen: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(seen) < 100:
        assert time.monotonic() < deadline
        seen += [row for rows in first.poll(timeout_ms=50).values() for row in rows]
    first.commit(
        {
            places[0]: OffsetAndMetadata(40, "forty", -1),
            places[1]: OffsetAndMetadata(45, "", -1),
        }
    )
    assert first.committed(places[0], metadata=True).metadata == "forty"
    first.close()
    second = join(topic, topic)
    again: list[Any] = []
    while len(again) < 15:
        assert time.monotonic() < deadline
        again += [row for rows in second.poll(timeout_ms=50).values() for row in rows]
    found = {(row.partition, row.offset) for row in again}
    assert found == {(0, n) for n in range(40, 50)} | {(1, n) for n in range(45, 50)}


def test_a_static_member_comes_back_to_its_partitions(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic(partitions=4)
    kept = join(topic, topic, group_instance_id="a")
    restarted = join(topic, topic, group_instance_id="b")
    poll_until([kept, restarted], lambda: is_shared([kept, restarted], 4))
    before = owned(restarted)
    restarted.close()
    again = join(topic, topic, group_instance_id="b")
    poll_until([kept, again], lambda: is_shared([kept, again], 4))
    assert owned(again) == before


def test_groups_are_listed_with_their_offsets_and_deleted(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1, 5)
    client = join(topic, topic)
    poll_until([client], lambda: is_shared([client], 1))
    client.commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)})
    client.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        offsets = admin.list_group_offsets({topic: None})[topic]
        assert {place.partition: row.offset for place, row in offsets.items()} == {0: 3}
        admin.delete_groups([topic])
        assert topic not in {row["group_id"] for row in admin.list_groups()}
    finally:
        admin.close()
