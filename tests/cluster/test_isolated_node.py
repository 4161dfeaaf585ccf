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
        row = cluster.nodes[1].node.broker.image.partition(TOPIC, PartitionIndex(0))
        assert row is not None
        bootstrap = cluster.nodes[row.leader].bootstrap

        async def produce() -> None:
            async with Producer(bootstrap, settings=CLIENT) as producer:
                await producer.deliver(TOPIC, "before")
                cluster.isolate(row.leader)
                await producer.deliver(TOPIC, "after")

        cluster.run(produce())
        cluster.heal()
        assert [record.value for record in cluster.consume(TOPIC)] == [b"before", b"after"]
