"""A client that knows one node, which is cut off from the others and does not know it."""

from headrace.client import Producer
from headrace.client.settings import ClientSettings
from headrace.ids import PartitionIndex, TopicName
from headrace.testing.cluster import TestCluster

TOPIC = TopicName("orders")
SETTINGS = {"min.insync.replicas": "2"}
CLIENT = ClientSettings(request_timeout_ms=2000)


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


def leader_as_known_by(cluster: TestCluster, node_id: int) -> int:
    row = cluster.nodes[node_id].node.broker.image.partition(TOPIC, PartitionIndex(0))
    assert row is not None
    return row.leader
