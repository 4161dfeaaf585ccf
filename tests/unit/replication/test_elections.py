"""Elections, planned from images that hypothesis makes, and the cases worth a name."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.ddl import (
    Assignment,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    RegisterBroker,
    SetConfigs,
)
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition, ResourceType
from headrace.replication.elections import (
    Changes,
    is_active,
    plan_fencing,
    plan_preferred,
    plan_registration,
    plan_unclean,
    plan_unfencing,
)
from tests.unit.metadata.clusters import ORDERS_ID, Cluster, assign, copy_of, create_orders

BROKERS = tuple(map(BrokerId, range(5)))
ONE, TWO, THREE = BROKERS[1:4]
Plan = Callable[[Image], Changes]


def changes_of(plan: Changes) -> list[ChangePartition]:
    """Return what is to change, without the partitions that stay as they are."""
    return [each for each in plan if each is not None]


def cluster_of(*assignments: Assignment, fenced: Iterable[int] = ()) -> Cluster:
    cluster = Cluster()
    for broker in list(cluster.image.brokers()):
        is_fenced = broker.broker_id in fenced
        cluster.image.put_broker(replace(broker, is_fenced=is_fenced))
    cluster.propose(create_orders(*assignments))
    return cluster


def fence(cluster: Cluster, *brokers: BrokerId) -> list[ChangePartition]:
    changes = changes_of(plan_fencing(cluster.image, *brokers))
    cluster.propose(*(ChangeBroker(each, 0, is_fenced=True) for each in brokers), *changes)
    return changes


def unfence(cluster: Cluster, broker: BrokerId) -> list[ChangePartition]:
    changes = changes_of(plan_unfencing(cluster.image, broker))
    row = cluster.image.broker(broker)
    assert row is not None
    cluster.propose(ChangeBroker(broker, row.broker_epoch, is_fenced=False), *changes)
    return changes


def register(cluster: Cluster, broker: BrokerId, *, was_clean: bool) -> list[ChangePartition]:
    changes = changes_of(plan_registration(cluster.image, broker, was_clean=was_clean))
    row = cluster.image.broker(broker)
    assert row is not None
    cluster.propose(
        ChangeBroker(broker, row.broker_epoch, is_fenced=True),
        RegisterBroker(broker, row.broker_epoch.to_bytes(16, signed=True, byteorder="little"), ()),
        *changes,
    )
    return changes


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Any image: brokers in any state, partitions led by anybody of their ISR or by nobody."""
    cluster = Cluster()
    for broker in BROKERS:
        row = cluster.image.broker(broker)
        assert row is not None
        is_fenced, is_stopping = draw(st.booleans()), draw(st.integers(0, 5)) == 0
        cluster.image.put_broker(replace(row, is_fenced=is_fenced, is_shutting_down=is_stopping))
    for number in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(assignments(), min_size=1, max_size=4))
        name = TopicName(f"topic-{number}")
        cluster.propose(CreateTopic(name, TopicId(bytes([number + 1] * 16)), tuple(rows)))
    min_isr = str(draw(st.integers(1, 3)))
    cluster.propose(SetConfigs(ResourceType.BROKER, "", {"min.insync.replicas": min_isr}))
    for topic in cluster.image.topics():
        for index, former in enumerate(topic.partitions):
            # Some shrink, and who leaves may be eligible then.
            isr = tuple(draw(st.lists(st.sampled_from(former.isr), min_size=1, unique=True)))
            if former.leader in (NO_LEADER, *isr):
                change = ChangePartition(topic.topic_id, PartitionIndex(index), isr=isr)
                cluster.propose(change)
    return cluster


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    replicas = draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    return Assignment(tuple(replicas), tuple(isr), leader)


def led_by(cluster: Cluster, index: int = 0) -> tuple[int, tuple[int, ...]]:
    row = cluster.partition(index)
    return row.leader, row.isr


