"""Clients of others on three nodes, through each of them, and while one of them starts again."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from headrace.ids import PartitionIndex, TopicName
from headrace.testing.cluster import TestCluster
from tests.clients import confluent_queues
from tests.clients.conftest import DEADLINE_SECONDS, QUICK_GROUPS, START_MS
from tests.clients.workloads import CLIENTS, Sent
from tests.kafka_python import KafkaConsumer, KafkaProducer

pytestmark = pytest.mark.slow

PARTITIONS = 6
RECORDS = 120
NODES = (1, 2, 3)
POLL_SECONDS = 0.2
ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
_NUMBERS = count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    settings = {**QUICK_GROUPS, **confluent_queues.QUICK, **ONE_REPLICA}
    with TestCluster(nodes=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: TestCluster) -> str:
    """A topic with partitions on every node."""
    name = f"cluster-{os.getpid()}-{next(_NUMBERS)}"
    cluster.create_topic(name, PARTITIONS)

    def are_everywhere() -> bool:
        image = cluster.nodes[1].node.broker.image
        rows = [
            image.partition(TopicName(name), PartitionIndex(index)) for index in range(PARTITIONS)
        ]
        return {row.leader for row in rows if row is not None} == set(NODES)

    cluster.wait_for(are_everywhere, "partitions on every node")
    return name


def records(first: int = 0, total: int = RECORDS) -> list[Sent]:
    numbers = range(first, first + total)
    return [Sent(b"key-%d" % (each % 50), b"%d" % each, START_MS + each) for each in numbers]


def values(of: list[Sent]) -> list[bytes]:
    return sorted(each.value for each in of)


class Members:
    """Members of one group, polled by a thread each until all have read enough together."""

    def __init__(self, polls: list[Callable[[], list[bytes]]]) -> None:
        self.found: list[bytes] = []
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(poll,)) for poll in polls]
        for thread in self._threads:
            thread.start()

    def read(self, wanted: list[bytes]) -> None:
        """Return when these values were read, each at least once; then all stop."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while set(self.found) != set(wanted):
                assert not self._failures, self._failures
                missing = len(set(wanted) - set(self.found))
                assert time.monotonic() < deadline, f"{missing} of {len(wanted)} are missing"
                time.sleep(0.01)  # polls, up to the deadline
        finally:
            self.stop()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, poll: Callable[[], list[bytes]]) -> None:
        try:
            while not self._is_over.is_set():
                self.found += poll()
        except BaseException as error:
            self._failures.append(error)


def confluent_member(bootstrap: str, topic: str, protocol: str) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-of-{topic}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 3,
        }
    )
    consumer.subscribe([topic])
    return consumer


def confluent_poll(consumer: Any) -> list[bytes]:
    return [row.value() for row in consumer.consume(1000, POLL_SECONDS) if row.error() is None]


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("name", CLIENTS)
def test_records_and_groups_through_each_node(
    cluster: TestCluster, topic: str, name: str, node: int
) -> None:
    client = CLIENTS[name](cluster.nodes[node].bootstrap)

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await client.produce(topic, records())
            read = await client.read_group(topic, f"group-of-{topic}", RECORDS)
            assert sorted(each.value or b"" for each in read) == values(records())
            assert {each.partition for each in read} == set(range(PARTITIONS))

    asyncio.run(work())


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("name", CLIENTS)
def test_transactions_over_all_nodes_through_each_node(
    cluster: TestCluster, topic: str, name: str, node: int
) -> None:
    client = CLIENTS[name](cluster.nodes[node].bootstrap)
    ends = [(records(0), True), (records(1000), False), (records(2000), True)]

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await client.transact(topic, ends, f"transactional-of-{topic}")
            read = await client.read_committed(topic, PARTITIONS)
            expected = values(records(0) + records(2000))
            assert sorted(each.value or b"" for each in read) == expected

    asyncio.run(work())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_of_librdkafka_at_different_nodes_share_the_partitions(
    cluster: TestCluster, topic: str, protocol: str
) -> None:
    consumers = [
        confluent_member(cluster.nodes[node].bootstrap, topic, protocol) for node in (2, 3)
    ]
    members = Members([lambda each=each: confluent_poll(each) for each in consumers])  # type: ignore[misc]
    asyncio.run(CLIENTS["confluent"](cluster.nodes[1].bootstrap).produce(topic, records()))
    members.read(values(records()))
    for consumer in consumers:
        consumer.close()


