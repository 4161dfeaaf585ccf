"""Nodes that start in any order, without a seed, or somewhere else: always one cluster."""

from pathlib import Path

import pytest

from tests.process_cluster import Place, ProcessCluster, wait_for
from tools.ports import free_port

pytestmark = pytest.mark.slow


def wait_until_it_waits(cluster: ProcessCluster, number: int) -> None:
    """Return when a node has said that it has no cluster yet."""
    output = cluster.nodes[number].output
    wait_for(lambda: b"no cluster yet" in output.read_bytes(), f"node {number} to wait")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)], ids=str)
def test_three_nodes_form_one_cluster_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    cluster = ProcessCluster(tmp_path)
    try:
        for number in order:
            cluster.launch(number)
            if number != order[-1]:
                wait_until_it_waits(cluster, number)
        for number in order:
            cluster.nodes[number].wait()
        cluster.create_topic("orders", through=order[0])
        cluster.wait_until_all_agree({"orders"})
    finally:
        cluster.close()


def test_a_cluster_that_exists_does_not_need_all_of_its_seeds(tmp_path: Path) -> None:
    """Not for a node that starts again, and not for a new one."""
    with ProcessCluster(tmp_path) as cluster:
        cluster.create_topic("before", through=3)
        cluster.wait_until_all_agree({"before"})
        dead = cluster.controller()
        again = next(number for number in cluster.running() if number != dead)
        cluster.kill(dead)
        cluster.kill(again)
        cluster.start([again])
        cluster.create_topic("with-two", through=again)
        cluster.places[4] = Place("127.0.0.1", free_port(), free_port())
        cluster.start([4])
        cluster.create_topic("with-a-new-one", through=4)
        cluster.start([dead])
        wanted = {"before", "with-two", "with-a-new-one"}
        for number in cluster.running():
            wait_for(
                lambda number=number: wanted <= cluster.topics(number),  # type: ignore[misc]
                f"node {number} to have every topic",
            )
        brokers = [cluster.view(number)["brokers"] for number in cluster.running()]
        assert all(set(each) == {1, 2, 3, 4} for each in brokers)


def test_a_node_that_moves_is_found_at_its_new_address(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path) as cluster:
        cluster.create_topic("before", through=1)
        for number in (cluster.controller(), 3, 1):
            cluster.kill(number)
            cluster.places[number] = Place("127.0.0.1", free_port(), free_port())
            cluster.start([number])
            cluster.create_topic(f"moved-{number}", through=number)
            cluster.wait_until_all_agree({"before", f"moved-{number}"})


def test_two_nodes_that_move_at_once_are_found(tmp_path: Path) -> None:
    """Nobody can elect a leader before they know each other's new address."""
    with ProcessCluster(tmp_path) as cluster:
        cluster.create_topic("before", through=1)
        cluster.wait_until_all_agree({"before"})
        for number in (1, 2, 3):
            cluster.kill(number)
        for number in (1, 2):
            cluster.places[number] = Place("127.0.0.1", free_port(), free_port())
        cluster.start((1, 2, 3))
        cluster.create_topic("after", through=2)
        cluster.wait_until_all_agree({"before", "after"})
