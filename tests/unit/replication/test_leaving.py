"""What a node that is to leave the cluster leads, and what it gets: as little as can be."""

import pytest
from msgspec.structs import replace

from headrace.errors import KafkaError
from headrace.ids import BrokerId, TopicName
from headrace.metadata.ddl import Assignment, CancelDecommission, ChangePartition
from headrace.metadata.entries import (
    FinishDecommission,
    RemoveMember,
    RoutingChange,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.state import METADATA_GROUP, NodeState
from headrace.replication.elections import plan_fencing, plan_handover, plan_preferred
from headrace.replication.raising import Wanted, plan_replicas
from headrace.topics.creation import candidates
from headrace.topics.validation import check_replicas
from tests.unit.metadata.clusters import ORDERS, Cluster, assign, create_orders, join, with_nodes

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def leaving(*assignments: Assignment) -> Cluster:
    """Return a cluster of three nodes, of which the first is to leave."""
    cluster = with_nodes(1, 2, 3)
    for broker in list(cluster.image.brokers()):
        cluster.image.put_broker(replace(broker, is_fenced=False))
    cluster.propose(create_orders(*assignments), TopologyChange(StartDecommission(1)))
    return cluster


def hand_over(cluster: Cluster) -> list[ChangePartition]:
    changes = list(plan_handover(cluster.image, cluster.image.partitions_of(ONE)))
    found = [each for each in changes if each is not None]
    cluster.propose(*found)
    return found


def test_others_lead_what_they_are_in_sync_with_and_the_isr_stays() -> None:
    cluster = leaving(assign(1, 2, 3), assign(1, 2, 3, isr=[1]), assign(2, 1))
    assert len(hand_over(cluster)) == 1
    assert (cluster.partition(0).leader, cluster.partition(0).isr) == (TWO, (ONE, TWO, THREE))
    assert cluster.partition(1).leader == ONE
    assert hand_over(cluster) == []


def test_it_does_not_lead_again_because_it_is_preferred() -> None:
    cluster = leaving(assign(1, 2))
    hand_over(cluster)
    assert [each for each in plan_preferred(cluster.image) if each is not None] == []


def test_it_leads_if_nobody_else_is_left() -> None:
    cluster = leaving(assign(2, 1), assign(2, 1, 3))
    changes = [each for each in plan_fencing(cluster.image, TWO) if each is not None]
    assert [each.leader for each in changes] == [ONE, THREE]


def test_it_gets_no_new_replicas() -> None:
    cluster = leaving(assign(2))
    image = cluster.image
    assert ONE not in {each.broker_id for each in candidates(image)}
    wanted = {TopicName(ORDERS): Wanted(10)}
    (change,) = plan_replicas(image, wanted)
    assert change is not None
    assert change.replicas is not None
    assert ONE not in change.replicas
    with pytest.raises(KafkaError, match="--abort"):
        check_replicas((2, 1), image)
    check_replicas((2, 1), image, present=(ONE, TWO))


def test_a_node_that_stays_after_all_is_what_it_was() -> None:
    cluster = leaving(assign(2))
    cluster.propose(CancelDecommission(1))
    assert cluster.image.node(1).state is NodeState.ACTIVE  # type: ignore[union-attr]
    assert not cluster.propose(CancelDecommission(1)).events
    cluster.propose(join(4), TopologyChange(StartDecommission(4)), CancelDecommission(4))
    assert cluster.image.node(4).state is NodeState.LEARNER  # type: ignore[union-attr]


def test_it_is_too_late_to_stay_once_it_is_decommissioned() -> None:
    cluster = leaving(assign(2))
    cluster.propose(
        RoutingChange(RemoveMember(METADATA_GROUP, 1)), TopologyChange(FinishDecommission(1))
    )
    assert "too late" in cluster.refuses(CancelDecommission(1)).message
    assert "no node 9" in cluster.refuses(CancelDecommission(9)).message
