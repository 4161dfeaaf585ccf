"""Who leads when nodes stop, end and come, in a cluster of real nodes."""

import pytest

from headrace.client import Admin, TopicPartition
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, ResourceType
from headrace.testing.cluster import TestCluster

TOPIC, OFFSETS = TopicName("orders"), TopicName("__consumer_offsets")
SLOW = {"broker.session.timeout.ms": "60000", "broker.heartbeat.interval.ms": "200"}
"""A node that is silent is fenced only after the test has failed."""


def image_of(cluster: TestCluster) -> Image:
    return cluster.nodes[cluster.controller].node.broker.image


def rows_of(cluster: TestCluster, name: TopicName = TOPIC) -> list[Partition]:
    topic = image_of(cluster).topic(name)
    return [] if topic is None else list(topic.partitions)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_node_that_stops_hands_over_all_that_it_leads(is_controller: bool) -> None:
    with TestCluster(nodes=3, settings=SLOW) as cluster:
        cluster.create_topic(TOPIC, partitions=6, replicas=3)
        controller = cluster.controller
        node = controller if is_controller else next(each for each in (1, 2) if each != controller)
        assert any(row.leader == node for row in rows_of(cluster))
        cluster.stop(node)
        rows = rows_of(cluster)
        assert all(row.leader in row.isr and row.leader != node for row in rows)
        assert all(node not in row.isr for row in rows)
        cluster.wait_for(
            lambda: all(
                each.is_fenced == (each.broker_id == node) for each in image_of(cluster).brokers()
            ),
            "the node that stopped to be fenced",
        )
        cluster.restart(node)
        cluster.wait_for(
            lambda: not any(each.is_fenced for each in image_of(cluster).brokers()),
            "the node to be back",
        )
        assert all(row.leader != node for row in rows_of(cluster))


def test_a_node_hands_nothing_over_if_that_is_switched_off() -> None:
    with TestCluster(nodes=3, settings={**SLOW, "controlled.shutdown.enable": "false"}) as cluster:
        cluster.create_topic(TOPIC, partitions=6, replicas=3)
        number = next(each for each in (1, 2) if each != cluster.controller)
        stopped = cluster.nodes[number].node
        led = [row.leader == number for row in rows_of(cluster)]
        assert any(led)
        cluster.stop(number)
        topic = stopped.broker.image.topic(TOPIC)
        assert topic is not None
        assert [row.leader == number for row in topic.partitions] == led


def test_others_lead_what_a_killed_node_led_and_go_on_when_it_is_back() -> None:
    with TestCluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, partitions=6, replicas=3)
        node = next(each for each in (1, 2, 3) if each != cluster.controller)
        cluster.kill(node)
        cluster.wait_for(
            lambda: all(node != row.leader and node not in row.isr for row in rows_of(cluster)),
            "others to lead",
        )
        assert all(row.leader in row.isr for row in rows_of(cluster))
        epochs = [row.leader_epoch for row in rows_of(cluster)]
        cluster.restart(node)
        assert [row.leader_epoch for row in rows_of(cluster)] == epochs


def test_preferred_replicas_lead_again_by_themselves() -> None:
    settings = {"leader.imbalance.check.interval.seconds": "1"}
    with TestCluster(nodes=3, settings=settings) as cluster:
        cluster.create_topic(TOPIC, partitions=1, replicas=3)
        (row,) = rows_of(cluster)
        preferred, other = row.replicas[:2]
        topic = image_of(cluster).topic(TOPIC)
        assert topic is not None
        broker = cluster.nodes[cluster.controller]
        change = ChangePartition(topic.topic_id, PartitionIndex(0), leader=other)
        assert broker.run(broker.node.broker.quorum.propose(change))
        cluster.wait_for(
            lambda: rows_of(cluster)[0].leader == preferred, "the preferred replica to lead"
        )
        assert rows_of(cluster)[0].leader_epoch == 2


def test_internal_topics_get_replicas_on_nodes_that_join() -> None:
    settings = {"offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "3"}
    with TestCluster(nodes=1, settings=settings) as cluster:
        cluster.create_topic(OFFSETS, partitions=4)
        assert {row.replicas for row in rows_of(cluster, OFFSETS)} == {(BrokerId(1),)}
        cluster.add()
        cluster.add()
        cluster.wait_for(
            lambda: {len(row.replicas) for row in rows_of(cluster, OFFSETS)} == {3},
            "three replicas of each",
        )
        assert {row.replicas[0] for row in rows_of(cluster, OFFSETS)} == {1}


def test_a_move_to_other_nodes_ends_with_all_records_there() -> None:
    with TestCluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, replicas=1)
        cluster.produce(TOPIC, *(f"record {number}" for number in range(50)))
        (row,) = rows_of(cluster)
        (former,) = row.replicas
        wanted = [each for each in (1, 2, 3) if each != former]
        cluster.run(_move(cluster, wanted))
        cluster.wait_for(lambda: rows_of(cluster)[0].replicas == tuple(wanted), "the move to end")
        assert rows_of(cluster)[0].leader in wanted
        assert [each.value for each in cluster.consume(TOPIC)] == [
            b"record %d" % number for number in range(50)
        ]


def test_a_node_that_is_back_is_in_sync_again_and_internal_topics_have_their_min_isr() -> None:
    state = TopicName("__transaction_state")
    settings = {
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    with TestCluster(nodes=1, settings=settings) as cluster:
        cluster.create_topic(state, partitions=2, configs={"min.insync.replicas": "1"})
        cluster.add()
        cluster.add()
        cluster.wait_for(
            lambda: all(len(row.isr) == 3 for row in rows_of(cluster, state)), "three in sync"
        )
        cluster.wait_for(
            lambda: (
                image_of(cluster).configs(ResourceType.TOPIC, state) == {"min.insync.replicas": "2"}
            ),
            "the min ISR to follow",
        )
        node = next(each for each in (1, 2, 3) if each != cluster.controller)
        cluster.kill(node)
        cluster.wait_for(
            lambda: all(node not in row.isr for row in rows_of(cluster, state)), "it to be out"
        )
        cluster.restart(node)
        cluster.wait_for(
            lambda: all(len(row.isr) == 3 for row in rows_of(cluster, state)), "it to be back"
        )


async def _move(cluster: TestCluster, replicas: list[int]) -> None:
    partition = TopicPartition(TOPIC, 0)
    async with Admin(cluster.bootstrap) as admin:
        assert await admin.alter_reassignments({partition: replicas}) == {partition: None}
