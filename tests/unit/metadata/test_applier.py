import pytest

from headrace.errors import ErrorCode
from headrace.ids import PartitionIndex
from headrace.metadata import applier as applier_module
from headrace.metadata.applier import (
    Applier,
    Outcome,
    OutcomeForgotten,
    Watchers,
)
from headrace.metadata.ddl import ChangePartition, CreateTopic, SetFeature, encode_ddl
from headrace.metadata.descriptors import DescriptorLease, Hlc, topic_descriptor
from headrace.metadata.entries import (
    Batch,
    CatalogDdl,
    CatalogDdlAudited,
    DescriptorDrainStart,
    DescriptorLeaseGrant,
    Join,
    JoinTokenTransition,
    LeadershipTransfer,
    MigrationAbort,
    PromoteToVoter,
    Register,
    RemoveMember,
    RoutingChange,
    StartDecommission,
    SurrogateAlloc,
    TopologyChange,
)
from headrace.metadata.errors import MetadataStopped, Refused
from headrace.metadata.events import (
    Event,
    FeatureChanged,
    LeaderChanged,
    NodeChanged,
    SurrogatesAllocated,
    TopicCreated,
)
from headrace.metadata.image import Image
from headrace.metadata.phases import AddLearner, CatchUp, RemoveLearner
from headrace.metadata.snapshot import take_snapshot
from headrace.metadata.state import NodeState
from headrace.metadata.variants import Octets
from tests.unit.metadata.clusters import (
    MIGRATION,
    ORDERS,
    ORDERS_ID,
    Cluster,
    as_entry,
    assign,
    checkpoint,
    create_orders,
    data_of,
    join,
    new_image,
    with_nodes,
    with_orders,
)

FEATURE = SetFeature("share.version", 1)
LEASE = DescriptorLease(topic_descriptor(ORDERS), 1, 7, Hlc(2**62))


# The seed's own tests, restated


def test_applier_counts_catalog_ddl() -> None:
    applier = Applier(Image())
    assert applier.apply([(1, data_of(FEATURE)), (2, data_of(join(7)))]) == 2
    assert applier.image.applied_index == 2
    assert applier.image.state.catalog_entries_applied == 1
    assert list(applier.image.state.nodes) == [7]


def test_applier_is_idempotent_by_index() -> None:
    applier = Applier(Image())
    assert applier.apply([(5, data_of(FEATURE))]) == 5
    assert applier.apply([(3, data_of(FEATURE))]) == 5
    assert applier.image.state.catalog_entries_applied == 1


def test_start_decommission_drains_the_live_topology() -> None:
    cluster = with_nodes(7)
    cluster.propose(TopologyChange(StartDecommission(7)))
    node = cluster.image.node(7)
    assert node is not None
    assert node.state is NodeState.DRAINING


def test_remove_member_changes_the_live_routing() -> None:
    cluster = with_nodes(1, 2, 3)
    cluster.propose(RoutingChange(RemoveMember(0, 2)))
    group = cluster.image.group(0)
    assert group is not None
    assert group.members == (1, 3)


def test_without_watchers_the_index_still_advances() -> None:
    applier = Applier(Image())
    assert applier.apply([(1, data_of(TopologyChange(StartDecommission(5))))]) == 1
    assert applier.outcome(1).refusals[0].error.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# The traps of facts 1.3


def test_entries_inside_a_batch_reach_the_image() -> None:
    """The seed's outer entry sets the index first, and its sub-entries are skipped for it."""
    cluster = Cluster()
    cluster.propose(
        Batch(
            (
                as_entry(create_orders()),
                Batch((DescriptorLeaseGrant(LEASE), SurrogateAlloc(4))),
                join(7),
            )
        )
    )
    image = cluster.image
    assert image.applied_index == 1
    assert image.topic(ORDERS) is not None
    assert image.lease(LEASE.descriptor_id, 7) == LEASE
    assert image.state.surrogate_hwm == 4
    assert image.node(7) is not None


def test_a_replay_changes_neither_live_state_nor_tells_anybody() -> None:
    """The seed cascades to live state even if the cache skipped the entry."""
    seen: list[Event] = []
    watchers = Watchers(topology=seen.append, routing=seen.append)
    cluster = Cluster(watchers=watchers)
    cluster.propose(
        create_orders(),
        Batch((join(1), join(2))),
        RoutingChange(LeadershipTransfer(1, 2)),
        RoutingChange(LeadershipTransfer(1, 1)),
    )
    epoch, told = cluster.partition().leader_epoch, len(seen)
    assert epoch == 2
    cluster.applier.apply(cluster.log)
    assert cluster.partition().leader_epoch == epoch
    assert len(seen) == told
    assert cluster.image.state.topology_version == 2


