"""Internal topics get the replicas that they are configured to have, when there are brokers."""

from msgspec.structs import replace

from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition, SetConfigs
from headrace.metadata.state import Node, NodeState, ResourceType
from headrace.replication.raising import Wanted, plan_min_isr, plan_replicas
from tests.unit.metadata.clusters import ORDERS, ORDERS_ID, Cluster, assign
from tests.unit.replication.test_elections import cluster_of

WANTED = {ORDERS: Wanted(replicas=3, min_isr=2)}
ALL_BUT = frozenset(range(10)).difference


def test_partitions_get_more_replicas_behind_those_they_have() -> None:
    cluster = cluster_of(assign(1), assign(2), assign(3), fenced=ALL_BUT({1, 2, 3}))
    assert raise_replicas(cluster) == 3
    for index, first in enumerate((1, 2, 3)):
        row = cluster.partition(index)
        assert (row.replicas[0], set(row.replicas)) == (first, {1, 2, 3})
        assert (row.isr, row.leader, row.leader_epoch) == ((first,), first, 0)
    assert raise_replicas(cluster) == 0


def test_there_are_as_many_as_brokers_are_up_and_more_when_more_are() -> None:
    cluster = cluster_of(assign(1), fenced=ALL_BUT({1, 2}))
    assert raise_replicas(cluster) == 1
    assert cluster.partition().replicas == (1, 2)
    row = cluster.image.broker(BrokerId(7))
    assert row is not None
    cluster.image.put_broker(replace(row, is_fenced=False))
    assert raise_replicas(cluster) == 1
    assert cluster.partition().replicas == (1, 2, 7)


def test_other_topics_and_partitions_on_the_move_are_left_alone() -> None:
    cluster = cluster_of(assign(1, 2), assign(1))
    first = PartitionIndex(0)
    cluster.propose(ChangePartition(ORDERS_ID, first, removing=(BrokerId(2),)))
    assert raise_replicas(cluster) == 1
    assert cluster.partition().replicas == (1, 2)
    assert [each for each in plan_replicas(cluster.image, {}) if each is not None] == []


def test_replicas_go_to_other_hosts_and_racks_first_and_then_where_there_are_fewest() -> None:
    cluster = cluster_of(assign(1), assign(4), fenced=ALL_BUT({1, 2, 3, 4, 5}))
    for number, host, rack in ((1, "a", "x"), (2, "a", "y"), (3, "b", "x"), (5, "c", "z")):
        place(cluster, number, host, rack)
    place(cluster, 4, "b", "x")
    assert raise_replicas(cluster) == 2
    assert cluster.partition(0).replicas == (1, 5, 3)
    assert cluster.partition(1).replicas == (4, 2, 5)


def test_the_min_isr_follows_when_the_isrs_allow_it() -> None:
    cluster = cluster_of(assign(1, 2, 3, isr=(1,)), assign(1, 2, 3))
    assert raise_min_isr(cluster) == 0
    join = ChangePartition(ORDERS_ID, PartitionIndex(0), isr=(BrokerId(1), BrokerId(3)))
    cluster.propose(join)
    assert raise_min_isr(cluster) == 1
    configs = cluster.image.configs(ResourceType.TOPIC, ORDERS)
    assert configs == {"min.insync.replicas": "2"}
    assert raise_min_isr(cluster) == 0


def test_the_min_isr_is_not_above_the_replicas_and_is_never_lowered() -> None:
    assert raise_min_isr(cluster_of(assign(1), assign(1, 2))) == 0
    assert raise_min_isr(cluster_of(assign(1, 2))) == 1
    cluster = cluster_of(assign(1, 2, 3))
    cluster.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {"min.insync.replicas": "3"}))
    assert raise_min_isr(cluster) == 0


def raise_replicas(cluster: Cluster) -> int:
    changes = [each for each in plan_replicas(cluster.image, WANTED) if each is not None]
    cluster.propose(*changes)
    return len(changes)


def raise_min_isr(cluster: Cluster) -> int:
    changes = [each for each in plan_min_isr(cluster.image, WANTED) if each is not None]
    cluster.propose(*changes)
    return len(changes)


def place(cluster: Cluster, number: int, host: str, rack: str) -> None:
    row = cluster.image.broker(BrokerId(number))
    assert row is not None
    cluster.image.put_broker(replace(row, rack=rack))
    cluster.image.state.nodes[number] = Node(number, f"{host}:9093", NodeState.ACTIVE)
