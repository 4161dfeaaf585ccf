"""Nodes that leave: with the command itself, under load, dead, and not after all."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from click.testing import Result

from headrace.client import Admin, NewTopic, TopicPartition
from headrace.client.outcomes import values_of
from headrace.ids import BrokerId, TopicName
from headrace.metadata.state import NodeState
from headrace.testing.cluster import TestCluster
from tests.cluster.decommissioning import (
    Load,
    command,
    image_of,
    node_ports,
    replicas_on,
    stopping_when_told,
)

LEAVING = 4


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    settings = {"offsets.topic.num.partitions": "4", "default.replication.factor": "3"}
    with TestCluster(nodes=4, settings=settings) as cluster:
        yield cluster


def test_a_node_leaves_under_load_and_no_client_sees_an_error(cluster: TestCluster) -> None:
    cluster.create_topic("orders", partitions=8, replicas=3)
    cluster.create_topic("alone", partitions=4, replicas=1)
    cluster.produce("alone", *(f"record {each}" for each in range(40)))
    with Load(cluster, "orders") as load, stopping_when_told(cluster):
        cluster.wait_for(lambda: len(load.seen) > 50, "some load")
        planned = command(cluster, "cluster", "decommission", str(LEAVING), "--dry-run", "--json")
        assert planned.exit_code == 0, planned.output
        moves = json.loads(planned.stdout)["moves"]
        assert len(moves) == replicas_on(cluster, LEAVING) > 0
        assert image_of(cluster).node(LEAVING).state is not NodeState.DRAINING  # type: ignore[union-attr]
        done = command(cluster, "cluster", "decommission", str(LEAVING), "--yes", "--json")
        assert done.exit_code == 0, done.output
        before = len(load.seen)
        cluster.wait_for(lambda: len(load.seen) > before + 50, "load on what is left")
    assert load.errors == []
    assert len(load.seen) == load.sent
    assert not cluster.nodes[LEAVING].is_running
    image = image_of(cluster)
    assert image.node(LEAVING) is None
    assert image.broker(BrokerId(LEAVING)) is None
    assert {
        each for topic in image.topics() for row in topic.partitions for each in row.replicas
    } == {1, 2, 3}
    driver = cluster.nodes[1].node.broker.quorum.driver
    cluster.wait_for(lambda: driver.state.membership.members == (1, 2, 3), "it to have no seat")
    assert len(cluster.consume("alone")) == 40


def test_a_voter_that_leaves_is_replaced_first_and_its_id_is_free(cluster: TestCluster) -> None:
    leaving = cluster.controller
    with stopping_when_told(cluster):
        done = command(cluster, "cluster", "decommission", str(leaving), "--yes")
        assert done.exit_code == 0, done.output
    assert "can be switched off" in done.output
    expected = tuple(each for each in cluster.nodes if each != leaving)
    watcher = cluster.nodes[expected[0]].node.broker.quorum.driver
    cluster.wait_for(lambda: watcher.state.membership.voters == expected, "three voters")
    shutil.rmtree(cluster.nodes[leaving].folder)
    cluster._give_seeds()
    cluster.nodes[leaving].start()
    cluster.wait_for(lambda: leaving in watcher.state.membership.members, "another node")


def test_a_dead_node_is_replaced_from_the_others(cluster: TestCluster) -> None:
    cluster.create_topic("orders", partitions=8, replicas=3)
    cluster.produce("orders", *(f"record {each}" for each in range(100)))
    dead = next(each for each in (3, 2) if each != cluster.controller)
    refused = command(cluster, "cluster", "decommission", str(dead), "--dead", "--yes")
    assert refused.exit_code == 1
    assert "is up" in refused.output
    cluster.kill(dead)

    def is_fenced() -> bool:
        broker = image_of(cluster).broker(BrokerId(dead))
        return broker is not None and broker.is_fenced

    cluster.wait_for(is_fenced, "it to be fenced")
    refused = command(cluster, "cluster", "decommission", str(dead), "--yes")
    assert refused.exit_code == 1
    assert "--dead" in refused.output
    done = command(cluster, "cluster", "decommission", str(dead), "--dead", "--yes", "--rate", "0")
    assert done.exit_code == 0, done.output
    image = image_of(cluster)
    assert image.broker(BrokerId(dead)) is None
    for row in image.topic(TopicName("orders")).partitions:  # type: ignore[union-attr]
        assert len(row.isr) == 3
        assert dead not in row.replicas
    assert len(cluster.consume("orders")) == 100


def test_only_copies_on_a_dead_node_are_not_given_up(cluster: TestCluster) -> None:
    cluster.create_topic("alone", partitions=4, replicas=1)
    row = image_of(cluster).topic(TopicName("alone")).partitions[0]  # type: ignore[union-attr]
    dead = row.leader
    cluster.kill(dead)
    cluster.wait_for(lambda: image_of(cluster).broker(dead).is_fenced, "it to be fenced")  # type: ignore[union-attr]
    refused = command(cluster, "cluster", "decommission", str(dead), "--dead", "--yes")
    assert refused.exit_code == 1
    assert "only copy in sync" in refused.output
    assert image_of(cluster).node(dead).state is not NodeState.DRAINING  # type: ignore[union-attr]


def test_a_node_that_is_to_leave_gets_nothing_and_stays_after_an_abort(
    cluster: TestCluster,
) -> None:
    cluster.create_topic("orders", partitions=8, replicas=3)
    cluster.create_topic("wide", partitions=1, replicas=4)
    refused = command(cluster, "cluster", "decommission", str(LEAVING), "--yes")
    assert refused.exit_code == 1
    assert "wide-0" in refused.output
    assert "--fewer-replicas" in refused.output
    assert command(cluster, "cluster", "decommission", "9").exit_code == 1
    node = cluster.nodes[LEAVING].node

    async def mark() -> None:
        departures = node.cluster.operator._departures
        assert departures is not None
        await departures.start(node.broker.image, BrokerId(LEAVING), is_dead=False)

    cluster.nodes[LEAVING].run(mark())
    image = node.broker.image
    cluster.wait_for(lambda: image.leader_count(BrokerId(LEAVING)) == 0, "it to lead nothing")
    had = image.replica_count(BrokerId(LEAVING))
    cluster.create_topic("later", partitions=8, replicas=3)
    assert replicas_on(cluster, LEAVING) == had
    kept = command(cluster, "cluster", "decommission", str(LEAVING), "--abort")
    assert kept.exit_code == 0, kept.output
    assert image_of(cluster).node(LEAVING).state is NodeState.LEARNER  # type: ignore[union-attr]
    again = command(cluster, "cluster", "decommission", str(LEAVING), "--abort")
    assert again.exit_code == 1


def test_moves_that_hang_are_undone_by_an_abort_or_finished_by_the_next_run(
    cluster: TestCluster,
) -> None:
    """The command was killed while moves were in progress to a node that is down."""
    assigned = {0: (LEAVING, 1), 1: (LEAVING, 1)}
    slow = next(each for each in (2, 3) if each != cluster.controller)

    async def make() -> None:
        async with Admin(cluster.bootstrap) as admin:
            new = NewTopic("orders", assignments=assigned)
            values_of(await admin.create_topics([new]))

    async def move() -> None:
        async with Admin(cluster.bootstrap) as admin:
            keys = [TopicPartition("orders", each) for each in assigned]
            values_of(await admin.alter_reassignments(dict.fromkeys(keys, (1, slow))))

    cluster.run(make())
    node = cluster.nodes[1].node
    departures = node.cluster.operator._departures
    assert departures is not None
    cluster.kill(slow)
    cluster.nodes[1].run(departures.start(node.broker.image, BrokerId(LEAVING), is_dead=False))
    image = node.broker.image
    cluster.wait_for(lambda: image.leader_count(BrokerId(LEAVING)) == 0, "it to lead nothing")
    cluster.run(move())
    kept = command(cluster, "cluster", "decommission", str(LEAVING), "--abort")
    assert kept.exit_code == 0, kept.output
    assert "2 moves were cancelled" in kept.output
    rows = image_of(cluster).topic(TopicName("orders")).partitions  # type: ignore[union-attr]
    assert [set(row.replicas) for row in rows] == [{LEAVING, 1}] * 2
    cluster.run(move())
    cluster.restart(slow)
    with stopping_when_told(cluster):
        done = command(cluster, "cluster", "decommission", str(LEAVING), "--yes")
    assert done.exit_code == 0, done.output
    rows = image_of(cluster).topic(TopicName("orders")).partitions  # type: ignore[union-attr]
    assert [set(row.isr) for row in rows] == [{1, slow}] * 2


def test_ctrl_c_leaves_the_moves_running_and_an_abort_undoes_them(cluster: TestCluster) -> None:
    cluster.create_topic("orders", partitions=4, replicas=3)
    for index in range(4):
        cluster.produce("orders", *[b"x" * 10_000] * 50, partition=index)
    had = replicas_on(cluster, LEAVING)
    options = ["--bootstrap", cluster.bootstrap, "--node", node_ports(cluster)]
    arguments = ["cluster", "decommission", str(LEAVING), "--yes", "--rate", "10kB", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509  it takes no lock
    )
    image = image_of(cluster)
    try:
        cluster.wait_for(lambda: any(image.moving()), "moves")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "--abort" in said
    assert any(image.moving())
    kept = command(cluster, "cluster", "decommission", str(LEAVING), "--abort", "--json")
    assert kept.exit_code == 0, kept.output
    assert json.loads(kept.stdout)["cancelled_moves"] > 0
    cluster.wait_for(lambda: not any(image.moving()), "no moves")
    assert replicas_on(cluster, LEAVING) == had
    assert not any("throttled" in name for row in image.state.configs.values() for name in row)


def test_an_abort_ends_the_command_that_moves(cluster: TestCluster) -> None:
    """It runs in another terminal, and would go on without its rate limit."""

    async def make() -> None:
        async with Admin(cluster.bootstrap) as admin:
            assignments = dict.fromkeys(range(12), (LEAVING, 1))
            values_of(await admin.create_topics([NewTopic("orders", assignments=assignments)]))

    cluster.run(make())
    for partition in range(12):
        cluster.produce("orders", *[b"x" * 10_000] * 20, partition=partition)
    had = replicas_on(cluster, LEAVING)
    image = image_of(cluster)
    outcomes: list[Result] = []
    arguments = ("decommission", str(LEAVING), "--yes", "--rate", "20kB", "--at-once", "1")
    thread = threading.Thread(
        target=lambda: outcomes.append(command(cluster, "cluster", *arguments))
    )
    thread.start()
    cluster.wait_for(lambda: any(image.moving()), "moves")
    kept = command(cluster, "cluster", "decommission", str(LEAVING), "--abort")
    assert kept.exit_code == 0, kept.output
    thread.join()
    assert outcomes[0].exit_code == 1
    assert not any(image.moving())
    assert replicas_on(cluster, LEAVING) >= had - 2
    assert image.node(LEAVING).state is NodeState.LEARNER  # type: ignore[union-attr]
    assert not any("throttled" in name for row in image.state.configs.values() for name in row)


def heed_ctrl_c() -> None:
    """Make a process end by Ctrl-C even if the tests run in the background, where it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
