"""A client of a node that is cut off from the others and does not know it."""

import asyncio

import pytest

from headrace.client import Cluster, Consumer, Producer, Start
from headrace.client.coordinators import CoordinatorType, find_coordinator
from headrace.client.settings import ClientSettings
from headrace.ids import PartitionIndex, TopicName
from headrace.testing.cluster import TestCluster

TOPIC = TopicName("orders")
SETTINGS = {"min.insync.replicas": "2"}
CLIENT = ClientSettings(request_timeout_ms=2000)
GROUP = "workers"
GROUP_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "offsets.commit.timeout.ms": "500",
}
IMPATIENT = ClientSettings(request_timeout_ms=5000, api_timeout_ms=15_000)
"""Many times what the others need to elect another coordinator."""


def test_a_client_leaves_a_leader_that_is_cut_off() -> None:
    """Its own metadata says that it leads; it acknowledges nothing, and another node knows more."""
    with TestCluster(nodes=3, settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, replicas=3)
        former = leader_as_known_by(cluster, 1)
        bootstrap = cluster.nodes[former].bootstrap

        async def produce() -> None:
            async with Producer(bootstrap, settings=CLIENT) as producer:
                await producer.deliver(TOPIC, "before")
                cluster.isolate(former)
                await producer.deliver(TOPIC, "after")

        cluster.run(produce())
        cluster.heal()
        # Until it hears of its successor, it shows readers what it had.
        cluster.wait_for(lambda: leader_as_known_by(cluster, former) != former, "the next leader")
        assert [record.value for record in cluster.consume(TOPIC)] == [b"before", b"after"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_leaves_a_coordinator_that_is_cut_off(protocol: str) -> None:
    """It can store nothing, and says of itself that it is the coordinator."""
    with TestCluster(nodes=3, settings=GROUP_SETTINGS) as cluster:
        cluster.create_topic(TOPIC, replicas=3)
        cluster.produce(TOPIC, *map(str, range(20)))
        former = cluster.run(find(cluster.bootstrap))

        async def consume() -> None:
            consumer = Consumer(
                # First of all it knows the coordinator, which has the least to do for it.
                cluster.nodes[former].bootstrap,
                IMPATIENT,
                group=GROUP,
                protocol=protocol,
                auto_commit=False,
                reset=Start.BEGINNING,
            )
            async with consumer:
                await consumer.subscribe(TOPIC)
                records = aiter(consumer)
                await anext(records)
                await consumer.commit()
                cluster.isolate(former)
                await anext(records)
                await consumer.commit()

        cluster.run(consume())


def test_a_node_that_the_others_know_no_more_is_not_asked_for_the_coordinator() -> None:
    with TestCluster(nodes=3, settings=GROUP_SETTINGS) as cluster:
        former = cluster.run(find(cluster.bootstrap))

        async def look() -> None:
            async with Cluster(cluster.nodes[former].bootstrap, IMPATIENT) as client:
                for node_id in cluster.nodes:
                    await client.connection(node_id)
                cluster.isolate(former)
                while former in client.view.nodes:
                    client.doubt(former)
                    await client.refresh()
                    await asyncio.sleep(0.01)
                found = await find_coordinator(client, CoordinatorType.GROUP, GROUP, former=former)
                assert found != former

        cluster.run(look())


async def find(bootstrap: str) -> int:
    async with Cluster(bootstrap) as client:
        return await find_coordinator(client, CoordinatorType.GROUP, GROUP)


def leader_as_known_by(cluster: TestCluster, node_id: int) -> int:
    row = cluster.nodes[node_id].node.broker.image.partition(TOPIC, PartitionIndex(0))
    assert row is not None
    return row.leader
