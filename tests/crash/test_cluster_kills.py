"""Three nodes of which one, or all, are killed or stand still: nothing acknowledged is lost."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.process_cluster import ProcessCluster, try_to_create, wait_for

PAUSE_SECONDS = 0.05
"""Between two changes: thousands of topics would slow down what is looked at."""
ELECTION_SECONDS_MAX = 20
"""Far above the election timeout of one second: other tests may run beside this one."""


class Changes:
    """Topics that are created all the time, through every node in turn."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.acknowledged: set[str] = set()
        self._cluster = cluster
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self, count: int) -> None:
        """Return when so many more were acknowledged."""
        wanted = len(self.acknowledged) + count

        def are_there() -> bool:
            assert self._failure is None, self._failure
            return len(self.acknowledged) >= wanted

        wait_for(are_there, "changes to be acknowledged")

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_over.wait(PAUSE_SECONDS):
                number += 1
                self._create(number)
        except BaseException as error:
            self._failure = error

    def _create(self, number: int) -> None:
        through = 1 + number % len(self._cluster.places)
        if through not in self._cluster.running():
            return
        if try_to_create(self._cluster, through, f"t{number}", 1, 1) is ErrorCode.NONE:
            self.acknowledged.add(f"t{number}")


@contextmanager
def changes_of(cluster: ProcessCluster) -> Iterator[Changes]:
    changes = Changes(cluster)
    try:
        yield changes
    finally:
        changes.stop()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(100, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)]),
    ],
)
def test_a_controller_that_is_killed_is_replaced_and_no_change_is_lost(
    tmp_path: Path, kills: int
) -> None:
    with ProcessCluster(tmp_path) as cluster, changes_of(cluster) as changes:
        for _ in range(kills):
            changes.wait_for_more(3)
            old = cluster.controller()
            begin = time.monotonic()
            cluster.kill(old)
            assert cluster.controller() != old
            assert time.monotonic() - begin < ELECTION_SECONDS_MAX
            changes.wait_for_more(2)
            cluster.start([old])
            cluster.wait_until_all_agree(set(changes.acknowledged), is_under_load=True)
        changes.stop()
        cluster.wait_until_all_agree(changes.acknowledged)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(0, marks=pytest.mark.slow),
        pytest.param(30, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1200)]),
    ],
)
def test_a_node_that_stands_still_is_fenced_and_comes_back(tmp_path: Path, seconds: int) -> None:
    """At least until it is fenced, and for so many seconds."""
    with ProcessCluster(tmp_path) as cluster:
        topics: list[str] = []
        cluster.wait_until_all_agree()
        for number in cluster.running():
            others = [each for each in cluster.running() if each != number]
            begin = time.monotonic()
            cluster.nodes[number].pause()
            for other in others:
                topics.append(f"while-{number}-stands-still-{other}")
                cluster.create_topic(topics[-1], through=other)
            assert cluster.controller(others) in others
            for other in others:
                wait_for(
                    lambda other=other, number=number: cluster.view(other)["brokers"][number][2],  # type: ignore[misc]
                    f"node {number} to be fenced",
                )
            while time.monotonic() < begin + seconds:
                topics.append(f"later-{len(topics)}")
                cluster.create_topic(topics[-1], through=others[0])
                time.sleep(1)  # the time that it stands still, which is asked for
            cluster.nodes[number].resume()
            cluster.wait_until_all_agree(topics)
            cluster.create_topic(f"through-{number}", through=number)
        cluster.wait_until_all_agree(topics)


@pytest.mark.slow
def test_all_nodes_are_killed_at_once_and_come_back_with_every_change(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path) as cluster:
        with changes_of(cluster) as changes:
            changes.wait_for_more(10)
            for number in cluster.running():
                cluster.nodes[number].kill()
            changes.stop()
        cluster.start(cluster.places)
        cluster.wait_until_all_agree(changes.acknowledged)
        cluster.create_topic("after", through=2)
        cluster.wait_until_all_agree({*changes.acknowledged, "after"})
