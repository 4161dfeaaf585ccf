"""Coordinators whose node is lost: what they acknowledged is there, and they go on elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from headrace.client import (
    AcknowledgementMode,
    AcknowledgeType,
    ClientError,
    Consumer,
    Producer,
    ShareConsumer,
    Start,
    TransactionAborted,
)
from headrace.client.topics import TopicPartition
from headrace.config.group_configs import SHARE_DEAD_LETTER_COPY, SHARE_DEAD_LETTER_TOPIC
from headrace.ids import (
    GROUPS_TOPIC,
    SHARE_STATES_TOPIC,
    TRANSACTIONS_TOPIC,
    PartitionIndex,
    TopicName,
)
from headrace.metadata.state import NO_LEADER
from headrace.testing.cluster import TestCluster

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
}
ENDS = 2
PROGRESS = 20
"""How much is acknowledged before and after each loss."""
SECONDS_MAX = 100


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


def leader_of(cluster: TestCluster, topic: str, index: int = 0) -> int:
    """Return the node that leads a partition, once one does."""
    found: list[int] = []

    def is_found() -> bool:
        for _, node in cluster.running():
            row = node.node.broker.image.partition(TopicName(topic), PartitionIndex(index))
            if (
                row is not None
                and row.leader != NO_LEADER
                and row.leader in dict(cluster.running())
            ):
                found[:] = [row.leader]
                return True
        return False

    cluster.wait_for(is_found, f"a leader of {topic}-{index}")
    return found[0]


@asynccontextmanager
async def running(
    work: Callable[[asyncio.Event], Awaitable[None]],
) -> AsyncIterator["asyncio.Task[None]"]:
    """Run something until the block ends, and see that it did not fail."""
    is_over = asyncio.Event()
    task = asyncio.ensure_future(work(is_over))
    try:
        yield task
    finally:
        is_over.set()
        await task


async def end_leaders(
    cluster: TestCluster,
    topic: str,
    work: "asyncio.Task[None]",
    done: list[int],
    *,
    by: str = "kill",
) -> None:
    """Take the leadership of a topic from its node, again and again, while work goes on."""
    for _ in range(ENDS):
        await wait_for_more(work, done)
        victim = await asyncio.to_thread(leader_of, cluster, topic)
        await asyncio.to_thread(cluster.kill if by == "kill" else cluster.stop, victim)
        await wait_for_more(work, done)
        await asyncio.to_thread(cluster.restart, victim)
    await wait_for_more(work, done)


async def wait_for_more(work: "asyncio.Task[None]", done: list[int]) -> None:
    before = len(done)
    while len(done) < before + PROGRESS:
        assert not work.done(), work.exception()
        await asyncio.sleep(0.01)


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario

    asyncio.run(bounded())


@pytest.mark.parametrize("by", ["kill", "stop"])
def test_offsets_that_were_committed_stay_committed(cluster: TestCluster, by: str) -> None:
    cluster.create_topic("orders")
    cluster.produce("orders", *(str(number) for number in range(10)))
    bootstrap, place = cluster.bootstrap, TopicPartition("orders", 0)
    committed: list[int] = []

    async def commit(is_over: asyncio.Event) -> None:
        async with Consumer(
            bootstrap, group="billing", auto_commit=False, reset=Start.BEGINNING
        ) as consumer:
            await consumer.subscribe(["orders"])
            while not is_over.is_set():
                await consumer.poll(10)
                if place not in consumer.assignment:
                    continue
                number = len(committed) + 1
                try:
                    await consumer.commit({place: number})
                except ClientError:
                    continue  # a rebalance, or nobody knows: it is committed again
                found = (await consumer.committed([place]))[place]
                assert found is not None
                assert found.offset == number
                committed.append(number)

    async def scenario() -> None:
        async with running(commit) as work:
            await end_leaders(cluster, GROUPS_TOPIC, work, committed, by=by)
        async with Consumer(bootstrap, group="billing", auto_commit=False) as consumer:
            await consumer.subscribe(["orders"])
            found = (await consumer.committed([place]))[place]
        assert found is not None
        assert found.offset >= committed[-1]

    run(scenario())


@pytest.mark.parametrize("by", ["kill", "stop"])
def test_transactions_are_whole_while_their_coordinator_is_lost(
    cluster: TestCluster, by: str
) -> None:
    partitions = 3
    cluster.create_topic("orders", partitions)
    bootstrap = cluster.bootstrap
    committed: list[int] = []

    async def write(is_over: asyncio.Event) -> None:
        number = 0
        async with Producer(bootstrap, transactional_id="payments") as producer:
            while not is_over.is_set():
                number += 1
                try:
                    async with producer.transaction():
                        for index in range(partitions):
                            await producer.send("orders", b"%d" % number, partition=index)
                except TransactionAborted:
                    continue
                committed.append(number)

    async def scenario() -> None:
        async with running(write) as work:
            await end_leaders(cluster, TRANSACTIONS_TOPIC, work, committed, by=by)

    run(scenario())
    found: dict[int, list[int]] = {index: [] for index in range(partitions)}
    for record in cluster.consume("orders"):
        assert record.value is not None
        found[record.partition].append(int(record.value))
    assert found == dict.fromkeys(range(partitions), committed)


@pytest.mark.parametrize("of", ["orders", SHARE_STATES_TOPIC])
def test_a_queue_is_worked_off_while_its_leaders_are_killed(cluster: TestCluster, of: str) -> None:
    """Every record is delivered, and what was accepted is not delivered again."""
    cluster.create_topic("orders")
    cluster.configure_group("workers", {"share.auto.offset.reset": "earliest"})
    bootstrap = cluster.bootstrap
    produced: list[int] = []
    accepted: list[int] = []
    delivered: set[int] = set()

    async def produce(is_over: asyncio.Event) -> None:
        async with Producer(bootstrap) as producer:
            while not is_over.is_set():
                delivery = await producer.send("orders", b"%d" % len(produced))
                await delivery
                produced.append(len(produced))
                await asyncio.sleep(0.005)

    async def work(is_over: asyncio.Event) -> None:
        async with ShareConsumer(
            bootstrap, "workers", ["orders"], mode=AcknowledgementMode.EXPLICIT
        ) as consumer:
            while not is_over.is_set() or len(delivered) < len(produced):
                records = await consumer.poll(100)
                for record in records:
                    number = int(record.value or b"")
                    assert number not in accepted_before, f"{number} was accepted before"
                    delivered.add(number)
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT)
                outcomes = await consumer.commit()
                if records and not any(outcomes.values()):
                    accepted.extend(int(record.value or b"") for record in records)
                    accepted_before.update(accepted[-len(records) :])

    accepted_before: set[int] = set()

    async def scenario() -> None:
        async with running(work) as working, running(produce):
            await end_leaders(cluster, of, working, accepted)

    run(scenario())
    assert delivered >= set(produced)


def test_dead_letters_are_written_although_the_leader_of_the_queue_is_killed(
    cluster: TestCluster,
) -> None:
    cluster.create_topic("orders")
    cluster.create_topic("dlq.orders")
    cluster.configure_group(
        "workers",
        {
            "share.auto.offset.reset": "earliest",
            SHARE_DEAD_LETTER_TOPIC.name: "dlq.orders",
            SHARE_DEAD_LETTER_COPY.name: "true",
        },
    )
    bootstrap = cluster.bootstrap
    rejected: list[int] = []

    async def reject(is_over: asyncio.Event) -> None:
        async with (
            Producer(bootstrap) as producer,
            ShareConsumer(
                bootstrap, "workers", ["orders"], mode=AcknowledgementMode.EXPLICIT
            ) as consumer,
        ):
            number = 0
            while not is_over.is_set():
                delivery = await producer.send("orders", b"%d" % number)
                await delivery
                number += 1
                records = await consumer.poll(1000)
                for record in records:
                    consumer.acknowledge(record, AcknowledgeType.REJECT)
                if not any((await consumer.commit()).values()):
                    rejected.extend(int(record.value or b"") for record in records)

    async def scenario() -> None:
        async with running(reject) as work:
            await end_leaders(cluster, "orders", work, rejected)

    run(scenario())

    def are_there() -> bool:
        letters = {int(each.value) for each in cluster.consume("dlq.orders") if each.value}
        return letters >= set(rejected)

    cluster.wait_for(are_there, "the letters of all rejected records")
