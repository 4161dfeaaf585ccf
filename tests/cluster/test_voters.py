"""More and fewer voters, with the commands themselves, while topics change."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.client import Admin
from headrace.errors import HeadraceError
from headrace.ids import BrokerId
from headrace.testing.cluster import TestCluster


def run(cluster: TestCluster, *arguments: str) -> Result:
    return CliRunner().invoke(headrace, [*arguments, "--bootstrap", cluster.bootstrap])


def voters(cluster: TestCluster) -> tuple[int, ...]:
    return cluster.nodes[cluster.controller].node.broker.quorum.driver.state.membership.voters


class Changes:
    """Topics that are made and deleted all the time."""

    def __init__(self, cluster: TestCluster) -> None:
        self._bootstrap = cluster.bootstrap
        self._cluster = cluster
        self.made = 0
        self.errors: list[str] = []
        self.is_over = threading.Event()

    async def run(self) -> None:
        async with Admin(self._bootstrap) as admin:
            while not self.is_over.is_set():
                try:
                    await admin.create_topic(f"made-{self.made}")
                    await admin.delete_topic(f"made-{self.made}")
                except HeadraceError as error:
                    self.errors.append(str(error))
                self.made += 1


@contextmanager
def changing(cluster: TestCluster) -> Iterator[Changes]:
    changes = Changes(cluster)
    thread = threading.Thread(target=cluster.run, args=(changes.run(),))
    thread.start()
    try:
        yield changes
    finally:
        changes.is_over.set()
        thread.join()


def test_one_voter_becomes_three_and_five_and_three_again_while_topics_change() -> None:
    settings = {"headrace.voters.max": "1"}
    with TestCluster(nodes=5, settings=settings) as cluster, changing(cluster) as changes:
        assert len(voters(cluster)) == 1
        for wanted in (3, 5, 3):
            done = run(cluster, "quorum", "resize", str(wanted), "--yes", "--json")
            assert done.exit_code == 0, done.output
            assert len(json.loads(done.stdout)["voters"]) == wanted
            assert len(voters(cluster)) == wanted
            before = changes.made
            cluster.wait_for(lambda seen=before: changes.made > seen + 2, "more changes")  # type: ignore[misc]
        refused = run(cluster, "quorum", "resize", "4", "--yes")
        assert refused.exit_code == 1
        assert "odd" in refused.output
        refused = run(cluster, "quorum", "resize", "7", "--yes")
        assert refused.exit_code == 1
        assert "only 5 are" in refused.output
    assert changes.errors == []


def test_a_dead_voter_is_replaced_by_one_command() -> None:
    with TestCluster(nodes=4) as cluster:
        dead = next(each for each in voters(cluster) if each != cluster.controller)
        cluster.kill(dead)
        image = cluster.nodes[cluster.controller].node.broker.image

        def is_fenced() -> bool:
            broker = image.broker(BrokerId(dead))
            return broker is not None and broker.is_fenced

        cluster.wait_for(is_fenced, "it to be fenced")
        done = run(cluster, "quorum", "replace", str(dead), "--yes")
        assert done.exit_code == 0, done.output
        assert set(voters(cluster)) == set(cluster.nodes) - {dead}
        again = run(cluster, "quorum", "replace", str(dead), "--yes")
        assert again.exit_code == 1
        assert "does not vote" in again.output
        other = next(each for each in voters(cluster) if each != cluster.controller)
        refused = run(cluster, "quorum", "replace", str(other), "--yes")
        assert refused.exit_code == 1
        assert "start one" in refused.output


@pytest.mark.parametrize("wanted", [0, 16])
def test_sizes_out_of_range_are_wrong_usage(wanted: int) -> None:
    assert CliRunner().invoke(headrace, ["quorum", "resize", str(wanted)]).exit_code == 2