def test_the_preferred_of_the_isr_that_lives_leads_after_the_leader_is_fenced() -> None:
    cluster = cluster_of(assign(1, 2, 3), assign(1, 4, 2, 3, isr=(1, 3, 2)), fenced=(4,))
    (first, second) = fence(cluster, ONE)
    assert led_by(cluster, 0) == (2, (2, 3))
    assert led_by(cluster, 1) == (2, (3, 2))
    assert (first.expected_partition_epoch, second.expected_partition_epoch) == (0, 0)
    assert cluster.partition().leader_epoch == 1


def test_a_follower_leaves_the_isr_without_a_new_leader_epoch() -> None:
    cluster = cluster_of(assign(1, 2, 3))
    fence(cluster, TWO)
    assert led_by(cluster) == (1, (1, 3))
    assert cluster.partition().leader_epoch == 0


def test_a_leader_that_lives_stays_even_if_it_is_not_the_preferred_one() -> None:
    cluster = cluster_of(assign(1, 2, 3, leader=2))
    fence(cluster, THREE)
    assert led_by(cluster) == (2, (1, 2))
    unfence(cluster, THREE)
    assert cluster.partition().leader_epoch == 0


def test_the_last_of_the_isr_stays_in_it_and_leads_when_it_is_back() -> None:
    cluster = cluster_of(assign(1, 2, isr=(1,)))
    fence(cluster, ONE)
    assert led_by(cluster) == (NO_LEADER, (1,))
    assert unfence(cluster, TWO) == []
    unfence(cluster, ONE)
    assert led_by(cluster) == (1, (1,))
    assert cluster.partition().leader_epoch == 2


def test_of_brokers_that_go_together_the_first_that_is_back_leads_alone() -> None:
    cluster = cluster_of(assign(1, 2, 3), fenced=(3,))
    fence(cluster, ONE, TWO)
    assert led_by(cluster) == (NO_LEADER, (1, 2, 3))
    unfence(cluster, TWO)
    assert led_by(cluster) == (2, (2,))


def test_brokers_that_go_together_do_not_elect_each_other() -> None:
    cluster = cluster_of(assign(1, 2, 3))
    assert len(fence(cluster, ONE, TWO)) == 1
    assert led_by(cluster) == (3, (3,))


def test_a_broker_that_shuts_down_is_not_elected() -> None:
    cluster = cluster_of(assign(1, 2, 3))
    cluster.propose(ChangeBroker(TWO, 0, is_shutting_down=True))
    fence(cluster, ONE)
    assert led_by(cluster) == (3, (3,))


def test_what_a_crashed_controller_left_undone_is_planned_again() -> None:
    cluster = cluster_of(assign(1, 2), assign(1, 3), assign(2, 1))
    undone = changes_of(plan_fencing(cluster.image, ONE))
    cluster.propose(ChangeBroker(ONE, 0, is_fenced=True), undone[0])
    fenced = [each.broker_id for each in cluster.image.brokers() if each.is_fenced]
    assert changes_of(plan_fencing(cluster.image, *fenced)) == undone[1:]


def test_a_plan_goes_on_while_its_changes_are_applied_and_topics_deleted() -> None:
    cluster = cluster_of(*(assign(1, 2) for _ in range(4)))
    plan = plan_fencing(cluster.image, ONE)
    change = next(plan)
    assert change is not None
    cluster.propose(change)
    topic = cluster.image.topic(TopicName("orders"))
    assert topic is not None
    cluster.image.remove_topic(topic)
    assert list(plan) == []


def test_a_broker_that_lost_its_end_leaves_an_isr_even_to_a_fenced_one() -> None:
    cluster = cluster_of(assign(1, 2), fenced=(2,))
    fence(cluster, ONE)
    assert led_by(cluster) == (NO_LEADER, (1, 2))
    register(cluster, ONE, was_clean=False)
    assert unfence(cluster, ONE) == []
    assert led_by(cluster) == (NO_LEADER, (2,))
    register(cluster, TWO, was_clean=False)
    unfence(cluster, TWO)
    assert led_by(cluster) == (2, (2,))


def test_a_lone_broker_that_lost_its_end_leads_in_a_new_epoch() -> None:
    cluster = cluster_of(assign(1))
    register(cluster, ONE, was_clean=False)
    assert led_by(cluster) == (NO_LEADER, (1,))
    unfence(cluster, ONE)
    assert led_by(cluster) == (1, (1,))
    assert cluster.partition().leader_epoch == 2


