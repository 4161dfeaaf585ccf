import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.ddl import ChangePartition, CreateTopic, DeleteTopic
from headrace.metadata.descriptors import Hlc
from headrace.metadata.entries import (
    LeadershipTransfer,
    ReassignVShard,
    RemoveMember,
    RoutingChange,
)
from headrace.metadata.phases import AddLearner
from headrace.metadata.state import NO_LEADER, ReplicationGroup
from tests.unit.metadata.clusters import (
    NOW_MS,
    ORDERS,
    ORDERS_ID,
    assign,
    checkpoint,
    create_orders,
    with_nodes,
    with_orders,
)


def test_each_partition_is_a_vshard_with_a_group_of_its_own() -> None:
    cluster = with_orders(assign(1, 2), assign(2, 1))
    image = cluster.image
    assert [partition.vshard_id for partition in image.state.topics[ORDERS].partitions] == [0, 1]
    assert image.group(1) == ReplicationGroup(1, (1, 2))
    assert image.group(2) == ReplicationGroup(2, (2, 1))
    slot = image.slot(1)
    assert slot is not None
    assert (slot.topic.name, slot.partition) == (ORDERS, 1)
    assert image.vshard_of_group(2) == 1
    assert image.group(3) is None


def test_replicas_that_are_being_added_are_learners() -> None:
    cluster = with_orders(assign(1, 2))
    brokers = tuple(map(BrokerId, (1, 2, 3)))
    cluster.propose(
        ChangePartition(ORDERS_ID, PartitionIndex(0), replicas=brokers, adding=brokers[2:])
    )
    assert cluster.image.group(1) == ReplicationGroup(1, (1, 2), (3,))


def test_leadership_goes_to_a_member_in_sync_and_begins_an_epoch() -> None:
    cluster = with_orders(assign(1, 2, 3, isr=(1, 2)))
    cluster.propose(RoutingChange(LeadershipTransfer(1, 2)))
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (2, 1)
    assert cluster.propose(RoutingChange(LeadershipTransfer(1, 2))).events == ()
    for outsider in (3, 9):
        cluster.refuses_with(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            RoutingChange(LeadershipTransfer(1, outsider)),
        )


def test_a_group_that_does_not_exist_is_refused() -> None:
    """Facts 1.4: the seed ignores it."""
    cluster = with_orders()
    for change in (LeadershipTransfer(9, 1), RemoveMember(9, 1)):
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, RoutingChange(change))


def test_a_vshard_that_does_not_exist_is_refused() -> None:
    """Facts 1.4: the seed ignores it in silence."""
    cluster = with_orders()
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, RoutingChange(ReassignVShard(1024, 2, 1)))


def test_node_zero_is_a_node_like_any_other() -> None:
    """The seed takes zero for 'no leader known'; brokers count from zero."""
    cluster = with_orders(assign(1, 0))
    cluster.propose(RoutingChange(LeadershipTransfer(1, 0)))
    assert cluster.image.group(1) == ReplicationGroup(0, (1, 0))


def test_removing_a_member_leaves_its_leadership_to_an_election() -> None:
    cluster = with_orders(assign(1, 2, 3))
    cluster.propose(RoutingChange(RemoveMember(1, 2)))
    assert (cluster.partition().replicas, cluster.partition().isr) == ((1, 3), (1, 3))
    assert cluster.partition().leader_epoch == 1
    cluster.propose(RoutingChange(RemoveMember(1, 1)))
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (NO_LEADER, 2)
    assert cluster.propose(RoutingChange(RemoveMember(1, 1))).events == ()


def test_the_last_copy_is_never_removed() -> None:
    cluster = with_orders(assign(1, 2, isr=(1,)))
    removal = RoutingChange(RemoveMember(1, 1))
    cluster.refuses_with(ErrorCode.NOT_ENOUGH_REPLICAS, removal)
    with_nodes(1).refuses_with(ErrorCode.NOT_ENOUGH_REPLICAS, RoutingChange(RemoveMember(0, 1)))


def test_the_metadata_group_has_a_leader_among_its_voters() -> None:
    cluster = with_nodes(1, 2)
    cluster.propose(RoutingChange(LeadershipTransfer(0, 2)))
    assert cluster.image.state.metadata_group.leader == 2
    assert cluster.propose(RoutingChange(LeadershipTransfer(0, 2))).events == ()
    cluster.refuses_with(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, RoutingChange(LeadershipTransfer(0, 3))
    )
    cluster.propose(RoutingChange(RemoveMember(0, 2)))
    assert cluster.image.state.metadata_group == ReplicationGroup(None, (1,))


def test_moving_a_leader_moves_no_other_partition() -> None:
    """Facts 4: the seed's cut-over moves every vshard of the source group."""
    cluster = with_orders(assign(1, 2), assign(1, 2))
    cluster.propose(RoutingChange(ReassignVShard(0, 77, 2)))
    assert (cluster.partition(0).leader, cluster.partition(1).leader) == (2, 1)
    assert cluster.image.group(77) == ReplicationGroup(2, (1, 2))
    assert cluster.image.group(1) is None
    assert (cluster.image.group_id(0), cluster.image.vshard_of_group(77)) == (77, 0)


def test_one_group_serves_one_partition() -> None:
    cluster = with_orders(assign(1, 2), assign(1, 2))
    for group_id in (0, 2):
        cluster.refuses_with(
            ErrorCode.INVALID_REQUEST, RoutingChange(ReassignVShard(0, group_id, 1))
        )
    cluster.propose(RoutingChange(ReassignVShard(0, 77, 1)), RoutingChange(ReassignVShard(0, 1, 1)))
    assert cluster.image.state.regrouped == {}
    assert cluster.image.group(77) is None


def test_a_new_partition_never_takes_a_group_that_is_in_use() -> None:
    cluster = with_orders(assign(1))
    cluster.propose(RoutingChange(ReassignVShard(0, 2, 1)))
    cluster.propose(CreateTopic(TopicName("b"), TopicId(bytes(16)), (assign(1), assign(1))))
    topic = cluster.image.topic(TopicName("b"))
    assert topic is not None
    assert [partition.vshard_id for partition in topic.partitions] == [2, 3]


def test_a_refused_leaseholder_leaves_the_vshard_where_it_is() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.refuses_with(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, RoutingChange(ReassignVShard(0, 77, 9))
    )


def test_a_vshard_on_the_move_keeps_its_group() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.propose(checkpoint(AddLearner(0, 1, 3, 1, 0, Hlc(1))))
    cluster.refuses_with(
        ErrorCode.REASSIGNMENT_IN_PROGRESS, RoutingChange(ReassignVShard(0, 77, 1))
    )


def test_routes_of_a_deleted_topic_are_gone_and_its_vshards_are_not_used_again() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.propose(RoutingChange(ReassignVShard(0, 77, 2)), DeleteTopic(ORDERS_ID, NOW_MS))
    assert cluster.image.group(77) is None
    assert cluster.image.state.regrouped == {}
    assert cluster.image.slot(0) is None
    cluster.propose(create_orders())
    assert cluster.partition().vshard_id == 1


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_replicas_and_leaders_are_counted(broker_id: int) -> None:
    cluster = with_orders(assign(1, 2), assign(2, 1), assign(2, 3))
    cluster.propose(RoutingChange(RemoveMember(2, 1)))
    image, broker = cluster.image, BrokerId(broker_id)
    assert image.replica_count(broker) == {1: 1, 2: 3, 3: 1}[broker_id]
    assert image.leader_count(broker) == {1: 1, 2: 2, 3: 0}[broker_id]
    assert len(list(image.partitions_of(broker))) == image.replica_count(broker)
