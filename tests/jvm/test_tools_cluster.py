"""Apache Kafka's tools for clusters and quorums, against three nodes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.ids import BrokerId, TopicId, topic_id_text
from headrace.testing.cluster import TestCluster
from tests.jvm.kafka_tools import TOOLS, TOPICS, Output, run_tool, run_well

QUORUM = f"{TOOLS}.MetadataQuorumCommand"
CLUSTER = f"{TOOLS}.ClusterTool"


NODES = (1, 2, 3)
"""Those that stay; a test may add another one and take it away."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    settings = {"broker.session.timeout.ms": "3000", "headrace.raft.election.timeout.ms": "1000"}
    with TestCluster(nodes=3, settings=settings) as cluster:
        yield cluster


def quorum(cluster: TestCluster, node: int, *arguments: str) -> Output:
    return run_well(QUORUM, "--bootstrap-server", cluster.nodes[node].bootstrap, *arguments)


def directory(cluster: TestCluster, node: int) -> str:
    _, other = next(cluster.running())
    broker = other.node.broker.image.broker(BrokerId(node))
    assert broker is not None
    return topic_id_text(TopicId(broker.log_dirs[0]))


def status(cluster: TestCluster, node: int) -> dict[str, str]:
    lines = quorum(cluster, node, "describe", "--status").lines
    return {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}


def ids(text: str) -> list[int]:
    return sorted(map(int, re.findall(r'"id": ?(\d+)', text)))


@pytest.mark.parametrize("node", NODES)
def test_the_status_of_the_quorum_is_the_same_everywhere(cluster: TestCluster, node: int) -> None:
    described = status(cluster, node)
    assert described["ClusterId"] == cluster.nodes[1].node.broker.image.state.cluster_id
    assert described["LeaderId"] == str(cluster.controller)
    assert ids(described["CurrentVoters"]) == [1, 2, 3]
    for each in NODES:
        assert directory(cluster, each) in described["CurrentVoters"]
        assert cluster.nodes[each].node.cluster.address in described["CurrentVoters"]
    assert described["CurrentObservers"] == "[]"


def test_the_replication_of_the_quorum_shows_lag_and_roles(cluster: TestCluster) -> None:
    follower = next(node for node in NODES if node != cluster.controller)
    header, *rows = quorum(cluster, follower, "describe", "--replication").lines
    names = header.split()
    found = {row.split()[0]: dict(zip(names, row.split("\t"), strict=False)) for row in rows if row}
    assert sorted(found) == ["1", "2", "3"]
    roles = {int(node): row["Status"].strip() for node, row in found.items()}
    assert roles.pop(cluster.controller) == "Leader"
    assert set(roles.values()) == {"Follower"}
    for node, row in found.items():
        assert row["DirectoryId"].strip() == directory(cluster, int(node))
        assert int(row["Lag"]) >= 0


def test_a_controller_is_removed_and_added_again(cluster: TestCluster, tmp_path: Path) -> None:
    removed = next(node for node in NODES if node != cluster.controller)
    asked = next(node for node in NODES if node not in (removed, cluster.controller))
    name = directory(cluster, removed)
    arguments = ("--controller-id", str(removed), "--controller-directory-id", name)
    quorum(cluster, asked, "remove-controller", *arguments)
    assert removed not in ids(status(cluster, asked)["CurrentVoters"])
    assert ids(status(cluster, removed)["CurrentObservers"]) == [removed]
    twice = run_tool(
        QUORUM,
        "--bootstrap-server",
        cluster.nodes[asked].bootstrap,
        "remove-controller",
        *arguments,
    )
    assert twice.status == 1
    assert "VoterNotFoundException" in twice.stdout + twice.stderr

    address = cluster.nodes[removed].node.cluster.address
    properties = tmp_path / "controller.properties"
    properties.write_text(
        "process.roles=controller\n"
        f"node.id={removed}\n"
        f"controller.quorum.bootstrap.servers={address}\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://{address}\n"
        f"advertised.listeners=CONTROLLER://{address}\n"
        f"log.dirs={cluster.nodes[removed].folder}\n"
    )
    quorum(cluster, asked, "--command-config", str(properties), "add-controller")
    assert ids(status(cluster, removed)["CurrentVoters"]) == [1, 2, 3]


def test_topics_are_created_through_each_node(cluster: TestCluster) -> None:
    for number, node in ((each, cluster.nodes[each]) for each in NODES):
        where = ("--bootstrap-server", node.bootstrap)
        run_well(TOPICS, *where, "--create", "--topic", f"of-{number}", "--partitions", "2")
        assert f"of-{number}" in run_well(TOPICS, *where, "--list").lines
        run_well(TOPICS, *where, "--delete", "--topic", f"of-{number}")
        assert f"of-{number}" not in run_well(TOPICS, *where, "--list").lines


def test_the_cluster_tool_names_nodes_and_removes_one_that_is_gone(cluster: TestCluster) -> None:
    where = ("--bootstrap-server", cluster.nodes[2].bootstrap)
    cluster_id = cluster.nodes[1].node.broker.image.state.cluster_id
    assert run_well(CLUSTER, "cluster-id", *where).lines == [f"Cluster ID: {cluster_id}"]
    _, *rows = run_well(CLUSTER, "list-endpoints", *where).lines
    ports = {int(row.split()[0]): row.split()[2] for row in rows if row}
    assert ports == {
        number: node.bootstrap.rpartition(":")[2] for number, node in cluster.nodes.items()
    }
    fourth = cluster.add()
    up = run_tool(CLUSTER, "unregister", *where, "--id", str(fourth))
    assert "is up" in up.stdout + up.stderr
    cluster.stop(fourth)
    run_well(CLUSTER, "unregister", *where, "--id", str(fourth))
    _, *rows = run_well(CLUSTER, "list-endpoints", *where, "--include-fenced-brokers").lines
    assert sorted(int(row.split()[0]) for row in rows if row) == [1, 2, 3]
    assert ids(status(cluster, 2)["CurrentObservers"]) == []
