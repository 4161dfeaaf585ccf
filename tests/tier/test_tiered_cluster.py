"""Three nodes that share a store: followers, leaders that change, nodes that begin again."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.ids import TopicName
from headrace.log.log import Log
from headrace.testing.cluster import TestCluster
from headrace.testing.store import SimulatedStore
from tests.tier.brokers import COUNT, TIERED, VALUES, produce_all

TOPIC = TopicName("orders")


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore()


@pytest.fixture
def cluster(tmp_path: Path, store: SimulatedStore) -> Iterator[TestCluster]:
    with TestCluster(nodes=3, folder=tmp_path, store=store) as running:
        yield running


def log_of(cluster: TestCluster, node_id: int) -> Log:
    partition = cluster.nodes[node_id].node.broker.replicas.find(TOPIC, 0)
    assert partition is not None
    return partition.log


def leader_of(cluster: TestCluster) -> int:
    row = cluster.nodes[cluster.controller].node.broker.image.partition(TOPIC, 0)  # type: ignore[arg-type]
    assert row is not None
    return row.leader


def fill(cluster: TestCluster, values: list[bytes] = VALUES) -> None:
    produce_all(cluster, TOPIC, values)


def all_moved(cluster: TestCluster) -> None:
    """Wait until every disk has only the last segment."""
    cluster.wait_for(
        lambda: all(len(log_of(cluster, number).segments) == 1 for number, _ in cluster.running()),
        "the move to the tier",
    )


def segments_of(store: SimulatedStore) -> list[int]:
    """Return the first offsets of the segments in the store, in order."""
    names = [key.rpartition("/")[2] for key in store.objects if key.endswith(".log")]
    return sorted(int(name.partition("-")[0]) for name in names)


def test_followers_free_their_disks_too(cluster: TestCluster) -> None:
    cluster.create_topic(TOPIC, configs=TIERED, replicas=3)
    fill(cluster)
    all_moved(cluster)
    for number in (1, 2, 3):
        log = log_of(cluster, number)
        assert log.start_offset == 0 < log.local_start_offset
        assert log.end_offset == COUNT
    assert [record.value for record in cluster.consume(TOPIC)] == VALUES


def test_another_leader_goes_on_copying_where_the_last_one_stopped(
    cluster: TestCluster, store: SimulatedStore
) -> None:
    cluster.create_topic(TOPIC, configs=TIERED, replicas=3)
    for round_ in range(3):
        fill(cluster, VALUES[round_ * 100 : (round_ + 1) * 100])
        cluster.kill(leader_of(cluster))
        down = next(number for number, node in cluster.nodes.items() if not node.is_running)
        cluster.wait_for(lambda: leader_of(cluster) not in (down, -1), "another leader")  # noqa: B023
        cluster.restart(down)
    all_moved(cluster)
    assert [record.value for record in cluster.consume(TOPIC)] == VALUES
    starts = segments_of(store)
    assert all(a < b for a, b in pairwise(starts)), "a segment was copied twice"


def test_a_leader_that_dies_within_a_copy_costs_no_record_and_leaves_no_object(
    cluster: TestCluster, store: SimulatedStore
) -> None:
    cluster.create_topic(TOPIC, configs=TIERED, replicas=3)
    store.slow_down(100)
    fill(cluster)
    cluster.wait_for(lambda: bool(unfinished(store)), "a copy under way")
    died = leader_of(cluster)
    cluster.kill(died)
    assert unfinished(store)
    store.heal()
    cluster.wait_for(lambda: leader_of(cluster) not in (died, -1), "another leader")
    cluster.restart(died)
    all_moved(cluster)
    cluster.wait_for(lambda: not unfinished(store), "the deletion of what was left")
    assert [record.value for record in cluster.consume(TOPIC)] == VALUES
    starts = segments_of(store)
    assert all(a < b for a, b in pairwise(starts)), "a segment was copied twice"


def unfinished(store: SimulatedStore) -> set[str]:
    """Return the copies that have a log and no leader epochs, which are written last."""
    logs, epochs = (
        {key.removesuffix(kind) for key in store.objects if key.endswith(kind)}
        for kind in (".log", ".leader_epoch_checkpoint")
    )
    return logs - epochs


def test_an_empty_follower_is_rebuilt_from_the_tier(cluster: TestCluster, tmp_path: Path) -> None:
    cluster.create_topic(TOPIC, configs=TIERED, replicas=3)
    fill(cluster)
    all_moved(cluster)
    victim = next(
        number for number in (1, 2, 3) if number not in (leader_of(cluster), cluster.controller)
    )
    cluster.stop(victim)
    shutil.rmtree(tmp_path / f"node-{victim}" / f"{TOPIC}-0")
    cluster.restart(victim)
    cluster.wait_for(lambda: log_of(cluster, victim).end_offset == COUNT, "the rebuild")
    log = log_of(cluster, victim)
    assert log.start_offset == 0 < log.local_start_offset
    leaders = log_of(cluster, leader_of(cluster))
    assert log.epochs.entries() == leaders.epochs.entries()
    for number in (1, 2, 3):
        if number != victim:
            cluster.stop(number)
            cluster.wait_for(lambda: leader_of(cluster) != number, "another leader")  # noqa: B023
            cluster.restart(number)


def test_a_topic_deleted_while_nodes_are_down_leaves_nothing(
    cluster: TestCluster, store: SimulatedStore
) -> None:
    cluster.create_topic(TOPIC, configs=TIERED, replicas=3)
    fill(cluster)
    all_moved(cluster)
    cluster.kill(next(each for each in (1, 2, 3) if each != cluster.controller))

    async def delete() -> None:
        from headrace.client import Admin  # noqa: PLC0415

        async with Admin(cluster.bootstrap) as admin:
            await admin.delete_topic(TOPIC)

    cluster.run(delete())
    cluster.wait_for(
        lambda: not [key for key in store.objects if not key.startswith(".headrace/")],
        "the deletion of all objects",
    )
