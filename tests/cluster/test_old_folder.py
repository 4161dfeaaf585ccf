"""The folder of a node that was removed, started again beside one that does not know it yet."""

import asyncio
import contextlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from headrace import config
from headrace.cluster.joining import CannotJoin
from headrace.cluster.tokens import EXPIRES_AT_S_MAX, create_token
from headrace.config import load_settings
from headrace.ids import TopicName
from headrace.node.node import Node
from headrace.raft.errors import RaftStopped
from headrace.testing.cluster import TestCluster
from tests.cluster.encrypted import SECRET, encrypted
from tests.cluster.test_node_removal import remove, wait_fenced

LOST = 3
LATE = TopicName("late")
ELECTIONS_SECONDS = 3
"""Many election timeouts of a test's cluster."""


def test_an_old_folder_does_not_help_to_lead_without_what_was_acknowledged(tmp_path: Path) -> None:
    with TestCluster(nodes=3, folder=tmp_path) as cluster:
        cluster.kill(LOST)
        wait_fenced(cluster, LOST)
        shutil.copytree(tmp_path / f"node-{LOST}", tmp_path / "old")
        shutil.rmtree(tmp_path / f"node-{LOST}")
        assert remove(cluster, LOST)[0] == 0
        cluster.nodes[LOST].start()
        cluster.wait_for(partial(all_vote, cluster), "the new node to vote")
        cluster.kill(1)
        cluster.nodes[2].create_topic(LATE)
        cluster.kill(2)
        cluster.kill(LOST)
        settings = {number: cluster.nodes[number].settings for number in (1, 2)}
        old = {**cluster.nodes[LOST].settings, "log.dirs": str(tmp_path / "old")}
        asyncio.run(play(settings[1], settings[2], old))


def test_an_old_folder_whose_id_another_node_has_is_told_so(tmp_path: Path) -> None:
    with TestCluster(nodes=3, folder=tmp_path) as cluster:
        cluster.kill(LOST)
        wait_fenced(cluster, LOST)
        (tmp_path / f"node-{LOST}").rename(tmp_path / "old")
        assert remove(cluster, LOST)[0] == 0
        cluster.nodes[LOST].start()
        beside = {**cluster.nodes[LOST].settings, "log.dirs": str(tmp_path / "old")}
        beside |= {"listeners": "PLAINTEXT://127.0.0.1:0", "headrace.node.listen": "127.0.0.1:0"}
        for _ in range(2):  # the new one runs, and it does not
            with pytest.raises(CannotJoin, match="another data folder has its id now"):
                cluster.run(Node(load_settings(overrides=beside)).start())
            cluster.stop(LOST)


def test_a_node_whose_folder_was_copied_and_started_again_stops_and_says_so(tmp_path: Path) -> None:
    with TestCluster(nodes=3, folder=tmp_path) as cluster:
        cluster.stop(LOST)
        shutil.copytree(tmp_path / f"node-{LOST}", tmp_path / "copy")
        cluster.nodes[LOST].start()
        first = cluster.nodes[LOST].node
        beside = {**cluster.nodes[LOST].settings, "log.dirs": str(tmp_path / "copy")}
        beside |= {"listeners": "PLAINTEXT://127.0.0.1:0", "headrace.node.listen": "127.0.0.1:0"}
        with pytest.raises(RaftStopped, match="older copy"):
            cluster.run(Node(load_settings(overrides=beside)).start())
        driver = first.broker.quorum.driver
        cluster.wait_for(lambda: driver.failure is not None, "the first one to notice")
        assert "another process of node 3 was started" in str(driver.failure)
        cluster.restart(LOST)
        cluster.nodes[LOST].create_topic(LATE)


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_voter_with_an_old_snapshot_hears_the_one_that_took_an_id_over(
    tmp_path: Path, has_tls: bool
) -> None:
    """The snapshot has the node that was removed; together the two are a majority."""
    snapshots = config.RAFT_SNAPSHOT_TRIGGER_BYTES
    settings = {snapshots.name: "1024"} | (encrypted(tmp_path) if has_tls else {})
    with TestCluster(nodes=3, folder=tmp_path, settings=settings) as cluster:
        for number in range(10):
            cluster.configure_group(
                "g" * 200, {"consumer.session.timeout.ms": f"{50_000 + number}"}
            )
        for number in cluster.nodes:
            cluster.nodes[number].set(snapshots.name, str(snapshots.default))
        cluster.restart(2)
        snapshot = cluster.nodes[2].node.broker.quorum.driver.state.snapshot
        assert snapshot.index > 10
        cluster.kill(LOST)
        wait_fenced(cluster, LOST)
        shutil.rmtree(tmp_path / f"node-{LOST}")
        assert remove(cluster, LOST)[0] == 0
        if (certificates := cluster.nodes[1].node.cluster.certificates) is not None:
            token = create_token(SECRET, LOST, EXPIRES_AT_S_MAX)
            (tmp_path / f"node-{LOST}.token").write_text("\n".join((token, *certificates.pins())))
        cluster.nodes[LOST].start()
        cluster.wait_for(partial(all_vote, cluster), "the new node to vote")
        cluster.nodes[LOST].create_topic(LATE)
        assert cluster.nodes[2].node.broker.quorum.driver.state.snapshot == snapshot
        for number in cluster.nodes:
            cluster.kill(number)
        with ThreadPoolExecutor(2) as pool:
            for starting in [pool.submit(cluster.nodes[number].start) for number in (2, LOST)]:
                starting.result()
        assert cluster.controller in (2, LOST)
        assert cluster.nodes[2].node.broker.image.topic(LATE) is not None


def all_vote(cluster: TestCluster) -> bool:
    return all(
        node.node.broker.quorum.driver.state.membership.voters == (1, 2, 3)
        for _, node in cluster.running()
    )


async def play(first: dict[str, str], second: dict[str, str], old: dict[str, str]) -> None:
    one, two, removed = (Node(load_settings(overrides=each)) for each in (first, second, old))
    starts = [asyncio.create_task(node.start()) for node in (one, removed)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ELECTIONS_SECONDS):
            await asyncio.shield(starts[0])
    assert not starts[0].done(), "it serves without what was acknowledged"
    async with asyncio.timeout(60):
        await two.start()
        await starts[0]
    assert one.broker.image.topic(LATE) is not None
    starts[1].cancel()
    await asyncio.wait([starts[1]])
    for node in (one, two):
        await node.stop()