def test_a_lone_broker_that_stopped_cleanly_goes_on_leading() -> None:
    cluster = cluster_of(assign(1), assign(1, 2), assign(1, 3, isr=(1,)), assign(2, 1))
    register(cluster, ONE, was_clean=True)
    assert [led_by(cluster, each) for each in range(4)] == [
        (1, (1,)),
        (2, (2,)),
        (1, (1,)),
        (2, (2,)),
    ]
    assert unfence(cluster, ONE) == []
    assert cluster.partition(0).partition_epoch == 0


def with_elr(
    *assignments: Assignment, isr: tuple[BrokerId, ...] = (ONE,), fenced: Iterable[int] = ()
) -> Cluster:
    """Return a cluster that needs two in sync, whose partitions have this ISR and an ELR."""
    cluster = cluster_of(*assignments, fenced=fenced)
    cluster.propose(SetConfigs(ResourceType.BROKER, "", {"min.insync.replicas": "2"}))
    for index in range(len(assignments)):
        cluster.propose(ChangePartition(ORDERS_ID, PartitionIndex(index), isr=isr))
    return cluster


def test_an_eligible_replica_leads_if_nobody_of_the_isr_can() -> None:
    cluster = with_elr(assign(1, 2, 3))
    assert cluster.partition().elr == (2, 3)
    fence(cluster, ONE)
    assert led_by(cluster) == (2, (2,))
    assert cluster.partition().elr == (1, 3)


def test_an_eligible_replica_leads_when_it_comes_back() -> None:
    cluster = with_elr(assign(1, 2, 3), fenced=(2, 3))
    fence(cluster, ONE)
    assert led_by(cluster) == (NO_LEADER, (1,))
    assert cluster.partition().last_known_elr == (1,)
    unfence(cluster, THREE)
    assert led_by(cluster) == (3, (3,))
    assert cluster.partition().elr == (1, 2)


def test_an_eligible_replica_that_lost_its_end_is_not_eligible_any_more() -> None:
    cluster = with_elr(assign(1, 2, 3))
    register(cluster, TWO, was_clean=False)
    assert led_by(cluster) == (1, (1,))
    assert cluster.partition().elr == (3,)
    register(cluster, THREE, was_clean=True)
    assert cluster.partition().elr == (3,)


def test_the_elr_is_the_isr_if_all_of_that_lost_their_end() -> None:
    cluster = with_elr(assign(1, 2, 3), fenced=(2, 3))
    register(cluster, ONE, was_clean=False)
    assert led_by(cluster) == (NO_LEADER, (2, 3))
    assert cluster.partition().elr == ()
    assert unfence(cluster, ONE) == []
    unfence(cluster, THREE)
    assert led_by(cluster) == (3, (3,))


def test_an_unclean_leader_needs_leave_and_is_the_last_choice() -> None:
    cluster = cluster_of(assign(1, 2, 3, isr=(1,)), assign(1, 2, isr=(1, 2)))
    fence(cluster, ONE)
    assert [led_by(cluster, each) for each in (0, 1)] == [(NO_LEADER, (1,)), (2, (2,))]
    assert changes_of(plan_unclean(cluster.image, lambda topic: topic != "orders")) == []
    (change,) = changes_of(plan_unclean(cluster.image, lambda topic: topic == "orders"))
    cluster.propose(change)
    assert led_by(cluster) == (2, (2,))
    assert changes_of(plan_unclean(cluster.image, lambda topic: True)) == []


def test_with_leave_an_unclean_leader_is_elected_at_once() -> None:
    cluster = cluster_of(assign(1, 2, isr=(1,)))
    (change,) = changes_of(plan_fencing(cluster.image, ONE, allows_unclean=lambda topic: True))
    assert (change.leader, change.isr) == (2, (2,))


def test_a_replica_that_is_being_added_is_the_last_to_lead_uncleanly() -> None:
    cluster = cluster_of(assign(3, 1, 2, isr=(1,), leader=1))
    cluster.propose(ChangePartition(ORDERS_ID, PartitionIndex(0), adding=(THREE,)))
    (change,) = changes_of(plan_fencing(cluster.image, ONE, allows_unclean=lambda topic: True))
    assert change.leader == 2


