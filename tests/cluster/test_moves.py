"""Moves of partitions in a real cluster: seen, held back, cancelled, aborted and finished."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.client import Admin, Producer, Resource, ResourceType
from headrace.client.topics import NewTopic, TopicPartition
from headrace.cluster import operator_words as words
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.cluster import TestCluster
from tests.process_cluster import wait_for

RATE = "20000"
RECORD = b"x" * 10_000
RECORDS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    settings = {"replica.fetch.max.bytes": "20000", "auto.leader.rebalance.enable": "false"}
    with TestCluster(nodes=3, settings=settings) as cluster:
        yield cluster


def ask(cluster: TestCluster, method: str, *arguments: Any, **options: Any) -> Any:
    async def work() -> Any:
        async with Admin(cluster.bootstrap) as admin:
            return await getattr(admin, method)(*arguments, **options)

    return asyncio.run(work())


def moves(cluster: TestCluster, *arguments: str) -> Result:
    ports = ",".join(node.node.cluster.address for _, node in cluster.running())
    return CliRunner().invoke(headrace, ["cluster", "moves", *arguments, "--node", ports])


def create(cluster: TestCluster, topic: str, *, records: int = 0) -> tuple[TopicPartition, Any]:
    """Create a topic of one partition with two replicas; return it, and the node without one."""
    ask(cluster, "create_topic", topic, 1, 2)

    async def send() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for _ in range(records):
                await (await producer.send(topic, RECORD))  # a batch of its own

    asyncio.run(send())
    partition = TopicPartition(topic, 0)
    return partition, row(cluster, partition)


def row(cluster: TestCluster, partition: TopicPartition) -> Any:
    return ask(cluster, "describe_topics", [partition.topic])[partition.topic].partitions[0]


def throttle(cluster: TestCluster, topic: str, rate: str | None) -> None:
    """Throttle all moves to a topic, or none."""
    names = [f"{each}.replication.throttled" for each in ("leader", "follower")]
    replicas = {f"{name}.replicas": "*" for name in names}
    rates = [f"{name}.rate" for name in names]
    ask(cluster, "alter_configs", Resource(ResourceType.TOPIC, topic), set=replicas)
    for node in (1, 2, 3):
        resource = Resource(ResourceType.BROKER, str(node))
        if rate is None:
            ask(cluster, "alter_configs", resource, unset=rates)
        else:
            ask(cluster, "alter_configs", resource, set=dict.fromkeys(rates, rate))


def begin_slowly(cluster: TestCluster, topic: str) -> tuple[TopicPartition, Any, int]:
    """Begin a move that takes long, away from the leader; return what was before, and the node."""
    partition, before = create(cluster, topic, records=RECORDS)
    throttle(cluster, topic, RATE)
    (target,) = {1, 2, 3} - set(before.replicas)
    stays = before.replicas[1]
    ask(cluster, "alter_reassignments", {partition: [target, stays]})
    wait_for(lambda: "CatchUp" in moves(cluster).output, "a move that copies")
    return partition, before, target


def assert_is_back(cluster: TestCluster, partition: TopicPartition, before: Any, gone: int) -> None:
    after = row(cluster, partition)
    assert (after.leader_id, set(after.replicas)) == (before.leader_id, set(before.replicas))
    assert ask(cluster, "list_reassignments") == {}
    folder = cluster.nodes[gone].folder / f"{partition.topic}-0"
    wait_for(lambda: not folder.exists(), "the files of the copy to go")


def test_a_throttled_move_shows_its_progress_and_ends_when_it_may(cluster: TestCluster) -> None:
    partition, before, target = begin_slowly(cluster, "slow")
    (shown,) = json.loads(moves(cluster, "--json").output)
    assert (shown["topic"], shown["phase"], shown["target"]) == ("slow", "CatchUp", target)
    assert 0 < shown["lag"] <= RECORDS
    assert 0 < shown["copied_bytes"] < shown["total_bytes"]
    assert shown["source"] == [before.leader_id]
    assert "state" in shown
    assert before.leader_id in row(cluster, partition).in_sync
    throttle(cluster, "slow", None)
    wait_for(lambda: not ask(cluster, "list_reassignments"), "the move to end")
    after = row(cluster, partition)
    assert set(after.replicas) == set(after.in_sync) == {target, before.replicas[1]}
    assert "no partition is on the move" in moves(cluster).output
    late = moves(cluster, "abort", shown["migration_id"])
    assert late.exit_code == 1
    assert "has ended: complete" in late.output


@pytest.mark.parametrize("by", ["topic", "id", "cancellation"])
def test_a_move_that_is_called_off_leaves_nothing(cluster: TestCluster, by: str) -> None:
    partition, before, target = begin_slowly(cluster, f"back-by-{by}")
    if by == "cancellation":
        ask(cluster, "cancel_reassignments", [partition])
    else:
        (shown,) = json.loads(moves(cluster, "list", "--json").output)
        name = partition.topic if by == "topic" else shown["migration_id"]
        aborted = moves(cluster, "abort", name)
        assert aborted.exit_code == 0, aborted.output
        assert f"{partition.topic}:0 is aborted" in aborted.output
    assert_is_back(cluster, partition, before, target)
    ends = cluster.nodes[1].node.broker.image.state.finished_migrations.values()
    assert any(end.startswith("aborted: ") for end in ends)


def test_all_moves_of_a_topic_are_aborted_however_many_there_are() -> None:
    count = words.ABORTED_AT_ONCE + 100
    settings = {"auto.leader.rebalance.enable": "false"}
    with TestCluster(nodes=3, settings=settings) as cluster:
        topic = NewTopic("wide", assignments=dict.fromkeys(range(count), (1,)))
        ask(cluster, "create_topics", [topic])
        gone = next(node for node in (2, 3) if node != cluster.controller)
        cluster.kill(gone)
        places = [TopicPartition("wide", each) for each in range(count)]
        ask(cluster, "alter_reassignments", dict.fromkeys(places, (gone,)))
        image = cluster.nodes[cluster.controller].node.broker.image
        assert len(list(image.moving())) == count
        aborted = moves(cluster, "abort", "wide", "--json")
        assert aborted.exit_code == 0, aborted.output
        assert {row["partition"] for row in json.loads(aborted.stdout)} == set(range(count))
        assert not any(image.moving())


def test_what_does_not_move_cannot_be_aborted(cluster: TestCluster) -> None:
    partition, _ = create(cluster, "still")
    for which in ("still", "still:0", "nothing", "still:7", f"{0:08}-0000-0000-0000-{0:012}"):
        assert moves(cluster, "abort", which).exit_code == 1
    assert moves(cluster, "abort", "still:x").exit_code == 2
    refused = ask(cluster, "cancel_reassignments", [partition])[partition]
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_replica_that_moved_away_while_its_node_was_down_is_deleted_when_it_is_back(
    cluster: TestCluster,
) -> None:
    partition, before = create(cluster, "away", records=3)
    leaves = before.replicas[1]
    (target,) = {1, 2, 3} - set(before.replicas)
    data = cluster.nodes[leaves].folder / "away-0"
    assert data.exists()
    cluster.stop(leaves)
    ask(cluster, "alter_reassignments", {partition: [before.leader_id, target]})
    wait_for(lambda: not ask(cluster, "list_reassignments"), "the move to end")
    assert data.exists()
    cluster.restart(leaves)
    wait_for(lambda: not data.exists(), "the files to go")
