"""Reassignments: when they are complete, and what they leave."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Slot
from headrace.metadata.state import NO_LEADER
from headrace.replication.moves import change_to, finished
from tests.unit.metadata.clusters import ORDERS, ORDERS_ID, Cluster, assign
from tests.unit.replication.test_elections import cluster_of

FIRST = PartitionIndex(0)


def test_a_move_is_complete_when_all_new_replicas_are_in_sync() -> None:
    cluster = cluster_of(assign(1, 2))
    move(cluster, (3, 4))
    assert finish(cluster) == 0
    change(cluster, isr=(1, 2, 3))
    assert finish(cluster) == 0
    change(cluster, isr=(1, 2, 3, 4))
    assert finish(cluster) == 1
    row = cluster.partition()
    assert (row.replicas, row.isr, row.leader) == ((3, 4), (3, 4), 3)
    assert (row.adding, row.removing, row.leader_epoch) == ((), (), 1)


def test_a_leader_that_stays_goes_on_in_a_new_leader_epoch() -> None:
    cluster = cluster_of(assign(1, 2))
    move(cluster, (3, 1))
    change(cluster, isr=(1, 2, 3))
    assert finish(cluster) == 1
    row = cluster.partition()
    assert (row.replicas, row.isr, row.leader, row.leader_epoch) == ((3, 1), (1, 3), 1, 1)


def test_more_replicas_begin_no_leader_epoch() -> None:
    cluster = cluster_of(assign(1))
    move(cluster, (1, 2))
    change(cluster, isr=(1, 2))
    assert finish(cluster) == 1
    row = cluster.partition()
    assert (row.replicas, row.adding, row.leader_epoch) == ((1, 2), (), 0)


def test_fewer_replicas_are_there_at_once_if_those_that_stay_are_in_sync() -> None:
    cluster = cluster_of(assign(1, 2, 3))
    move(cluster, (2,))
    assert finish(cluster) == 1
    assert (cluster.partition().replicas, cluster.partition().leader) == ((2,), 2)


def test_without_the_last_one_in_sync_a_move_waits() -> None:
    cluster = cluster_of(assign(1, 2, 3, isr=(1,)))
    move(cluster, (2, 3))
    assert finish(cluster) == 0


def test_a_move_to_brokers_that_are_down_now_leaves_no_leader() -> None:
    cluster = cluster_of(assign(1, 2), fenced=(3,))
    move(cluster, (3,))
    change(cluster, isr=(1, 2, 3))
    assert finish(cluster) == 1
    assert (cluster.partition().leader, cluster.partition().isr) == (NO_LEADER, (3,))


@given(st.data())
def test_a_move_ends_once_and_with_all_that_was_wanted(data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)
    cluster = cluster_of(assign(*data.draw(numbers)), fenced=data.draw(st.sets(st.integers(0, 5))))
    wanted = data.draw(numbers)
    move(cluster, tuple(wanted))
    row = cluster.partition()
    joined = data.draw(st.lists(st.sampled_from(row.replicas), unique=True))
    change(cluster, isr=tuple(dict.fromkeys((*row.isr, *joined))))
    in_sync = cluster.partition().isr
    count = finish(cluster)
    row = cluster.partition()
    if set(wanted) <= set(in_sync):
        assert row.replicas == tuple(wanted)
        assert not row.adding + row.removing
        assert set(row.isr) == set(wanted)
        assert list(cluster.image.moving()) == []
    else:
        assert count == 0
    assert row.leader in (NO_LEADER, *row.isr)
    assert finish(cluster) == 0


def move(cluster: Cluster, wanted: tuple[int, ...]) -> None:
    """Begin a reassignment, as AlterPartitionReassignments does."""
    old = cluster.partition().replicas
    removing = tuple(each for each in old if each not in wanted)
    change = ChangePartition(
        ORDERS_ID,
        FIRST,
        replicas=brokers(wanted) + removing,
        adding=brokers(each for each in wanted if each not in old),
        removing=removing,
    )
    cluster.propose(change)


def change(cluster: Cluster, *, isr: tuple[int, ...]) -> None:
    cluster.propose(ChangePartition(ORDERS_ID, FIRST, isr=brokers(isr)))


def finish(cluster: Cluster) -> int:
    """Complete what is complete; return how many partitions that were."""
    wanted = finished(cluster.image, cluster.partition())
    if wanted is None:
        return 0
    topic = cluster.image.topic(ORDERS)
    assert topic is not None
    change = change_to(Slot(topic, FIRST), wanted)
    assert change is not None
    cluster.propose(change)
    return 1


def brokers(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in numbers)
