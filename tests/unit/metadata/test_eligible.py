"""Eligible leader replicas: who is in the ELR after each change, and that every node agrees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.ddl import Assignment, ChangePartition, CreateTopic, DeleteTopic, SetConfigs
from headrace.metadata.eligible import min_insync_replicas_of, with_eligible
from headrace.metadata.entries import RemoveMember, RoutingChange
from headrace.metadata.events import ReplicasChanged
from headrace.metadata.state import NO_LEADER, Partition, ResourceType
from tests.unit.metadata.clusters import (
    NOW_MS,
    ORDERS,
    ORDERS_ID,
    Cluster,
    assign,
    copy_of,
    with_orders,
)

FIRST = PartitionIndex(0)
MIN_ISR = "min.insync.replicas"


def test_who_leaves_an_isr_that_is_too_small_is_eligible() -> None:
    cluster = with_min_isr("2")
    change(cluster, isr=(1, 2))
    assert elr(cluster) == ()
    change(cluster, isr=(1,))
    assert elr(cluster) == (2,)


def test_the_elr_is_empty_as_soon_as_the_isr_is_large_enough() -> None:
    cluster = with_min_isr("2")
    change(cluster, isr=(1,))
    assert elr(cluster) == (2, 3)
    change(cluster, isr=(1, 3))
    assert elr(cluster) == ()


def test_with_a_min_isr_of_one_nobody_is_eligible() -> None:
    cluster = with_orders()
    change(cluster, isr=(1,))
    assert elr(cluster) == ()


def test_an_eligible_leader_is_the_isr_and_the_former_isr_is_eligible() -> None:
    cluster = with_min_isr("2")
    change(cluster, isr=(1,))
    change(cluster, leader=NO_LEADER)
    assert (cluster.partition().isr, elr(cluster)) == ((1,), (2, 3))
    change(cluster, leader=2, isr=(2,))
    assert (cluster.partition().isr, elr(cluster)) == ((2,), (1, 3))


def test_an_unclean_leader_leaves_nobody_eligible() -> None:
    cluster = with_min_isr("2", assign(1, 2, 3, isr=(1, 2)))
    change(cluster, isr=(1,))
    change(cluster, leader=3, isr=(3,), is_recovering=True)
    assert elr(cluster) == ()


def test_who_lost_records_is_no_candidate() -> None:
    cluster = with_min_isr("3")
    change(cluster, isr=(1,), elr=(3,))
    assert elr(cluster) == (3,)


def test_candidates_count_only_while_the_isr_is_too_small() -> None:
    """The plan was made with another min.insync.replicas than it is applied with."""
    cluster = with_orders()
    change(cluster, isr=(1,), elr=(2, 3))
    assert elr(cluster) == ()


def test_the_last_leader_is_known_until_there_is_another() -> None:
    cluster = with_orders()
    change(cluster, leader=2)
    assert cluster.partition().last_known_elr == ()
    change(cluster, leader=NO_LEADER)
    assert cluster.partition().last_known_elr == (2,)
    change(cluster, isr=(1, 2))
    assert cluster.partition().last_known_elr == (2,)
    change(cluster, leader=1)
    assert cluster.partition().last_known_elr == ()


def test_more_than_all_replicas_are_never_needed() -> None:
    cluster = with_min_isr("2", assign(1, 2))
    change(cluster, isr=(1,))
    assert elr(cluster) == (2,)
    cluster.propose(RoutingChange(RemoveMember(1, 2)))
    assert (cluster.partition().replicas, elr(cluster)) == ((1,), ())


@pytest.mark.parametrize("value", ["1", "3", None])
def test_another_min_isr_of_the_topic_empties_its_elrs(value: str | None) -> None:
    cluster = with_min_isr("2", assign(1, 2, 3), assign(1, 2, 3))
    change(cluster, isr=(1,))
    before = cluster.partition()
    outcome = cluster.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {MIN_ISR: value}))
    assert outcome.events[1:] == (ReplicasChanged(ORDERS, ORDERS_ID, FIRST),)
    after = cluster.partition()
    assert (after.elr, after.isr, after.leader_epoch) == ((), before.isr, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1


def test_the_same_min_isr_and_other_configs_leave_the_elr() -> None:
    cluster = with_min_isr("2")
    change(cluster, isr=(1,))
    cluster.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {MIN_ISR: "2", "a": "b"}))
    assert elr(cluster) == (2, 3)


def test_another_min_isr_of_the_cluster_empties_elrs_of_topics_without_their_own() -> None:
    cluster = with_min_isr("2")
    other, other_id = TopicName("other"), TopicId(ORDERS_ID[::-1])
    cluster.propose(SetConfigs(ResourceType.BROKER, "", {MIN_ISR: "2"}))
    cluster.propose(CreateTopic(other, other_id, (assign(1, 2),)))
    change(cluster, isr=(1,))
    cluster.propose(ChangePartition(other_id, FIRST, isr=(BrokerId(1),)))
    assert cluster.partition(topic=other).elr == (2,)
    cluster.propose(SetConfigs(ResourceType.BROKER, "3", {MIN_ISR: "3"}))
    assert cluster.partition(topic=other).elr == (2,)
    cluster.propose(SetConfigs(ResourceType.BROKER, "", {MIN_ISR: "3"}))
    assert cluster.partition(topic=other).elr == ()
    assert elr(cluster) == (2, 3)


def test_a_deleted_topic_has_no_elr_to_empty() -> None:
    cluster = with_min_isr("2")
    change(cluster, isr=(1,))
    cluster.propose(DeleteTopic(ORDERS_ID, NOW_MS))
    assert cluster.image.topics_with_elr() == []
    assert cluster.propose(SetConfigs(ResourceType.BROKER, "", {MIN_ISR: "3"})).events[1:] == ()


def test_a_snapshot_keeps_elrs_and_what_empties_them() -> None:
    cluster = with_min_isr("2")
    change(cluster, isr=(1,))
    change(cluster, leader=NO_LEADER)
    loaded = Cluster(copy_of(cluster.image))
    assert loaded.partition() == cluster.partition()
    assert loaded.partition().last_known_elr == (1,)
    loaded.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {MIN_ISR: "1"}))
    assert elr(loaded) == ()


def test_what_is_no_number_counts_as_one() -> None:
    cluster = with_min_isr("two")
    assert min_insync_replicas_of(cluster.image, ORDERS) == 1


@given(st.data())
def test_an_elr_has_only_who_was_complete_before_and_only_while_the_isr_is_too_small(
    data: st.DataObject,
) -> None:
    replicas = brokers(*range(data.draw(st.integers(1, 5))))
    some = st.lists(st.sampled_from(replicas), min_size=1, unique=True).map(tuple)
    isr = data.draw(some)
    elr = tuple(each for each in data.draw(some) if each not in isr)
    leaders = st.sampled_from((NO_LEADER, *replicas))
    former = Partition(replicas, isr, data.draw(leaders), 0, elr=elr)
    isr, leader, min_isr = data.draw(some), data.draw(leaders), data.draw(st.integers(1, 6))
    changed = with_eligible(former, Partition(replicas, isr, leader, 0), min_isr)
    assert set(changed.elr) <= {*former.isr, *former.elr} - {*changed.isr}
    assert not changed.elr or len(changed.isr) < min(min_isr, len(replicas))
    if leader in (NO_LEADER, former.leader) and len(isr) < min(min_isr, len(replicas)):
        assert {*changed.isr, *changed.elr} >= {*former.isr, *former.elr}
    again = with_eligible(changed, changed, min_isr)
    assert again == changed


def with_min_isr(value: str, *assignments: Assignment) -> Cluster:
    cluster = with_orders(*assignments)
    cluster.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {MIN_ISR: value}))
    return cluster


def change(
    cluster: Cluster,
    *,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    elr: tuple[int, ...] | None = None,
    is_recovering: bool | None = None,
) -> None:
    cluster.propose(
        ChangePartition(
            ORDERS_ID,
            FIRST,
            leader=leader,
            isr=None if isr is None else brokers(*isr),
            elr=None if elr is None else brokers(*elr),
            is_recovering=is_recovering,
        )
    )


def elr(cluster: Cluster) -> tuple[BrokerId, ...]:
    return cluster.partition().elr


def brokers(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in numbers)
