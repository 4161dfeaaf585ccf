import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.metadata import topics
from headrace.metadata.ddl import (
    AddPartitions,
    Assignment,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    SetConfigs,
    UnregisterBroker,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl
from headrace.metadata.events import (
    ConfigsChanged,
    LeaderChanged,
    PartitionsAdded,
    ReplicasChanged,
    TopicCreated,
    TopicDeleted,
)
from headrace.metadata.features import HEADRACE_VERSION
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, ResourceType
from tests.unit.metadata.clusters import (
    NOW_MS,
    ORDERS,
    ORDERS_ID,
    Cluster,
    assign,
    copy_of,
    create_orders,
    with_orders,
)

OTHER_ID = TopicId(b"other-topics--id")
FIRST = PartitionIndex(0)


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def test_a_topic_is_found_by_name_and_id_with_its_configs() -> None:
    cluster = Cluster()
    outcome = cluster.propose(
        CreateTopic(ORDERS, ORDERS_ID, (assign(1, 2), assign(2, 1)), {"a": "b"}, True)
    )
    image = cluster.image
    topic = image.topic(ORDERS)
    assert topic is not None
    assert topic is image.topic_by_id(ORDERS_ID)
    assert topic.is_internal
    assert list(image.topics()) == [topic]
    assert image.configs(ResourceType.TOPIC, ORDERS) == {"a": "b"}
    assert outcome.events == (
        TopicCreated(ORDERS, ORDERS_ID),
        ConfigsChanged(ResourceType.TOPIC, ORDERS, ("a",)),
    )
    assert image.partition(ORDERS, PartitionIndex(2)) is None
    assert image.partition(ORDERS, PartitionIndex(-1)) is None
    assert image.partition(TopicName("no"), FIRST) is None


def test_names_and_ids_are_taken_once() -> None:
    cluster = with_orders()
    one = (assign(1),)
    cluster.refuses_with(ErrorCode.TOPIC_ALREADY_EXISTS, CreateTopic(ORDERS, OTHER_ID, one))
    cluster.refuses_with(
        ErrorCode.TOPIC_ALREADY_EXISTS, CreateTopic(TopicName("b"), ORDERS_ID, one)
    )


@pytest.mark.parametrize(
    "assignment",
    [
        Assignment((), (), NO_LEADER),
        Assignment(brokers(1, 1), brokers(1), 1),
        Assignment(brokers(1, 2), brokers(3), 3),
        Assignment(brokers(1, 2), brokers(1, 1), 1),
        Assignment(brokers(1, 2), brokers(1), 2),
        Assignment(brokers(1, 2), (), 1),
    ],
)
def test_assignments_that_contradict_themselves_are_refused(assignment: Assignment) -> None:
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    Cluster().refuses_with(code, create_orders(assign(1), assignment))
    with_orders().refuses_with(code, AddPartitions(ORDERS_ID, 1, (assignment,)))


def test_a_partition_may_begin_without_a_leader() -> None:
    cluster = with_orders(Assignment(brokers(1, 2), brokers(1), NO_LEADER))
    assert cluster.partition().leader == NO_LEADER
    assert cluster.image.leader_count(BrokerId(1)) == 0


def test_a_topic_has_between_one_and_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPIC_PARTITIONS_MAX", 2)
    code = ErrorCode.INVALID_PARTITIONS
    Cluster().refuses_with(code, CreateTopic(ORDERS, ORDERS_ID, ()))
    Cluster().refuses_with(code, create_orders(*[assign(1)] * 3))
    with_orders(assign(1)).refuses_with(code, AddPartitions(ORDERS_ID, 1, (assign(1),) * 2))


def test_asked_twice_a_topic_grows_once() -> None:
    cluster = with_orders()
    growth = AddPartitions(ORDERS_ID, 1, (assign(2), assign(3)))
    added = PartitionsAdded(ORDERS, ORDERS_ID, PartitionIndex(1), PartitionIndex(3))
    assert cluster.propose(growth).events == (added,)
    cluster.refuses_with(ErrorCode.INVALID_PARTITIONS, growth)
    assert cluster.partition(2).vshard_id == 2


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    cluster = with_orders(assign(1, 2), assign(2, 1))
    cluster.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {"a": "b"}))
    deleted = cluster.propose(DeleteTopic(ORDERS_ID, NOW_MS))
    assert deleted.events == (TopicDeleted(ORDERS, ORDERS_ID, 2),)
    image = cluster.image
    assert image.topic(ORDERS) is None
    assert image.topic_by_id(ORDERS_ID) is None
    assert image.configs(ResourceType.TOPIC, ORDERS) == {}
    assert image.replica_count(BrokerId(1)) == image.leader_count(BrokerId(1)) == 0
    cluster.refuses_with(ErrorCode.UNKNOWN_TOPIC_ID, DeleteTopic(ORDERS_ID, NOW_MS))


