"""Spreading partitions after a node was added, with the command itself; one plan at a time."""

import json
import threading
from collections.abc import Iterator, Mapping

import pytest
from click.testing import Result

from headrace.cli.throttling import clear_throttles, set_throttles
from headrace.client import Admin
from headrace.client.configs import Resource
from headrace.client.outcomes import values_of
from headrace.client.topics import NewTopic
from headrace.cluster.balancing.terms import Move
from headrace.cluster.placement_lease import PLACEMENT, Held
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, TopicName
from headrace.metadata.image import Image
from headrace.testing.cluster import TestCluster
from tests.cluster.decommissioning import command, image_of, replicas_on, stopping_when_told

NODES = (1, 2, 3)


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    settings = {"offsets.topic.num.partitions": "3"}
    with TestCluster(nodes=3, settings=settings) as cluster:
        for name in ("orders", "payments"):
            cluster.create_topic(name, partitions=12, replicas=2)
            cluster.produce(name, *(f"record {each}" * 20 for each in range(120)))
        yield cluster


def rebalance(cluster: TestCluster, *arguments: str) -> Result:
    return command(cluster, "cluster", "rebalance", "--yes", "--sample", "0", *arguments)


def test_a_new_node_gets_its_share_of_replicas_and_leaders(cluster: TestCluster) -> None:
    added = cluster.add()
    shown = rebalance(cluster, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert f"node {added}" in shown.output
    assert "->" in shown.output
    assert replicas_on(cluster, added) == 0
    done = rebalance(cluster, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["moved"] == len(document["moves"])
    image = image_of(cluster)
    assert 10 <= image.replica_count(BrokerId(added)) <= 14  # of 48
    cluster.wait_for(lambda: 4 <= image.leader_count(BrokerId(added)) <= 8, "its share of leaders")
    again = rebalance(cluster)
    assert again.exit_code == 0
    assert "nothing to do" in again.output
    assert image.configs is not None
    assert not any("throttled" in name for row in image.state.configs.values() for name in row)
    for name in ("orders", "payments"):
        assert len(cluster.consume(name)) == 120


def test_one_plan_is_carried_out_at_a_time_and_a_decommission_takes_over(
    cluster: TestCluster,
) -> None:
    added = cluster.add()
    ended = threading.Event()
    outcomes: list[Result] = []

    def run_auto() -> None:
        arguments = (
            "--auto",
            "--interval",
            "0.1",
            "--rounds",
            "2",
            "--at-once",
            "1",
            "--rate",
            "20kB",
        )
        outcomes.append(rebalance(cluster, *arguments))
        ended.set()

    node = cluster.nodes[cluster.controller].node
    lease = node.cluster.operator._placement
    assert lease is not None
    image = node.broker.image
    held = cluster.nodes[cluster.controller].run(lease.hold(image, 0))
    refused = rebalance(cluster)
    assert refused.exit_code == 1
    assert "another rebalance or decommission" in refused.output
    cluster.nodes[cluster.controller].run(lease.release(node.broker.image, held.version))
    thread = threading.Thread(target=run_auto)
    thread.start()
    cluster.wait_for(lambda: bool(image.leases(PLACEMENT)) or ended.is_set(), "a round")
    with stopping_when_told(cluster):
        done = command(cluster, "cluster", "decommission", str(added), "--yes")
    thread.join()
    assert done.exit_code == 0, done.output
    assert outcomes[0].exit_code == 0, outcomes[0].output
    assert image_of(cluster).node(added) is None
    assert not image_of(cluster).leases(PLACEMENT)
    assert image_of(cluster).drain(PLACEMENT) is None


def test_an_abort_ends_the_command_that_moves_before_it_takes_the_limit_away(
    cluster: TestCluster,
) -> None:
    cluster.run(_create_on(cluster.bootstrap, "big", dict.fromkeys(range(12), (1,))))
    for partition in range(12):
        cluster.produce("big", *[b"x" * 10_000] * 20, partition=partition)
    image = image_of(cluster)
    outcomes: list[Result] = []
    slow = ("--at-once", "1", "--rate", "20kB")
    thread = threading.Thread(target=lambda: outcomes.append(rebalance(cluster, *slow)))
    thread.start()
    cluster.wait_for(lambda: any(image.moving()), "moves")
    aborted = rebalance(cluster, "--abort")
    assert aborted.exit_code == 0, aborted.output
    thread.join()
    assert outcomes[0].exit_code == 1
    assert not any(image.moving())
    assert not any("throttled" in name for row in image.state.configs.values() for name in row)
    topic = image.topic(TopicName("big"))
    assert topic is not None
    assert len([row for row in topic.partitions if tuple(row.replicas) == (1,)]) >= 10


def test_two_plans_that_begin_at_once_through_two_nodes_are_one(cluster: TestCluster) -> None:
    """Both look while nobody has the lease; one of them gets it, and keeps it."""
    found: list[Held | KafkaError] = []
    threads = [
        threading.Thread(target=lambda node: found.append(_hold(cluster, node)), args=(node,))
        for node in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = [each for each in found if isinstance(each, Held)]
    refused = [each for each in found if isinstance(each, KafkaError)]
    assert [each.code for each in refused] == [ErrorCode.REASSIGNMENT_IN_PROGRESS]
    assert len(held) == 1


def test_a_limit_of_more_moves_than_a_config_can_name_is_that_of_the_topic(
    cluster: TestCluster,
) -> None:
    cluster.create_topic("many", 1)
    moves = [Move("many", each, (1, 2, 3), (4, 2, 3), 0, "") for each in range(2500)]

    async def work() -> tuple[dict[str, str | None], dict[str, str | None]]:
        async with Admin(cluster.bootstrap) as admin:
            await set_throttles(admin, NODES, moves, 1000)
            limited = await _own_configs(admin, "many")
            await clear_throttles(admin, NODES, ["many"])
            return limited, await _own_configs(admin, "many")

    limited, cleared = cluster.run(work())
    assert limited["leader.replication.throttled.replicas"] == "*"
    assert "throttled" not in str(cleared)


async def _own_configs(admin: Admin, topic: str) -> dict[str, str | None]:
    resource = Resource.topic(topic)
    rows = values_of(await admin.describe_configs([resource]))[resource]
    return {row.name: row.value for row in rows if not row.is_default}


async def _create_on(bootstrap: str, name: str, assignments: Mapping[int, tuple[int, ...]]) -> None:
    async with Admin(bootstrap) as admin:
        values_of(await admin.create_topics([NewTopic(name, assignments=assignments)]))


def _hold(cluster: TestCluster, node_id: int) -> Held | KafkaError:
    lease = cluster.nodes[node_id].node.cluster.operator._placement
    assert lease is not None
    try:
        return cluster.nodes[node_id].run(lease.hold(Image(), 0))  # it has not heard of any yet
    except KafkaError as error:
        return error


def test_moves_are_cancelled_by_an_abort(cluster: TestCluster) -> None:
    done = rebalance(cluster, "--abort")
    assert done.exit_code == 0, done.output
    assert "0 moves" in done.output