def test_preferred_replicas_lead_again_if_they_are_in_sync_and_up() -> None:
    rows = (
        assign(1, 2, leader=2),
        assign(1, 2, isr=(2,), leader=2),
        assign(3, 2, leader=2),
        assign(2, 1),
    )
    cluster = cluster_of(*rows, fenced=(3,))
    (change,) = changes_of(plan_preferred(cluster.image))
    assert (change.partition, change.leader, change.isr) == (0, 1, None)
    cluster.propose(change)
    assert changes_of(plan_preferred(cluster.image)) == []
    assert cluster.partition().leader_epoch == 1


@pytest.mark.slow
@given(clusters(), st.booleans())
def test_only_with_leave_does_anybody_lead_who_may_miss_records(
    cluster: Cluster, is_allowed: bool
) -> None:
    before = rows(copy_of(cluster.image))
    changes = changes_of(plan_unclean(cluster.image, lambda topic: is_allowed))
    cluster.propose(*changes)
    for place, row in rows(cluster.image).items():
        was = before[place]
        if was.leader != NO_LEADER:
            assert row == was
        elif row.leader not in (NO_LEADER, *was.isr, *was.elr):
            assert is_allowed
            assert (row.isr, row.elr) == ((row.leader,), ())
            assert not any(is_active(cluster.image, each) for each in was.isr + was.elr)
        elif row.leader == NO_LEADER:
            assert not is_allowed or not any(
                is_active(cluster.image, each) for each in row.replicas
            )
    assert changes_of(plan_unclean(cluster.image, lambda topic: is_allowed)) == []


@pytest.mark.slow
@given(clusters())
def test_preferred_leaders_are_of_the_isr_and_nothing_else_changes(cluster: Cluster) -> None:
    before = rows(copy_of(cluster.image))
    cluster.propose(*changes_of(plan_preferred(cluster.image)))
    for place, row in rows(cluster.image).items():
        was = before[place]
        if row.leader != was.leader:
            assert row.leader == was.replicas[0]
            assert row.leader in was.isr
            assert is_active(cluster.image, row.leader)
        elif row.leader != was.replicas[0]:
            assert row == was
    assert changes_of(plan_preferred(cluster.image)) == []


def test_nothing_is_planned_for_a_broker_that_is_not_registered() -> None:
    cluster = cluster_of(assign(1))
    ghost = BrokerId(77)
    assert changes_of(plan_fencing(cluster.image, ghost)) == []
    assert changes_of(plan_unfencing(cluster.image, ghost)) == []
    assert changes_of(plan_registration(cluster.image, ghost, was_clean=False)) == []


def rows(image: Image) -> dict[tuple[TopicId, int], Partition]:
    return {
        (topic.topic_id, index): row
        for topic in image.topics()
        for index, row in enumerate(topic.partitions)
    }


def check_plan(before: Image, changes: list[ChangePartition], plan: Plan) -> None:
    """What holds of every plan: equal for equal images, and one change per partition."""
    assert changes_of(plan(copy_of(before))) == changes
    places = [(each.topic_id, each.partition) for each in changes]
    assert len(set(places)) == len(places)
    for change in changes:
        row = rows(before)[change.topic_id, change.partition]
        assert change.expected_partition_epoch == row.partition_epoch
        assert (change.leader, change.isr, change.elr) != (None, None, None)


def check_rows(before: Image, after: Image, brokers: Iterable[BrokerId]) -> None:
    """What holds of the partitions of brokers that have just been planned."""
    former = rows(before)
    for place, row in rows(after).items():
        was = former[place]
        assert row.isr
        assert set(row.isr) <= {*was.isr, *was.elr}
        assert set(row.elr) <= {*was.isr, *was.elr}
        assert row.leader == NO_LEADER or row.leader in row.isr
        assert row.leader_epoch - was.leader_epoch == (row.leader != was.leader)
        if was.leader in row.isr and is_active(after, was.leader):
            assert row.leader == was.leader
        if not set(row.replicas).intersection(brokers):
            assert row == was