@pytest.mark.parametrize(
    "data", [b"\x00", b"\xc1\x00\x09\x00\x00\x00\x00", data_of(FEATURE)[:-1], b"\xc1" * 40]
)
def test_what_cannot_be_decoded_stops_the_node_and_the_index_does_not_advance(data: bytes) -> None:
    """The seed warns and goes on: nodes of different versions diverge in silence."""
    applier = Applier(Image())
    applier.apply([(1, data_of(FEATURE))])
    with pytest.raises(MetadataStopped, match="metadata entry 4 cannot be applied") as stopped:
        applier.apply([(4, data), (5, data_of(FEATURE))])
    assert stopped.value.index == 4
    assert stopped.value.reason
    assert applier.image.applied_index == 1


def test_ddl_that_is_not_known_stops_the_node_before_anything_of_its_batch_is_applied() -> None:
    cluster = Cluster()
    unknown = CatalogDdl(b"\x92\xa9DropTable\x01")
    with pytest.raises(MetadataStopped, match="DropTable"):
        cluster.propose(Batch((as_entry(create_orders()), unknown)))
    assert cluster.image == new_image()


def test_a_node_that_stopped_stays_stopped() -> None:
    cluster = Cluster()
    with pytest.raises(MetadataStopped):
        cluster.applier.apply([(1, b"nonsense")])
    for action in (
        lambda: cluster.applier.apply([(2, data_of(FEATURE))]),
        lambda: cluster.applier.advance(2),
        lambda: take_snapshot(cluster.applier),
    ):
        with pytest.raises(MetadataStopped, match="entry 1"):
            action()


def test_index_zero_neither_applies_nor_resets_the_applied_index() -> None:
    applier = Applier(Image())
    applier.apply([(5, data_of(FEATURE))])
    assert applier.apply([(0, data_of(SetFeature("share.version", 2)))]) == 5
    assert applier.image.feature_level("share.version") == 1
    assert Applier(Image()).apply([(0, data_of(FEATURE))]) == 0


def test_a_lease_or_drain_of_the_future_moves_no_clock() -> None:
    """The seed takes their expiry for the time of the last commit."""
    cluster = Cluster()
    cluster.propose(DescriptorLeaseGrant(LEASE))
    cluster.propose(DescriptorDrainStart(topic_descriptor(ORDERS), 5, Hlc(2**63)))
    times = [name for name in cluster.image.state.__struct_fields__ if "hlc" in name]
    assert times == []


def test_no_log_of_topology_or_routing_grows_in_the_image() -> None:
    cluster = with_orders()
    cluster.propose(join(9))
    sizes = set()
    for leader in (2, 3, 2, 3, 2, 3):
        cluster.propose(RoutingChange(LeadershipTransfer(1, leader)))
        sizes.add(len(take_snapshot(cluster.applier)))
    assert len(sizes) == 1


def test_indices_that_raft_takes_for_itself_are_covered() -> None:
    """The seed's index stays behind when a batch ends in changes of members."""
    applier = Applier(Image())
    assert applier.apply([(2, data_of(FEATURE)), (3, b"")]) == 3
    assert applier.advance(7) == 7
    assert applier.advance(6) == 7
    assert applier.apply([]) == 7
    assert applier.apply([(7, data_of(SetFeature("share.version", 2)))]) == 7
    assert applier.apply([(9, data_of(SetFeature("share.version", 3)))]) == 9
    assert applier.image.feature_level("share.version") == 3


# Outcomes and refusals


def test_a_refused_entry_takes_its_index_and_says_why() -> None:
    cluster = with_orders()
    with pytest.raises(Refused, match="topic orders exists already"):
        cluster.propose(create_orders())
    assert cluster.image.applied_index == 2
    assert cluster.image.state.catalog_entries_applied == 2
    assert cluster.applier.outcome(2).events == ()


def test_entries_of_a_batch_are_refused_one_by_one() -> None:
    cluster = Cluster()
    create = as_entry(create_orders())
    with pytest.raises(Refused):
        cluster.propose(Batch((create, Batch((create, as_entry(FEATURE))), SurrogateAlloc(1))))
    outcome = cluster.applier.outcome(1)
    assert [refusal.position for refusal in outcome.refusals] == [1]
    assert [type(event) for event in outcome.events] == [
        TopicCreated,
        FeatureChanged,
        SurrogatesAllocated,
    ]


