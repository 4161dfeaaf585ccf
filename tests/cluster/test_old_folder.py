"""The folder of a node that was removed, started again beside one that does not know it yet."""

import asyncio
import contextlib
import shutil
from pathlib import Path

from headrace.config import load_settings
from headrace.ids import TopicName
from headrace.node.node import Node
from headrace.testing.cluster import TestCluster
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
        cluster.wait_for(
            lambda: all(
                node.node.broker.quorum.driver.state.membership.voters == (1, 2, 3)
                for _, node in cluster.running()
            ),
            "the new node to vote",
        )
        cluster.kill(1)
        cluster.nodes[2].create_topic(LATE)
        cluster.kill(2)
        cluster.kill(LOST)
        settings = {number: cluster.nodes[number].settings for number in (1, 2)}
        old = {**cluster.nodes[LOST].settings, "log.dirs": str(tmp_path / "old")}
        asyncio.run(play(settings[1], settings[2], old))


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
