"""confluent-kafka (librdkafka): a group that is rolled from one protocol to the other and back."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker, eventually

PARTITIONS = 4
BURST = 40
POLL_SECONDS = 0.02
REFUSED_IN_A_REBALANCE = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
}


class Roll:
    """A group, who is in it, and what was read by whom."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.members: list[Consumer] = []
        self.sent = 0
        self.read: Counter[int] = Counter()
        self.refused: set[int] = set()
        self.producer = Producer({"bootstrap.servers": bootstrap})

    def add(self, protocol: str, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        timeouts = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.topic,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 3,
                **(timeouts if protocol == "classic" else {}),
                **named,
            }
        )
        consumer.subscribe([self.topic])
        self.members.append(consumer)

    def remove_oldest(self) -> None:
        self.members.pop(0).close()

    def send(self) -> None:
        for number in range(self.sent, self.sent + BURST):
            self.producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS)
        assert self.producer.flush(DEADLINE_SECONDS) == 0
        self.sent += BURST

    def read_until(self, is_done: Callable[[], bool]) -> None:
        """Let all members read, each record committed before the next, until it is so."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_done():
            shares = [sorted(owned(each)) for each in self.members]
            assert time.monotonic() < deadline, f"{shares}, {len(self.read)} of {self.sent} read"
            for member in self.members:
                message = member.poll(POLL_SECONDS)
                if message is not None:
                    assert message.error() is None, message.error()
                    self._take(member, message)

    def _take(self, member: Consumer, message: Message) -> None:
        number = int(message.value() or b"")
        self.read[number] += 1
        try:
            member.commit(message, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in REFUSED_IN_A_REBALANCE:
                raise
            self.refused.add(number)

    def check_each_was_read(self) -> None:
        """None is missing, and none came twice but those whose commit came too late."""
        assert self.read.keys() == set(range(self.sent))
        assert {number for number, times in self.read.items() if times > 1} <= self.refused

    def read_all(self) -> None:
        """Read what was sent, until all share the partitions."""
        self.read_until(lambda: len(self.read) == self.sent and self.is_shared())

    def is_shared(self) -> bool:
        shares = [owned(member) for member in self.members]
        together = sorted(index for share in shares for index in share)
        return all(shares) and together == list(range(PARTITIONS))


def owned(consumer: Consumer) -> set[int]:
    return {row.partition for row in consumer.assignment()}


def group_type(admin: AdminClient, group: str) -> ConsumerGroupType | None:
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    return next((each.type for each in listed.valid if each.group_id == group), None)


@pytest.fixture
def roll(bootstrap: str, new_topic: TopicMaker) -> Iterator[Roll]:
    rolled = Roll(bootstrap, new_topic(partitions=PARTITIONS))
    yield rolled
    for member in rolled.members:
        member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_rolled_to_the_consumer_protocol_and_back_and_every_record_is_read_once(
    roll: Roll, admin: AdminClient, strategy: str
) -> None:
    classic = {"partition_assignment_strategy": strategy}
    roll.add("classic", **classic)
    roll.add("classic", **classic)
    roll.send()
    roll.read_all()
    assert group_type(admin, roll.topic) is ConsumerGroupType.CLASSIC
    for protocol, settings in (("consumer", {}), ("classic", classic)):
        for _ in range(2):
            roll.send()
            half = roll.sent - BURST // 2
            roll.read_until(lambda half=half: len(roll.read) >= half)  # type: ignore[misc]
            roll.remove_oldest()
            roll.add(protocol, **settings)
            roll.read_all()
        wanted = ConsumerGroupType.CONSUMER if protocol == "consumer" else ConsumerGroupType.CLASSIC
        eventually(lambda: group_type(admin, roll.topic), wanted)
    roll.send()
    roll.read_all()
    roll.check_each_was_read()


def test_members_of_both_protocols_share_the_partitions_of_a_group(
    roll: Roll, admin: AdminClient
) -> None:
    roll.add("consumer")
    roll.send()
    roll.read_all()
    roll.add("classic", partition_assignment_strategy="cooperative-sticky")
    roll.send()
    roll.read_all()
    roll.add("classic", partition_assignment_strategy="cooperative-sticky")
    roll.add("consumer")
    roll.send()
    roll.read_all()
    assert group_type(admin, roll.topic) is ConsumerGroupType.CONSUMER
    roll.check_each_was_read()


def test_static_members_change_their_protocol_and_keep_their_partitions(
    roll: Roll, admin: AdminClient
) -> None:
    for instance in ("a", "b"):
        roll.add("classic", group_instance_id=instance)
    roll.send()
    roll.read_all()
    before = [owned(member) for member in roll.members]
    for instance in ("a", "b"):
        roll.remove_oldest()
        roll.add("consumer", group_instance_id=instance)
        roll.send()
        roll.read_all()
    assert group_type(admin, roll.topic) is ConsumerGroupType.CONSUMER
    assert [owned(member) for member in roll.members] == before
    for instance in ("a", "b"):
        roll.remove_oldest()
        roll.add("classic", group_instance_id=instance)
        roll.send()
        roll.read_all()
    eventually(lambda: group_type(admin, roll.topic), ConsumerGroupType.CLASSIC)
    roll.check_each_was_read()
