"""Metrics of a cluster say what an operator would look for when a node is gone."""

from prometheus_client.parser import text_string_to_metric_families

from headrace.testing.cluster import TestCluster
from headrace.web.metrics import NodeMetrics


def values(cluster: TestCluster, node_id: int) -> dict[tuple[str, ...], float]:
    """The page of a node by name and labels."""
    node = cluster.nodes[node_id]
    page = node.run(NodeMetrics(node.node).page())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_a_node_that_dies_is_seen_in_sessions_peers_and_fencings() -> None:
    with TestCluster(nodes=3) as cluster:
        controller = cluster.controller
        cluster.wait_for(
            lambda: values(cluster, controller)["headrace_peers", "connected"] == 2, "connections"
        )
        page = values(cluster, controller)
        assert page["headrace_active_controller",] == 1
        assert page["headrace_raft_role", "leader"] == 1
        assert page["headrace_node_sessions", "alive"] == 2
        assert {("headrace_raft_lag_entries", str(node)) for node in (1, 2, 3)} <= page.keys()
        other, dead = (node for node in cluster.nodes if node != controller)
        cluster.kill(dead)
        cluster.wait_for(
            lambda: values(cluster, controller)["headrace_node_sessions", "fenced"] == 1,
            "the dead node to be fenced",
        )
        page = values(cluster, controller)
        assert page["headrace_fencings_total",] >= 1
        assert page["headrace_peers", "unconnected"] == 1
        page = values(cluster, other)
        assert page["headrace_active_controller",] == 0
        assert page["headrace_raft_role", "follower"] == 1
        assert page["headrace_node_sessions", "alive"] == 0
