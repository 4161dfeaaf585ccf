"""Moves of partitions whose nodes are killed at each phase: they go on, or are undone."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.client import Producer
from headrace.client.topics import TopicPartition
from headrace.metadata.phases import Phase
from tests.crash.replicated_producers import values_by_partition
from tests.process_cluster import ProcessCluster, wait_for

NODES = (1, 2, 3, 4)
ROLES = ("source", "target", "controller")
RECORDS = 200
SAMPLE = {
    ("source", Phase.LEADERSHIP_TRANSFER),
    ("target", Phase.PROMOTE_LEARNER),
    ("controller", Phase.CUTOVER),
}
"""What is run with the other tests; the rest is for those who have the time."""
MATRIX = [
    pytest.param(
        role,
        phase,
        marks=() if (role, phase) in SAMPLE else pytest.mark.exhaustive,
        id=f"{role}-{phase.value}",
    )
    for role in ROLES
    for phase in Phase
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class DoomedNodes(ProcessCluster):
    """Four nodes, each of which dies at the phase that its file names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"auto.leader.rebalance.enable": "false"}, count=len(NODES))

    def program_of(self, number: int) -> tuple[str, ...]:
        return ("tests.crash.doomed_mover", str(self.doom(number)))

    def doom(self, number: int) -> Path:
        return self.folder / f"{number}.doom"

    def row(self, topic: str) -> Any:
        return self.admin("describe_topics", [topic])[topic].partitions[0]

    def wait_for_death(self, number: int) -> None:
        wait_for(lambda: self.nodes[number].status is not None, f"node {number} to die")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `headrace cluster moves`, by the word of the nodes that run."""
        nodes = ",".join(self.places[number].node_address for number in self.running())
        command = (sys.executable, "-m", "headrace", "cluster", "moves", *arguments)
        full = (*command, "--node", nodes)
        return subprocess.run(full, check=False, capture_output=True, text=True)


class Moved(NamedTuple):
    """A partition that moves: one node stays, one leaves, one comes."""

    topic: str
    stays: int
    source: int
    target: int
    controller: int

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoomedNodes]:
    with DoomedNodes(tmp_path_factory.mktemp("doomed")) as cluster:
        yield cluster


@pytest.fixture
def moved(cluster: DoomedNodes, request: pytest.FixtureRequest) -> Moved:
    """A topic with records on two nodes, of which none is the controller."""
    cluster.start(number for number in NODES if number not in cluster.nodes)
    controller = cluster.controller()
    source, stays, target = (number for number in NODES if number != controller)
    topic = request.node.name.translate(str.maketrans("[]", "..")).strip(".")[-200:]
    cluster.create_topic(topic, partitions=1, replicas=2)
    place(cluster, topic, [source, stays])
    write(cluster, topic)
    return Moved(topic, stays, source, target, controller)


def place(cluster: DoomedNodes, topic: str, replicas: list[int]) -> None:
    """Put a partition on nodes, and wait until it is there and led by the first."""
    partition = TopicPartition(topic, 0)
    cluster.admin("alter_reassignments", {partition: replicas})

    def is_placed() -> bool:
        row = cluster.row(topic)
        if row.leader_id != replicas[0] and set(row.in_sync) == set(replicas) == set(row.replicas):
            cluster.admin("elect_leaders", [partition])
        return (row.leader_id, sorted(row.in_sync)) == (replicas[0], sorted(replicas)) and len(
            row.replicas
        ) == len(replicas)

    wait_for(is_placed, f"{topic} on {replicas}")


def write(cluster: DoomedNodes, topic: str) -> None:
    async def send() -> None:
        async with Producer(cluster.bootstrap) as producer:
            sent = [await producer.send(topic, str(number).encode()) for number in range(RECORDS)]
            for each in sent:
                await each

    asyncio.run(send())


def assert_is_on(cluster: DoomedNodes, moved: Moved, replicas: set[int]) -> None:
    """Check that the copies are in sync and equal, and that no other node has files of it."""

    def is_in_sync() -> bool:
        row = cluster.row(moved.topic)
        return set(row.replicas) == set(row.in_sync) == replicas and row.leader_id in replicas

    wait_for(is_in_sync, f"{moved.topic} to be on {replicas}")
    assert moved.partition not in cluster.admin("list_reassignments")
    values = values_by_partition(cluster.bootstrap, moved.topic)[0]
    assert list(map(int, values)) == list(range(RECORDS))

    def folders() -> set[int]:
        return {
            each for each in NODES if (cluster.folder / str(each) / f"{moved.topic}-0").exists()
        }

    wait_for(lambda: folders() == replicas, "only the replicas to have files")
    assert len({cluster.log_digest(each, moved.partition) for each in replicas}) == 1
    assert "no partition is on the move" in cluster.command().stdout


@pytest.mark.parametrize(("role", "phase"), MATRIX)
def test_a_move_goes_on_after_a_node_was_killed_twice(
    cluster: DoomedNodes, moved: Moved, role: str, phase: Phase
) -> None:
    victim: int = getattr(moved, role)
    cluster.doom(victim).write_text(phase.value)
    cluster.admin("alter_reassignments", {moved.partition: [moved.target, moved.stays]})
    cluster.wait_for_death(victim)
    for _ in range(2):  # it is killed again as soon as it serves
        cluster.kill(victim)
        cluster.start([victim])
    assert_is_on(cluster, moved, {moved.target, moved.stays})


@pytest.mark.parametrize(
    "phase",
    [
        Phase.CATCH_UP,
        pytest.param(Phase.ADD_LEARNER, marks=pytest.mark.exhaustive),
        pytest.param(Phase.PROMOTE_LEARNER, marks=pytest.mark.exhaustive),
        pytest.param(Phase.LEADERSHIP_TRANSFER, marks=pytest.mark.exhaustive),
    ],
    ids=lambda phase: phase.value,
)
def test_a_move_to_a_node_that_stays_dead_explains_itself_and_is_undone(
    cluster: DoomedNodes, moved: Moved, phase: Phase
) -> None:
    cluster.doom(moved.target).write_text(phase.value)
    cluster.admin("alter_reassignments", {moved.partition: [moved.target, moved.stays]})
    cluster.wait_for_death(moved.target)
    cluster.kill(moved.target)
    explained = f"stuck: node {moved.target} is down"

    def is_stuck_or_over() -> bool:
        shown = cluster.command("list").stdout
        return explained in shown or "no partition is on the move" in shown

    wait_for(is_stuck_or_over, "an explanation")
    aborted = cluster.command("abort", f"{moved.topic}:0")
    row = cluster.row(moved.topic)
    if aborted.returncode:  # it was in sync before it died, and the move was over in time
        assert "no reassignment" in aborted.stdout + aborted.stderr, aborted
        expected = {moved.target, moved.stays}
    else:
        assert "is aborted" in aborted.stdout
        assert set(row.replicas) == {moved.source, moved.stays}
        assert row.leader_id in row.replicas
        expected = {moved.source, moved.stays}
    cluster.start([moved.target])
    assert_is_on(cluster, moved, expected)
