"""Kafka's tools that read queues, and those that look after them, work against Headrace."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.clients.confluent_queues import QUICK, consumer_of, fill, gather, queue
from tests.headrace_process import headrace
from tests.jvm.kafka_tools import CONFIGS, TOOLS, Output, run_tool, run_well

CONSOLE = f"{TOOLS}.consumer.ConsoleShareConsumer"
VERIFIABLE = f"{TOOLS}.VerifiableShareConsumer"
PERFORMANCE = f"{TOOLS}.ShareConsumerPerformance"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
GROUPS = f"{TOOLS}.GroupsCommand"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with headrace(tmp_path_factory.mktemp("broker") / "data", QUICK) as address:
        yield address


def tool(main: str, bootstrap: str, *arguments: str) -> Output:
    return run_well(main, "--bootstrap-server", bootstrap, *arguments)


def rows(bootstrap: str, *what: str) -> list[list[str]]:
    """Give what ShareGroupCommand prints, in words, without empty lines and headings."""
    printed = tool(SHARE_GROUPS, bootstrap, *what)
    return [line.split() for line in printed.lines if line and not line.startswith("GROUP")]


def test_console_consumer_prints_records_and_how_often_they_came(bootstrap: str) -> None:
    name = queue(bootstrap)
    fill(bootstrap, name, 20)
    wanted = [f"--formatter-property=print.{what}=true" for what in ("delivery", "offset")]
    where = ("--topic", name, "--group", name, *wanted)
    first = tool(CONSOLE, bootstrap, *where, "--max-messages", "5")
    assert first.lines == [f"Offset:{n}\tDelivery:1\t{n}" for n in range(5)]
    # It accepts what it printed and releases the rest of what it was given.
    second = tool(CONSOLE, bootstrap, *where, "--max-messages", "15")
    assert second.lines == [f"Offset:{n}\tDelivery:2\t{n}" for n in range(5, 20)]
    assert "Processed a total of 15 messages" in second.stderr


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_verifiable_consumer_reads_and_acknowledges_all(bootstrap: str, mode: str) -> None:
    name = queue(bootstrap, 2)
    fill(bootstrap, name, 100, 2)
    printed = tool(
        VERIFIABLE,
        bootstrap,
        *("--topic", name, "--group-id", name, "--max-messages", "100"),
        *("--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest"),
    )
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    names = [event["name"] for event in events]
    assert (names[0], names[-1]) == ("startup_complete", "shutdown_complete")
    assert sorted(_offsets(events, "records_consumed")) == [
        (partition, offset) for partition in (0, 1) for offset in range(50)
    ]
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sorted(_offsets(events, "offsets_acknowledged")) == [
        (partition, offset) for partition in (0, 1) for offset in range(50)
    ]
    assert {row[4] for row in rows(bootstrap, "--describe", "--group", name)} == {"0"}


def _offsets(events: list[dict[str, object]], name: str) -> list[tuple[int, int]]:
    return [
        (row["partition"], offset)
        for event in events
        if event["name"] == name
        for row in event["partitions"]  # type: ignore[attr-defined]
        for offset in row["offsets"]
    ]


def test_performance_tool_reads_with_several_members(bootstrap: str) -> None:
    name = queue(bootstrap, 2)
    fill(bootstrap, name, 5000, 2)
    printed = tool(
        PERFORMANCE,
        bootstrap,
        *("--topic", name, "--group", name, "--num-records", "5000", "--threads", "2"),
    )
    figures = [line.split(", ") for line in printed.lines if re.match(r"\d{4}-", line)]
    assert int(figures[-1][5]) >= 5000


def test_groups_and_their_members_are_shown(bootstrap: str) -> None:
    name = queue(bootstrap, 2)
    fill(bootstrap, name, 10, 2)
    with consumer_of(bootstrap, name) as consumer:
        gather(consumer, 10)
        consumer.commit_sync(30)
        listed = tool(GROUPS, bootstrap, "--list", "--share")
        assert [name, "Share", "share"] in [line.split() for line in listed.lines]
        (member,) = rows(bootstrap, "--describe", "--group", name, "--members", "--verbose")
        assert member[0] == name
        assert f"{name}:0,1" in member
        (state,) = rows(bootstrap, "--describe", "--group", name, "--state", "--verbose")
        assert (state[0], state[-4], state[-1]) == (name, "Stable", "1")
        offsets = rows(bootstrap, "--describe", "--group", name, "--offsets", "--verbose")
        assert sorted((row[1], row[2], row[-1]) for row in offsets) == [
            (name, "0", "0"),
            (name, "1", "0"),
        ]
    (state,) = rows(bootstrap, "--describe", "--group", name, "--state")
    assert state[-2:] == ["Empty", "0"]


def test_offsets_are_reset_and_records_come_again(bootstrap: str) -> None:
    name = queue(bootstrap, 2)
    fill(bootstrap, name, 10, 2)
    with consumer_of(bootstrap, name) as consumer:
        gather(consumer, 10)
        consumer.commit_sync(30)
    reset = ("--reset-offsets", "--group", name)
    planned = rows(bootstrap, *reset, "--all-topics", "--to-latest", "--dry-run")
    assert sorted(planned) == [[name, name, "0", "5"], [name, name, "1", "5"]]
    when = ("--to-datetime", "2020-01-01T00:00:00.000")
    rows(bootstrap, *reset, "--topic", f"{name}:1", *when, "--execute")
    shown = rows(bootstrap, "--describe", "--group", name)
    assert sorted(row[1:] for row in shown if row[2] == "1") == [[name, "1", "0", "5"]]
    with consumer_of(bootstrap, name) as consumer:
        again = gather(consumer, 5)
        assert sorted((each.partition(), each.offset()) for each in again) == [
            (1, offset) for offset in range(5)
        ]
        consumer.commit_sync(30)
    deleted = tool(SHARE_GROUPS, bootstrap, "--delete-offsets", "--group", name, "--topic", name)
    assert [name, "Successful"] in [line.split() for line in deleted.lines]
    left = tool(SHARE_GROUPS, bootstrap, "--describe", "--group", name).stdout
    assert "has no offset information" in left
    gone = tool(SHARE_GROUPS, bootstrap, "--delete", "--group", name).stdout
    assert "was successful" in gone
    assert [name] not in rows(bootstrap, "--list")


def test_configs_of_a_group_are_set_shown_and_checked(bootstrap: str) -> None:
    name = queue(bootstrap)
    which = ("--entity-type", "groups", "--entity-name", name)
    values = "share.record.lock.duration.ms=20000,share.isolation.level=read_committed"
    tool(CONFIGS, bootstrap, "--alter", *which, "--add-config", values)
    shown = tool(CONFIGS, bootstrap, "--describe", *which).stdout
    for value in (*values.split(","), "share.auto.offset.reset=earliest"):
        assert f"  {value} sensitive=false" in shown
    where = ("--bootstrap-server", bootstrap, "--alter", *which)
    refused = run_tool(CONFIGS, *where, "--add-config", "share.record.lock.duration.ms=1")
    assert refused.status != 0
    assert "InvalidConfigurationException" in refused.stdout + refused.stderr
    tool(CONFIGS, bootstrap, "--alter", *which, "--delete-config", "share.isolation.level")
    shown = tool(CONFIGS, bootstrap, "--describe", *which).stdout
    assert "share.isolation.level" not in shown