def test_a_leader_that_is_given_begins_an_epoch_and_every_change_a_partition_epoch() -> None:
    cluster = with_orders()
    isr = cluster.propose(ChangePartition(ORDERS_ID, FIRST, isr=brokers(1, 2)))
    assert isr.events == (ReplicasChanged(ORDERS, ORDERS_ID, FIRST),)
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (0, 1)
    same = cluster.propose(ChangePartition(ORDERS_ID, FIRST, leader=1))
    assert isinstance(same.events[0], LeaderChanged)
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (1, 2)
    assert cluster.propose(ChangePartition(ORDERS_ID, FIRST)).events == ()
    assert cluster.partition().partition_epoch == 2


def test_an_unclean_leader_is_the_whole_isr_and_recovers() -> None:
    cluster = with_orders(assign(1, 2, 3, isr=(1,)))
    cluster.propose(ChangePartition(ORDERS_ID, FIRST, leader=3, isr=brokers(3), is_recovering=True))
    assert cluster.partition().is_recovering
    cluster.propose(ChangePartition(ORDERS_ID, FIRST, is_recovering=False))
    assert (cluster.partition().is_recovering, cluster.partition().isr) == (False, (3,))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ChangePartition(OTHER_ID, FIRST), ErrorCode.UNKNOWN_TOPIC_ID),
        (ChangePartition(ORDERS_ID, PartitionIndex(1)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ChangePartition(ORDERS_ID, PartitionIndex(-1)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ChangePartition(ORDERS_ID, FIRST, 1), ErrorCode.INVALID_UPDATE_VERSION),
        (ChangePartition(ORDERS_ID, FIRST, leader=4), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (ChangePartition(ORDERS_ID, FIRST, isr=brokers(2)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            ChangePartition(ORDERS_ID, FIRST, leader=NO_LEADER, isr=()),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            ChangePartition(ORDERS_ID, FIRST, adding=brokers(9)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            ChangePartition(ORDERS_ID, FIRST, adding=brokers(1, 2, 3)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_changes_of_a_partition_that_are_refused(change: ChangePartition, code: ErrorCode) -> None:
    with_orders().refuses_with(code, change)


def test_a_replica_that_leaves_begins_a_leader_epoch_and_one_that_comes_does_not() -> None:
    cluster = with_orders()
    shrunk = ChangePartition(ORDERS_ID, FIRST, isr=brokers(1))
    grown = ChangePartition(ORDERS_ID, FIRST, isr=brokers(1, 2))
    added = ChangePartition(ORDERS_ID, FIRST, replicas=brokers(1, 2, 3, 4), adding=brokers(4))
    for change in (shrunk, grown, added):
        (event,) = cluster.propose(change).events
        assert isinstance(event, ReplicasChanged)
    assert cluster.partition().leader_epoch == 0
    gone = ChangePartition(ORDERS_ID, FIRST, replicas=brokers(1, 2), adding=())
    assert cluster.propose(gone).events == (
        LeaderChanged(ORDERS, ORDERS_ID, FIRST, BrokerId(1), LeaderEpoch(1)),
    )
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 1)


def test_only_the_present_life_of_a_broker_that_stays_joins_an_isr() -> None:
    cluster = with_orders(assign(1, 2, 3, isr=(1,)))
    epochs = {}
    for broker_id in (1, 2, 3):
        register = RegisterBroker(broker_id, bytes([broker_id] * 16), (), is_fenced=False)
        cluster.propose(register)
        broker = cluster.image.broker(BrokerId(broker_id))
        assert broker is not None
        epochs[broker_id] = broker.broker_epoch

    def joining(broker_id: int, broker_epoch: int) -> ChangePartition:
        isr_epochs = (epochs[1], broker_epoch)
        return ChangePartition(ORDERS_ID, FIRST, isr=brokers(1, broker_id), isr_epochs=isr_epochs)

    for epoch in (epochs[2] - 1, epochs[2] + 1, -1):
        cluster.refuses_with(ErrorCode.INELIGIBLE_REPLICA, joining(2, epoch))
    cluster.propose(ChangeBroker(2, epochs[2], is_fenced=True))
    cluster.refuses_with(ErrorCode.INELIGIBLE_REPLICA, joining(2, epochs[2]))
    cluster.propose(ChangeBroker(2, epochs[2], is_fenced=False))
    cluster.propose(ChangeBroker(3, epochs[3], is_shutting_down=True))
    cluster.refuses_with(ErrorCode.INELIGIBLE_REPLICA, joining(3, epochs[3]))
    cluster.propose(joining(2, epochs[2]))
    assert cluster.partition().isr == (1, 2)


def test_a_member_of_the_isr_may_be_fenced_already_but_not_of_a_former_life() -> None:
    cluster = with_orders()
    stays = ChangePartition(ORDERS_ID, FIRST, isr=brokers(1, 2), isr_epochs=(0, 0))
    cluster.propose(stays)  # the brokers of this image are fenced
    unknown = ChangePartition(ORDERS_ID, FIRST, isr=brokers(1, 2), isr_epochs=(0, -1))
    cluster.propose(unknown)
    cluster.propose(RegisterBroker(9, b"9" * 16, ()), RegisterBroker(2, b"2" * 16, ()))
    cluster.refuses_with(ErrorCode.INELIGIBLE_REPLICA, stays)


def test_an_isr_has_as_many_broker_epochs_as_members() -> None:
    change = ChangePartition(ORDERS_ID, FIRST, isr=brokers(1, 2), isr_epochs=(0,))
    with_orders().refuses_with(ErrorCode.INVALID_REQUEST, change)


def test_a_leader_of_the_past_changes_no_isr() -> None:
    cluster = with_orders()
    cluster.propose(ChangePartition(ORDERS_ID, FIRST, leader=2))
    stale = ChangePartition(ORDERS_ID, FIRST, expected_leader_epoch=LeaderEpoch(0), isr=brokers(2))
    cluster.refuses_with(ErrorCode.FENCED_LEADER_EPOCH, stale)


def test_the_descriptors_version_counts_what_leases_care_about() -> None:
    cluster = with_orders()
    topic = cluster.image.state.topics[ORDERS]
    cluster.propose(ChangePartition(ORDERS_ID, FIRST, leader=2))
    assert topic.version == 1
    cluster.propose(SetConfigs(ResourceType.TOPIC, ORDERS, {"a": "b"}))
    cluster.propose(AddPartitions(ORDERS_ID, 1, (assign(2),)))
    assert topic.version == 3


@pytest.mark.parametrize(
    "ddl",
    [
        CreateTopic(TopicName("other"), OTHER_ID, (assign(1), assign(2, 99))),
        AddPartitions(ORDERS_ID, 1, (assign(99),)),
        ChangePartition(ORDERS_ID, FIRST, replicas=brokers(1, 2, 3, 99)),
    ],
)
def test_a_broker_that_is_not_registered_gets_no_replicas(
    ddl: CreateTopic | AddPartitions | ChangePartition,
) -> None:
    refusal = with_orders().refuses(ddl)
    assert refusal.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "on brokers [99]: no such brokers are registered" in str(refusal)


def test_a_topic_whose_broker_was_unregistered_meanwhile_is_refused_on_every_node() -> None:
    cluster = Cluster()
    cluster.propose(UnregisterBroker(3))
    cluster.refuses_with(ErrorCode.INVALID_REPLICA_ASSIGNMENT, create_orders(assign(1, 2, 3)))


def named(name: str) -> CreateTopic:
    return CreateTopic(TopicName(name), TopicId(name.encode().ljust(16)), (assign(1, 2),))


def test_a_name_that_collides_with_another_is_refused_when_it_is_applied() -> None:
    cluster = Cluster()
    cluster.propose(named("a.b_c"))
    assert cluster.refuses(named("a_b.c")).code is ErrorCode.INVALID_TOPIC_EXCEPTION
    cluster.propose(named("abc"), named("a-b-c"))
    again = Cluster(Image(copy_of(cluster.image).state))
    assert again.refuses(named("a_b_c")).code is ErrorCode.INVALID_TOPIC_EXCEPTION
    again.propose(DeleteTopic(named("a.b_c").topic_id, 0), named("a_b_c"))


def test_names_of_one_request_may_collide_as_in_kafka() -> None:
    cluster = Cluster()
    cluster.propose(Batch(tuple(CatalogDdl(encode_ddl(named(each))) for each in ("a.b", "a_b"))))
    assert [each.name for each in cluster.image.topics()] == ["a.b", "a_b"]
    cluster.propose(DeleteTopic(named("a.b").topic_id, 0))
    cluster.refuses_with(ErrorCode.INVALID_TOPIC_EXCEPTION, named("a.b"))


def test_names_collide_as_they_always_did_while_older_nodes_may_be_there() -> None:
    cluster = Cluster()
    del cluster.image.state.features[HEADRACE_VERSION]
    cluster.propose(named("a.b"), named("a_b"))
    assert cluster.image.colliding("a_b") == "a.b"
    cluster.propose(DeleteTopic(named("a.b").topic_id, 0))
    assert cluster.image.colliding("a.b") == "a_b"
