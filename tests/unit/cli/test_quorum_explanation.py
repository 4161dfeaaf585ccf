"""What `headrace quorum explain` says, from the views of nodes alone."""

from headrace.cli.quorum_explanation import explain
from headrace.cluster.operator_words import (
    NOBODY,
    FollowerRow,
    LinkRow,
    NodeRow,
    NodeView,
    QuorumView,
)

ADDRESSES = {1: "127.0.0.1:9093", 2: "127.0.0.1:9193", 3: "127.0.0.1:9293"}


def quorum(role: str = "FOLLOWER", *, leader: int = 1, **changed: object) -> QuorumView:
    fields: dict[str, object] = {
        "role": role,
        "term": 4,
        "leader": leader,
        "commit": 10,
        "last_index": 10,
        "applied": 10,
        "voters": (1, 2, 3),
        "learners": (),
        "failure": "",
        "full_disk": "",
        "followers": (),
        "explanation": ("It stands for election soon.",),
    }
    return QuorumView(**(fields | changed))  # type: ignore[arg-type]


def view(node: int, of_quorum: QuorumView, *links: LinkRow, waiting: str = "") -> NodeView:
    nodes = tuple(
        NodeRow(each, address, "ACTIVE", True, False, False) for each, address in ADDRESSES.items()
    )
    return NodeView(
        node, ADDRESSES[node], "1.0", "c", waiting, node == 1, of_quorum, nodes, tuple(links)
    )


FOLLOWERS = (FollowerRow(2, 0, 10), FollowerRow(3, 0, 12))


def test_a_quorum_in_which_all_is_well_has_no_remedy() -> None:
    leading = quorum("LEADER", followers=FOLLOWERS)
    said = explain({1: view(1, leading), 2: view(2, quorum()), 3: view(3, quorum())}, {})
    assert said.is_healthy
    assert said.remedies == ()
    assert "Node 1 leads term 4" in said.findings[0]


def test_a_dead_voter_may_be_removed_while_a_majority_is_there() -> None:
    leading = quorum("LEADER", followers=FOLLOWERS)
    said = explain(
        {1: view(1, leading), 2: view(2, quorum())}, {ADDRESSES[3]: "connection refused"}
    )
    assert not said.is_healthy
    assert any("Node 3" in line and "connection refused" in line for line in said.findings)
    assert any("headrace cluster remove 3" in line for line in said.remedies)


def test_without_a_majority_nodes_must_be_started_and_none_can_be_removed() -> None:
    said = explain(
        {2: view(2, quorum(leader=NOBODY))}, {ADDRESSES[1]: "refused", ADDRESSES[3]: "refused"}
    )
    assert not said.is_healthy
    assert not any("cluster remove" in line for line in said.remedies)
    assert any("At least 1 more of the nodes 1, 3" in line for line in said.remedies)
    assert any("It stands for election soon." in line for line in said.findings)


def test_a_full_disk_and_a_stopped_log_are_named_with_their_node() -> None:
    leading = quorum("LEADER", followers=FOLLOWERS, full_disk="No space left on device")
    stopped = quorum(failure="the disk is gone")
    said = explain({1: view(1, leading), 2: view(2, stopped), 3: view(3, quorum())}, {})
    assert any("disk of node 1" in line for line in said.remedies)
    assert any("node 2" in line and "start it again" in line for line in said.remedies)


def test_nodes_that_run_but_do_not_reach_each_other_are_named() -> None:
    leading = quorum("LEADER", followers=FOLLOWERS)
    link = LinkRow(3, "waiting", "no route to host")
    said = explain({1: view(1, leading), 2: view(2, quorum(), link), 3: view(3, quorum())}, {})
    assert not said.is_healthy
    assert any("Node 2 is not connected to node 3: no route to host" in x for x in said.findings)


def test_a_follower_that_lags_or_is_silent_is_no_good_health() -> None:
    for row in (FollowerRow(3, 5000, 10), FollowerRow(3, 0, 60_000), FollowerRow(3, 7, -1)):
        leading = quorum("LEADER", followers=(FollowerRow(2, 0, 1), row))
        said = explain({1: view(1, leading), 2: view(2, quorum()), 3: view(3, quorum())}, {})
        assert not said.is_healthy


def test_the_leader_of_a_former_term_is_none() -> None:
    former = quorum("LEADER", followers=FOLLOWERS)
    said = explain({1: view(1, former), 2: view(2, quorum(term=5, leader=NOBODY))}, {})
    assert not said.is_healthy
    assert "No node that can be asked leads" in said.findings[0]