def test_outcomes_are_kept_for_the_last_indices_only() -> None:
    applier = Applier(Image(), outcomes_max=2)
    applier.apply([(index, data_of(SurrogateAlloc(index))) for index in (1, 2, 3)])
    assert applier.outcome(3).events == (SurrogatesAllocated(2, 2),)
    for index in (1, 4):
        with pytest.raises(OutcomeForgotten, match=f"metadata index {index} "):
            applier.outcome(index)


def test_audited_ddl_does_what_plain_ddl_does() -> None:
    plain, audited = Cluster(), Cluster()
    plain.propose(create_orders())
    audited.propose(CatalogDdlAudited(encode_ddl(create_orders()), "7", "ada", "create orders"))
    assert plain.image == audited.image


def test_a_bug_in_applying_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(image: Image, ddl: CreateTopic) -> list[Event]:
        raise KeyError("gone")

    monkeypatch.setitem(vars(applier_module)["_STEPS"], CreateTopic, explode)
    cluster = Cluster()
    with pytest.raises(MetadataStopped, match="KeyError: 'gone'"):
        cluster.propose(create_orders())
    assert cluster.image.applied_index == 0


# Watchers


def test_each_watcher_hears_of_its_own_kind_once_the_index_is_applied() -> None:
    heard: dict[str, list[object]] = {"topology": [], "routing": [], "moves": [], "tokens": []}
    outcomes: list[Outcome] = []
    cluster = Cluster(
        watchers=Watchers(
            topology=heard["topology"].append,
            routing=heard["routing"].append,
            migrations=heard["moves"].append,
            tokens=heard["tokens"].append,
            outcomes=outcomes.append,
        )
    )
    cluster.propose(
        create_orders(assign(1, 2)),
        join(3),
        ChangePartition(ORDERS_ID, PartitionIndex(0), leader=2),
        JoinTokenTransition(Octets(bytes(32)), Register(5), 1),
        checkpoint(AddLearner(0, 1, 3, 1, 0, Hlc(1))),
        FEATURE,
    )
    counts = {name: len(events) for name, events in heard.items()}
    assert counts == {"topology": 2, "routing": 3, "moves": 1, "tokens": 1}
    assert heard["topology"][1] == NodeChanged(3, NodeState.LEARNER)
    assert isinstance(heard["routing"][2], LeaderChanged)
    assert [outcome.index for outcome in outcomes] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("present", ["topology", "routing", "migrations", "tokens", "outcomes"])
def test_any_watcher_may_be_absent(present: str) -> None:
    heard: list[object] = []
    cluster = Cluster(watchers=Watchers(**{present: heard.append}))
    cluster.propose(
        create_orders(assign(1, 2)),
        join(3),
        JoinTokenTransition(Octets(bytes(32)), Register(5), 1),
        checkpoint(AddLearner(0, 1, 3, 1, 0, Hlc(1))),
        TopologyChange(PromoteToVoter(3)),
    )
    assert heard


def test_watchers_see_the_image_with_the_whole_batch_in_it() -> None:
    seen: list[bool] = []
    cluster: Cluster

    def look(event: Event) -> None:
        seen.append(cluster.image.topic(ORDERS) is not None and cluster.image.applied_index == 1)

    cluster = Cluster(watchers=Watchers(topology=look))
    cluster.propose(Batch((TopologyChange(Join(1, "a:1")), as_entry(create_orders()))))
    assert seen == [True, True]


# Fatal errors of facts 1.5


def test_a_compensation_that_fails_stops_the_node_with_index_and_reason() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.propose(checkpoint(AddLearner(0, 1, 3, 1, 0, Hlc(1))), checkpoint(CatchUp(0, 5)))
    with pytest.raises(MetadataStopped, match=r"entry 4 .*RemoveLearner.*group 1"):
        cluster.propose(MigrationAbort(MIGRATION, "late", (RemoveLearner(77, 3),)))


def test_a_checkpoint_with_a_wrong_checksum_stops_the_node() -> None:
    data = bytearray(data_of(checkpoint(CatchUp(0, 17))))
    data[data.index(b"\x92\x00\x11") + 2] ^= 1
    with pytest.raises(MetadataStopped, match=r"entry 1 .*CRC32C"):
        Cluster().applier.apply([(1, bytes(data))])