def test_two_members_of_kafka_python_at_different_nodes_share_the_partitions(
    cluster: TestCluster, topic: str
) -> None:
    consumers = [
        KafkaConsumer(
            topic,
            bootstrap_servers=cluster.nodes[node].bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
        )
        for node in (1, 2)
    ]

    def poll(consumer: Any) -> list[bytes]:
        return [row.value for rows in consumer.poll(timeout_ms=1000).values() for row in rows]

    members = Members([lambda each=each: poll(each) for each in consumers])  # type: ignore[misc]
    producer = KafkaProducer(bootstrap_servers=cluster.nodes[3].bootstrap)
    for record in records():
        producer.send(topic, record.value, record.key)
    producer.flush(DEADLINE_SECONDS)
    producer.close()
    members.read(values(records()))
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("node", NODES)
def test_a_share_group_of_librdkafka_through_each_node(cluster: TestCluster, node: int) -> None:
    bootstrap = cluster.nodes[node].bootstrap
    name = confluent_queues.queue(bootstrap, PARTITIONS)
    other = cluster.nodes[node % 3 + 1].bootstrap
    consumers = [confluent_queues.consumer_of(each, name) for each in (bootstrap, other)]
    confluent_queues.fill(bootstrap, name, RECORDS, PARTITIONS)

    def poll(consumer: Any) -> list[bytes]:
        return [row.value() for row in confluent_queues.polled(consumer)]

    members = Members([lambda each=each: poll(each) for each in consumers])  # type: ignore[misc]
    members.read([b"%d" % number for number in range(RECORDS)])
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("node", NODES)
def test_librdkafka_gets_everything_through_while_a_node_starts_again(
    cluster: TestCluster, topic: str, node: int
) -> None:
    """Its partitions wait for it, as they have one replica; groups and clients go on after it."""
    consumers = [confluent_member(cluster.bootstrap, topic, "consumer") for _ in range(2)]
    members = Members([lambda each=each: confluent_poll(each) for each in consumers])  # type: ignore[misc]
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 3})
    try:
        for half in (records(0), records(1000)):
            for record in half:
                producer.produce(topic, record.value, record.key)
            if half == records(0):
                producer.flush(DEADLINE_SECONDS)
                cluster.stop(node)
            else:
                cluster.restart(node)
        assert producer.flush(DEADLINE_SECONDS) == 0
        members.read(values(records(0) + records(1000)))
    finally:
        members.stop()
        for consumer in consumers:
            consumer.close()


@pytest.mark.parametrize("node", NODES)
def test_aiokafka_gets_everything_through_while_a_node_starts_again(
    cluster: TestCluster, topic: str, node: int
) -> None:
    bootstrap = cluster.bootstrap

    async def work() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
        )
        found: set[bytes] = set()
        wanted = set(values(records(0) + records(1000)))
        async with asyncio.timeout(DEADLINE_SECONDS), producer, consumer:
            for each in records(0):
                await producer.send(topic, each.value, each.key)
            await producer.flush()
            await asyncio.to_thread(cluster.stop, node)
            sent = [await producer.send(topic, each.value, each.key) for each in records(1000)]
            await asyncio.to_thread(cluster.restart, node)
            await asyncio.gather(*sent)
            while found != wanted:
                rows = await consumer.getmany(timeout_ms=200)
                found |= {row.value for batch in rows.values() for row in batch}

    asyncio.run(work())
