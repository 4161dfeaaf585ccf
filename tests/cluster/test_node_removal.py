"""A node whose data folder was lost: refused, removed, and back under its id."""

import shutil
from collections.abc import Iterator
from functools import partial

import pytest
from click.testing import CliRunner

from headrace.cli.program import headrace
from headrace.client import Admin
from headrace.cluster.joining import CannotJoin
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.testing.cluster import TestCluster

LOST = 3


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3) as cluster:
        yield cluster


def remove(cluster: TestCluster, node: int) -> tuple[int, str]:
    """Run `headrace cluster remove`; return its exit code and what it says."""
    result = CliRunner().invoke(
        headrace, ["cluster", "remove", str(node), "--yes", "--bootstrap", cluster.bootstrap]
    )
    return result.exit_code, result.output


def wait_fenced(cluster: TestCluster, node: int) -> None:
    watcher = cluster.nodes[cluster.controller].node

    def is_fenced() -> bool:
        broker = watcher.broker.image.broker(BrokerId(node))
        return broker is not None and broker.is_fenced

    cluster.wait_for(is_fenced, f"node {node} to be fenced")


def members(cluster: TestCluster, node: int) -> tuple[int, ...]:
    return cluster.nodes[node].node.broker.quorum.driver.state.membership.members


def is_gone(cluster: TestCluster, seen_by: int) -> bool:
    return LOST not in members(cluster, seen_by)


def test_a_node_whose_folder_was_lost_joins_anew_once_it_is_removed(cluster: TestCluster) -> None:
    cluster.kill(LOST)
    wait_fenced(cluster, LOST)
    shutil.rmtree(cluster.nodes[LOST].folder)
    with pytest.raises(CannotJoin, match=f"headrace cluster remove {LOST}"):
        cluster.nodes[LOST].start()

    code, text = remove(cluster, LOST)
    assert (code, text) == (0, f"node {LOST} is removed\n")
    for node, _ in cluster.running():
        image = cluster.nodes[node].node.broker.image
        cluster.wait_for(partial(is_gone, cluster, node), "it to be gone")
        assert image.broker(BrokerId(LOST)) is None
        assert image.node(BrokerId(LOST)) is None

    cluster.nodes[LOST].start()
    cluster.wait_for(
        lambda: cluster.nodes[LOST].node.broker.quorum.driver.state.membership.voters == (1, 2, 3),
        "it to vote again",
    )
    cluster.nodes[LOST].create_topic("by-the-new-one")


def test_a_node_with_replicas_or_a_node_that_is_up_is_not_removed(cluster: TestCluster) -> None:
    for node in cluster.nodes:
        cluster.create_topic(f"of-{node}", partitions=3)
    code, text = remove(cluster, LOST)
    assert code == 1
    assert "is up" in text
    replicas = cluster.nodes[1].node.broker.image.replica_count(BrokerId(LOST))
    assert replicas > 0
    cluster.kill(LOST)
    wait_fenced(cluster, LOST)
    code, text = remove(cluster, LOST)
    assert code == 1
    assert f"{replicas} replicas" in text
    assert members(cluster, 1) == (1, 2, 3)
    code, text = remove(cluster, 9)
    assert code == 1
    assert "not registered" in text


def test_the_id_is_free_for_another_node_and_not_for_the_one_that_was_removed(
    cluster: TestCluster,
) -> None:
    cluster.stop(LOST)
    wait_fenced(cluster, LOST)

    async def unregister() -> int:
        async with Admin(cluster.nodes[2].bootstrap) as admin:
            await admin.unregister_broker(LOST)
            try:
                await admin.unregister_broker(LOST)
            except KafkaError as error:
                return error.code
            return 0

    assert cluster.run(unregister()) == ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(CannotJoin, match="empty data folder"):
        cluster.nodes[LOST].start()
    shutil.rmtree(cluster.nodes[LOST].folder)
    cluster.nodes[LOST].start()
    cluster.wait_for(lambda: LOST in members(cluster, 1), "another node 3")


def test_a_node_that_lives_when_it_is_removed_stops(cluster: TestCluster) -> None:
    """It was not heard from, so it was taken for dead."""
    cluster.isolate(LOST)
    wait_fenced(cluster, LOST)
    assert remove(cluster, LOST)[0] == 0
    life = cluster.nodes[LOST].node
    cluster.heal()
    cluster.wait_for(lambda: life.broker.quorum.driver.failure is not None, "it to give up")
    cluster.nodes[LOST].crash()
