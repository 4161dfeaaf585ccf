"""confluent-kafka (librdkafka): consumer groups of both protocols."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker, eventually

PROTOCOLS = ["classic", "consumer"]
POLL_SECONDS = 0.05
Made = Callable[..., Consumer]


@pytest.fixture
def join(bootstrap: str) -> Iterator[Made]:
    """Make consumers; a setting's name has `_` where librdkafka has `.`."""
    opened: list[Consumer] = []

    def make(group: str, protocol: str = "classic", **settings: Any) -> Consumer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        timeouts = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 3,
                **(timeouts if protocol == "classic" else {}),
                **named,
            }
        )
        opened.append(consumer)
        return consumer

    yield make
    for consumer in opened:
        consumer.close()


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(DEADLINE_SECONDS) == 0


def owned(consumer: Consumer) -> set[int]:
    return {row.partition for row in consumer.assignment()}


def settle(consumers: list[Consumer], is_done: Callable[[], bool]) -> list[Message]:
    """Poll all of them until it is so; give what they read on the way."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Message] = []
    while not is_done():
        shares = [sorted(owned(consumer)) for consumer in consumers]
        assert time.monotonic() < deadline, f"it does not settle: {shares}, {len(found)} records"
        for consumer in consumers:
            message = consumer.poll(POLL_SECONDS)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
    return found


def is_shared(consumers: list[Consumer], partitions: int) -> bool:
    """Whether every partition is with exactly one of them, and nobody is without."""
    shares = [owned(consumer) for consumer in consumers]
    return all(shares) and sorted(n for share in shares for n in share) == list(range(partitions))


def read(consumers: list[Consumer], count: int) -> list[Message]:
    """Poll until so many records came."""
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        for consumer in consumers:
            for message in consumer.consume(count, timeout=POLL_SECONDS):
                assert message.error() is None, message.error()
                found.append(message)
    return found


def fatal_error(consumer: Consumer) -> str:
    """What ends the consumer, in librdkafka's words."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        assert time.monotonic() < deadline, "it was not told"
        message = consumer.poll(POLL_SECONDS)
        if message is not None and message.error() is not None:
            assert message.error().code() == KafkaError._FATAL
            words: str = message.error().str()
            return words


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    bootstrap: str, new_topic: TopicMaker, join: Made, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    first, second = (join(topic, protocol) for _ in range(2))
    first.subscribe([topic])
    settle([first], lambda: owned(first) == {0, 1, 2, 3})
    second.subscribe([topic])
    settle([first, second], lambda: is_shared([first, second], 4))
    second.close()
    settle([first], lambda: owned(first) == {0, 1, 2, 3})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_committed(
    bootstrap: str, new_topic: TopicMaker, join: Made, protocol: str
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 2, 100)
    first = join(topic, protocol)
    first.subscribe([topic])
    before = read([first], 100)
    assert sorted(int(message.value()) for message in before) == list(range(100))
    noted = [TopicPartition(topic, n, 30 + n, metadata=f"note {n}") for n in range(2)]
    first.commit(offsets=noted, asynchronous=False)
    committed = first.committed([TopicPartition(topic, n) for n in range(2)], DEADLINE_SECONDS)
    assert [(row.offset, row.metadata) for row in committed] == [(30, "note 0"), (31, "note 1")]
    first.close()
    second = join(topic, protocol)
    second.subscribe([topic])
    after = read([second], 39)
    assert {(message.partition(), message.offset()) for message in after} == {
        *((0, offset) for offset in range(30, 50)),
        *((1, offset) for offset in range(31, 50)),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_everything_is_read_once_while_members_come_and_go(
    bootstrap: str, new_topic: TopicMaker, join: Made, protocol: str
) -> None:
    topic = new_topic(partitions=6)
    fill(bootstrap, topic, 6, 600)
    members = [join(topic, protocol)]
    seen: set[int] = set()

    def work(until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not until():
            assert time.monotonic() < deadline
            for member in members:
                for message in member.consume(10, timeout=POLL_SECONDS):
                    assert message.error() is None, message.error()
                    number = int(message.value())
                    assert number not in seen, "read twice, although it was committed"
                    seen.add(number)
                    try:
                        member.commit(message=message, asynchronous=False)
                    except KafkaException as error:
                        if error.args[0].code() not in LOST_PARTITION:
                            raise
                        seen.discard(number)  # the next owner reads it again

    members[0].subscribe([topic])
    work(lambda: len(seen) >= 100)
    members.append(join(topic, protocol))
    members[1].subscribe([topic])
    work(lambda: len(seen) >= 300)
    members.pop(0).close()
    work(lambda: len(seen) == 600)


LOST_PARTITION = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.STALE_MEMBER_EPOCH,
}


def test_a_cooperative_group_leaves_most_partitions_where_they_are(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic(partitions=4)
    cooperative = {"partition_assignment_strategy": "cooperative-sticky"}
    first, second = join(topic, **cooperative), join(topic, **cooperative)
    taken: list[list[int]] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        taken.append(sorted(row.partition for row in partitions))
        consumer.incremental_unassign(partitions)

    first.subscribe([topic], on_revoke=on_revoke)
    settle([first], lambda: owned(first) == {0, 1, 2, 3})
    second.subscribe([topic])
    settle([first, second], lambda: is_shared([first, second], 4))
    assert len(owned(first)) == 2
    assert [len(row) for row in taken] == [2], "it kept the other two all the while"


def test_a_consumer_protocol_group_leaves_most_partitions_where_they_are(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic(partitions=4)
    first, second = join(topic, "consumer"), join(topic, "consumer")
    taken: list[int] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        taken.extend(row.partition for row in partitions)
        consumer.incremental_unassign(partitions)

    first.subscribe([topic], on_revoke=on_revoke)
    settle([first], lambda: owned(first) == {0, 1, 2, 3})
    second.subscribe([topic])
    settle([first, second], lambda: is_shared([first, second], 4))
    assert sorted(taken) == sorted(owned(second))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_comes_back_gets_its_partitions_and_disturbs_nobody(
    bootstrap: str, new_topic: TopicMaker, join: Made, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    kept, restarted = (join(topic, protocol, group_instance_id=name) for name in ("a", "b"))
    moved: list[int] = []

    def on_change(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        moved.append(len(partitions))

    kept.subscribe([topic], on_assign=on_change, on_revoke=on_change)
    restarted.subscribe([topic])
    settle([kept, restarted], lambda: is_shared([kept, restarted], 4))
    before = owned(restarted)
    moved.clear()
    restarted.close()
    again = join(topic, protocol, group_instance_id="b")
    again.subscribe([topic])
    settle([kept, again], lambda: owned(again) == before)
    assert moved == []


def test_a_second_classic_member_with_the_same_instance_fences_the_first(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic()
    first = join(topic, group_instance_id="a")
    first.subscribe([topic])
    settle([first], lambda: owned(first) == {0})
    second = join(topic, group_instance_id="a")
    second.subscribe([topic])
    settle([second], lambda: owned(second) == {0})
    assert "Static consumer fenced" in fatal_error(first)


def test_a_second_consumer_member_with_the_same_instance_is_refused(
    bootstrap: str, new_topic: TopicMaker, join: Made
) -> None:
    topic = new_topic()
    first = join(topic, "consumer", group_instance_id="a")
    first.subscribe([topic])
    settle([first], lambda: owned(first) == {0})
    second = join(topic, "consumer", group_instance_id="a")
    second.subscribe([topic])
    assert "instance ID is still used" in fatal_error(second)
    assert owned(first) == {0}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_subscribes_to_the_topics_that_match_it(
    bootstrap: str, new_topic: TopicMaker, join: Made, protocol: str
) -> None:
    topic, _ = new_topic(), new_topic()
    pattern = f"^{topic[:-1]}[{topic[-1]}]$"
    consumer = join(topic, protocol, topic_metadata_refresh_interval_ms=200)
    consumer.subscribe([pattern])
    settle([consumer], lambda: {row.topic for row in consumer.assignment()} == {topic})


def test_old_generations_cannot_commit(bootstrap: str, new_topic: TopicMaker, join: Made) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1, 2)
    stalled = join(topic, max_poll_interval_ms=6000, session_timeout_ms=6000)
    stalled.subscribe([topic])
    (message,) = read([stalled], 1)[:1]
    member = join(topic)
    member.subscribe([topic])
    # The stalled one does not poll, so it is thrown out, and the other one gets its partition.
    settle([member], lambda: owned(member) == {0})
    with pytest.raises(KafkaException) as refused:
        stalled.commit(message=message, asynchronous=False)
    assert refused.value.args[0].code() in LOST_PARTITION


def test_groups_are_listed_described_and_deleted(
    bootstrap: str, new_topic: TopicMaker, join: Made, admin: AdminClient
) -> None:
    topic = new_topic(partitions=2)
    members = {protocol: join(f"{topic}-{protocol}", protocol) for protocol in PROTOCOLS}
    for member in members.values():
        member.subscribe([topic])
        settle([member], lambda member=member: owned(member) == {0, 1})  # type: ignore[misc]
    listed = {
        row.group_id: (row.state, row.type)
        for row in admin.list_consumer_groups().result(DEADLINE_SECONDS).valid
        if row.group_id.startswith(topic)
    }
    assert listed == {
        f"{topic}-classic": (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC),
        f"{topic}-consumer": (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER),
    }
    for group in listed:
        found = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        assert found.state == ConsumerGroupState.STABLE
        (member,) = found.members
        has = [(row.topic, row.partition) for row in member.assignment.topic_partitions]
        assert sorted(has) == [(topic, 0), (topic, 1)]
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    for member in members.values():
        member.close()
    for group in listed:
        eventually(lambda group=group: _state(admin, group), ConsumerGroupState.EMPTY)  # type: ignore[misc]
        admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    left = admin.list_consumer_groups().result(DEADLINE_SECONDS).valid
    assert not [row.group_id for row in left if row.group_id.startswith(topic)]


def _state(admin: AdminClient, group: str) -> object:
    found = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    return found.state


def test_offsets_of_a_group_without_members_are_set_and_listed_by_an_administrator(
    bootstrap: str, new_topic: TopicMaker, admin: AdminClient
) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 2, 20)
    wanted = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 7)]
    request = ConsumerGroupTopicPartitions(topic, wanted)
    admin.alter_consumer_group_offsets([request])[topic].result(DEADLINE_SECONDS)
    asked = ConsumerGroupTopicPartitions(topic)
    found = admin.list_consumer_group_offsets([asked])[topic].result(DEADLINE_SECONDS)
    offsets = {(row.partition, row.offset) for row in found.topic_partitions}
    assert offsets == {(0, 3), (1, 7)}
