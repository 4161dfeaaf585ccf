import pytest

from headrace.errors import ErrorCode
from headrace.metadata.descriptors import DescriptorLease, Hlc, topic_descriptor
from headrace.metadata.entries import (
    DescriptorLeaseGrant,
    FinishDecommission,
    Join,
    Leave,
    NodeChange,
    PromoteToVoter,
    RemoveMember,
    RoutingChange,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.state import Node, NodeState, ReplicationGroup
from headrace.metadata.topology import TRANSITIONS, is_address
from tests.unit.metadata.clusters import (
    ORDERS,
    Cluster,
    assign,
    create_orders,
    join,
    with_nodes,
)

CHANGES: dict[str, type[PromoteToVoter | StartDecommission | FinishDecommission | Leave]] = {
    "promote": PromoteToVoter,
    "start": StartDecommission,
    "finish": FinishDecommission,
    "leave": Leave,
}
PATHS: dict[NodeState, list[str]] = {
    NodeState.LEARNER: [],
    NodeState.ACTIVE: ["promote"],
    NodeState.DRAINING: ["promote", "start", "out"],
    NodeState.DECOMMISSIONED: ["promote", "start", "out", "finish"],
}


def cluster_in(state: NodeState) -> Cluster:
    """Node 2 in a state, beside node 1, which is active."""
    cluster = with_nodes(1)
    cluster.propose(join(2))
    for step in PATHS[state]:
        cluster.propose(
            RoutingChange(RemoveMember(0, 2)) if step == "out" else TopologyChange(CHANGES[step](2))
        )
    assert cluster.image.state.nodes[2].state is state
    return cluster


@pytest.mark.parametrize("state", PATHS)
@pytest.mark.parametrize("change", CHANGES.values())
def test_states_change_only_as_the_table_says(
    state: NodeState, change: type[PromoteToVoter]
) -> None:
    cluster = cluster_in(state)
    allowed, target = TRANSITIONS[change]
    if state is NodeState.ACTIVE and target is None:
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, TopologyChange(change(2)))
        cluster.propose(RoutingChange(RemoveMember(0, 2)))  # one that votes must stop that first
    if state in allowed:
        cluster.propose(TopologyChange(change(2)))
        node = cluster.image.node(2)
        assert (None if node is None else node.state) is target
    elif state is target:
        assert cluster.propose(TopologyChange(change(2))).events == ()
    else:
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, TopologyChange(change(2)))


def test_a_voter_that_was_removed_votes_again_when_it_is_promoted_again() -> None:
    cluster = cluster_in(NodeState.ACTIVE)
    cluster.propose(RoutingChange(RemoveMember(0, 2)))
    assert cluster.image.state.nodes[2].state is NodeState.ACTIVE
    assert cluster.image.state.metadata_group == ReplicationGroup(None, (1,), ())
    cluster.propose(TopologyChange(PromoteToVoter(2)))
    assert cluster.image.state.nodes[2].state is NodeState.ACTIVE
    assert cluster.image.state.metadata_group == ReplicationGroup(None, (1, 2), ())
    assert cluster.propose(TopologyChange(PromoteToVoter(2))).events == ()


def test_finish_decommission_is_not_possible_from_any_state() -> None:
    """Facts 1.4: the seed sets Decommissioned whatever the state."""
    cluster = cluster_in(NodeState.ACTIVE)
    error = cluster.refuses(TopologyChange(FinishDecommission(2)))
    assert "which is ACTIVE: it must be one of DRAINING" in error.message


@pytest.mark.parametrize("change", CHANGES.values())
def test_a_node_that_is_not_known_cannot_change(change: type[PromoteToVoter]) -> None:
    Cluster().refuses_with(ErrorCode.BROKER_ID_NOT_REGISTERED, TopologyChange(change(5)))


@pytest.mark.parametrize(
    "addr", ["", "somewhere", ":9093", "a:", "a:0", "a:65536", "::1:9093", "a:x"]
)
def test_a_bad_address_is_refused_and_no_placeholder_joins(addr: str) -> None:
    """Facts 1.4: the seed puts 0.0.0.0:0 in its place."""
    cluster = Cluster()
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, TopologyChange(Join(7, addr)))
    assert cluster.image.node(7) is None


@pytest.mark.parametrize("addr", ["10.0.0.7:9000", "[::1]:9093", "broker-7.example:1", "a:65535"])
def test_addresses_are_a_host_and_a_port(addr: str) -> None:
    assert is_address(addr)


@pytest.mark.parametrize("addr", ["a:0", "a:65536", "a:0000019999999", "a:00001" + "9" * 5000])
def test_addresses_have_no_port_that_is_none(addr: str) -> None:
    assert not is_address(addr)


def test_joining_twice_changes_nothing_but_the_address() -> None:
    cluster = with_nodes(1)
    assert cluster.propose(join(1)).events == ()
    cluster.propose(TopologyChange(Join(1, "10.9.9.9:9093")))
    assert cluster.image.state.nodes[1] == Node(1, "10.9.9.9:9093", NodeState.ACTIVE)
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, TopologyChange(Join(1, "nowhere")))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, TopologyChange(Join(2**31, "a:1")))


def test_a_decommissioned_node_leaves_before_it_joins_again() -> None:
    cluster = cluster_in(NodeState.DECOMMISSIONED)
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, join(2))
    cluster.propose(TopologyChange(Leave(2)), join(2))
    assert cluster.image.state.nodes[2].state is NodeState.LEARNER


def test_the_metadata_group_follows_its_nodes() -> None:
    cluster = with_nodes(1, 2)
    cluster.propose(join(3))
    assert cluster.image.group(0) == ReplicationGroup(None, (1, 2), (3,))
    cluster.propose(TopologyChange(Leave(3)))
    assert cluster.image.group(0) == ReplicationGroup(None, (1, 2))


def test_a_learner_with_replicas_does_not_leave() -> None:
    cluster = with_nodes(1)
    cluster.propose(join(2), create_orders(assign(1, 2)))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, TopologyChange(Leave(2)))
    cluster.propose(RoutingChange(RemoveMember(1, 2)), TopologyChange(Leave(2)))
    assert cluster.image.node(2) is None


def test_a_node_with_replicas_or_a_seat_is_not_done() -> None:
    cluster = with_nodes(1, 2)
    cluster.propose(create_orders(assign(1, 2)), TopologyChange(StartDecommission(2)))
    finish = TopologyChange(FinishDecommission(2))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, finish)
    cluster.propose(RoutingChange(RemoveMember(0, 2)))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, finish)
    cluster.propose(RoutingChange(RemoveMember(1, 2)), finish)
    assert cluster.image.state.nodes[2].state is NodeState.DECOMMISSIONED


def test_leases_end_with_their_node() -> None:
    cluster = cluster_in(NodeState.DRAINING)
    descriptor = topic_descriptor(ORDERS)
    cluster.propose(DescriptorLeaseGrant(DescriptorLease(descriptor, 1, 2, Hlc(9))))
    cluster.propose(TopologyChange(FinishDecommission(2)))
    assert cluster.image.leases(descriptor) == {}


def test_every_change_counts_the_version_up() -> None:
    cluster = with_nodes(1)
    changes: tuple[NodeChange, ...] = (Join(2, "a:1"), PromoteToVoter(2), StartDecommission(2))
    versions = []
    for change in changes:
        cluster.propose(TopologyChange(change), TopologyChange(change))
        versions.append(cluster.image.state.topology_version)
    assert versions == [3, 4, 5]