def check_are_led(image: Image, brokers: Iterable[BrokerId]) -> None:
    """With a leader all of the ISR live; without one nobody of it does."""
    for broker in brokers:
        for topic, index in image.partitions_of(broker):
            row = topic.partitions[index]
            is_led = row.leader != NO_LEADER
            assert all(is_active(image, each) is is_led for each in row.isr)
            assert is_led or not any(is_active(image, each) for each in row.elr)
            if is_led:
                assert is_active(image, row.leader)


@given(clusters(), st.sets(st.sampled_from(BROKERS), min_size=1))
def test_fencing_leaves_every_partition_with_a_live_leader_or_its_whole_isr(
    cluster: Cluster, gone: set[BrokerId]
) -> None:
    brokers = sorted(gone)
    before = copy_of(cluster.image)
    changes = fence(cluster, *brokers)
    check_plan(before, changes, lambda image: plan_fencing(image, *brokers))
    check_rows(before, cluster.image, brokers)
    check_are_led(cluster.image, brokers)
    assert changes_of(plan_fencing(cluster.image, *brokers)) == []


@given(clusters(), st.sampled_from(BROKERS))
def test_unfencing_gives_a_leader_to_all_that_the_broker_may_lead(
    cluster: Cluster, broker: BrokerId
) -> None:
    cluster.propose(ChangeBroker(broker, 0, is_shutting_down=False))
    before = copy_of(cluster.image)
    changes = unfence(cluster, broker)
    check_plan(before, changes, lambda image: plan_unfencing(image, broker))
    check_rows(before, cluster.image, [broker])
    check_are_led(cluster.image, [broker])
    assert changes_of(plan_unfencing(cluster.image, broker)) == []


@given(clusters(), st.sampled_from(BROKERS), st.booleans())
def test_registering_makes_a_broker_lead_only_what_nobody_else_can(
    cluster: Cluster, broker: BrokerId, was_clean: bool
) -> None:
    before = copy_of(cluster.image)
    changes = register(cluster, broker, was_clean=was_clean)
    check_plan(before, changes, lambda image: plan_registration(image, broker, was_clean=was_clean))
    check_rows(before, cluster.image, [broker])
    for topic, index in cluster.image.partitions_of(broker):
        row = topic.partitions[index]
        was = rows(before)[topic.topic_id, index]
        others = [each for each in was.isr + was.elr if each != broker]
        can_lead = [each for each in others if is_active(cluster.image, each)]
        if can_lead:
            assert row.leader in can_lead
        elif was_clean and was.leader == broker:
            assert row == was
        else:
            assert row.leader == NO_LEADER
        if not was_clean:
            assert broker not in row.elr
            assert not others or broker not in row.isr
    replanned = plan_registration(cluster.image, broker, was_clean=was_clean)
    assert changes_of(replanned) == []


@given(clusters(), st.lists(st.tuples(st.sampled_from(BROKERS), st.booleans()), max_size=12))
def test_a_partition_that_lost_nothing_is_led_again_when_all_are_back(
    cluster: Cluster, moves: list[tuple[BrokerId, bool]]
) -> None:
    for broker, is_back in moves:
        (unfence if is_back else fence)(cluster, broker)
    for broker in BROKERS:
        cluster.propose(ChangeBroker(broker, 0, is_shutting_down=False))
        unfence(cluster, broker)
    for row in rows(cluster.image).values():
        assert row.leader in row.isr


def test_partitions_of_a_broker_follow_its_replicas() -> None:
    cluster = cluster_of(assign(1, 2), assign(2, 3))
    topic = cluster.image.topic(TopicName("orders"))
    assert topic is not None
    change = ChangePartition(
        topic.topic_id, PartitionIndex(0), replicas=(TWO, THREE), isr=(TWO,), leader=2
    )
    cluster.propose(change)
    assert [index for _, index in cluster.image.partitions_of(THREE)] == [0, 1]
    assert list(cluster.image.partitions_of(ONE)) == []
    assert cluster.image.replica_count(ONE) == 0
