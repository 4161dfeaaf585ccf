"""Kafka's tool of streams groups shows and deletes groups of Headrace as those of Kafka.

HEADRACE_TESTS_BOOTSTRAP=host:port runs the same tests against another cluster, an empty one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import eventually
from tests.headrace_process import headrace
from tests.jvm.kafka_tools import TOOLS, TOPICS, run_tool, run_well
from tests.jvm.word_count import (
    LINES,
    NODE_SETTINGS,
    PARTITIONS,
    Input,
    Instance,
    create_topics,
)

GROUPS = f"{TOOLS}.streams.StreamsGroupCommand"
TASKS = "[" + ",".join(str(number) for number in range(PARTITIONS)) + "]"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with lines to count."""
    if address := os.environ.get("HEADRACE_TESTS_BOOTSTRAP"):
        fill(address)
        yield address
        return
    with headrace(tmp_path_factory.mktemp("broker") / "data", NODE_SETTINGS) as address:
        fill(address)
        yield address


def fill(bootstrap: str) -> None:
    create_topics(bootstrap)
    Input(bootstrap).write(60)


@contextmanager
def counted(bootstrap: str, group: str, folder: Path) -> Iterator[Instance]:
    """A running application of that name that has counted, and committed, all lines."""
    instance = Instance(bootstrap, group, "streams", folder / group)
    try:
        instance.wait_until_running()
        sources = [f"{group}-counts-repartition", LINES]
        wanted = [[group, topic, str(n), "0"] for topic in sources for n in range(PARTITIONS)]
        eventually(lambda: described(bootstrap, group), sorted(wanted))
        yield instance
    finally:
        instance.kill()


def described(bootstrap: str, group: str, *what: str) -> list[list[str]]:
    """What the tool prints of a group, a list of words a line, without the heading."""
    where = ("--bootstrap-server", bootstrap, "--describe", "--group", group)
    lines = run_well(GROUPS, *where, *what).lines
    return sorted(line.split() for line in lines if line.startswith(f"{group} "))


def states(bootstrap: str, *wanted: str) -> dict[str, str]:
    """The states of the groups that the tool lists; of those in the `wanted` states, if any."""
    lines = run_well(GROUPS, "--bootstrap-server", bootstrap, "--list", "--state", *wanted).lines
    assert lines[0].split() == ["GROUP", "STATE"]
    return dict(line.split() for line in lines[1:])


def delete(bootstrap: str, group: str, *options: str) -> str:
    return run_well(
        GROUPS, "--bootstrap-server", bootstrap, "--delete", "--group", group, *options
    ).stdout


def test_a_running_group_is_listed_with_its_member_and_tasks_and_not_deleted(
    bootstrap: str, tmp_path: Path
) -> None:
    with counted(bootstrap, "running", tmp_path) as instance:
        listed = run_well(GROUPS, "--bootstrap-server", bootstrap, "--list").lines
        assert "running" in listed
        assert states(bootstrap, "stable")["running"] == "Stable"

        (state,) = described(bootstrap, "running", "--state", "--verbose")
        group, coordinator, _, name, group_epoch, target_epoch, members = state
        assert (group, coordinator, name, members) == ("running", bootstrap, "Stable", "1")
        assert int(group_epoch) >= 1
        assert target_epoch == group_epoch

        (member,) = described(bootstrap, "running", "--members", "--verbose")
        assert member[1] == member[5] == group_epoch  # the target's and the member's epoch
        assert member[4] == "streams"
        tasks = f"0:{TASKS}; 1:{TASKS};"
        assert " ".join(member[8:]) == f"ACTIVE: {tasks} TARGET-ACTIVE: {tasks}"

        assert "Streams group 'running' is not EMPTY." in delete(bootstrap, "running")
        instance.check()
        assert states(bootstrap)["running"] == "Stable"


def test_a_group_that_ended_keeps_its_offsets_until_it_is_deleted_with_its_topics(
    bootstrap: str, tmp_path: Path
) -> None:
    with counted(bootstrap, "ended", tmp_path) as instance:
        instance.stop()
    assert states(bootstrap, "empty")["ended"] == "Empty"
    assert "ended" not in states(bootstrap, "stable")
    (state,) = described(bootstrap, "ended", "--state")
    assert state[3:] == ["Empty", "0"]
    assert described(bootstrap, "ended", "--members") == []

    one = ("--bootstrap-server", bootstrap, "--group", "ended")
    source = ("--input-topic", LINES)
    planned = run_well(GROUPS, *one, "--reset-offsets", *source, "--to-current", "--dry-run").lines
    rows = [line.split() for line in planned if line.startswith("ended ")]
    assert [row[:3] for row in rows] == [["ended", LINES, str(n)] for n in range(PARTITIONS)]
    assert all(int(row[3]) > 0 for row in rows)
    forgotten = run_well(GROUPS, *one, "--delete-offsets", *source).stdout
    assert forgotten.count("Successful") == PARTITIONS

    internal = {"ended-counts-changelog", "ended-counts-repartition"}
    assert internal <= topics(bootstrap)
    said = delete(bootstrap, "ended", "--delete-all-internal-topics")
    assert "Deletion of requested streams groups ('ended') was successful." in said
    assert "ended" not in states(bootstrap)
    eventually(lambda: internal & topics(bootstrap), set())
    gone = run_tool(GROUPS, *one, "--describe")
    assert gone.status == 1
    assert "GroupIdNotFoundException" in gone.stdout + gone.stderr


def topics(bootstrap: str) -> set[str]:
    return set(run_well(TOPICS, "--bootstrap-server", bootstrap, "--list").lines)
