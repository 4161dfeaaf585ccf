"""`headrace groups` and `headrace txn`, against Headrace and against Apache Kafka."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_SECONDS = 60


class CommandLine:
    """Runs `headrace` with a cluster's address in its environment."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}

    def __call__(self, *words: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "headrace", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            env=self.environment,
        )

    def json(self, *words: object) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)


@pytest.fixture
def headrace(any_bootstrap: str) -> CommandLine:
    return CommandLine(any_bootstrap)


@pytest.fixture
def topic(any_bootstrap: str, new_name: str) -> str:
    """A topic of two partitions with ten records in each."""
    admin = AdminClient({"bootstrap.servers": any_bootstrap})
    admin.create_topics([NewTopic(new_name, 2, 1)])[new_name].result(DEADLINE_SECONDS)
    producer = Producer({"bootstrap.servers": any_bootstrap})
    for number in range(20):
        producer.produce(new_name, b"%d" % number, partition=number % 2)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return new_name


@pytest.fixture(params=["classic", "consumer"])
def member(any_bootstrap: str, topic: str, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """The one member of a group named as the topic; it has read some and committed that."""
    consumer = Consumer(
        {
            "bootstrap.servers": any_bootstrap,
            "group.id": topic,
            "group.protocol": request.param,
            "client.id": request.param,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline, "it got no partitions"
        consumer.poll(0.1)
    places = [TopicPartition(topic, index, 4, metadata="half way") for index in range(2)]
    consumer.commit(offsets=places, asynchronous=False)
    yield consumer
    consumer.close()


def test_a_group_in_use_is_listed_described_explained_and_protected(
    headrace: CommandLine, topic: str, member: Consumer
) -> None:
    (listed,) = [row for row in headrace.json("groups", "list") if row["group"] == topic]
    (described,) = headrace.json("groups", "describe", topic)
    assert listed["state"] == described["state"] == "Stable"
    assert listed["type"] == described["type"]
    (row,) = described["members"]
    assert row["client"] == described["type"]
    assert row["assignment"] == [[topic, 0], [topic, 1]]
    offsets = headrace.json("groups", "offsets", topic)
    assert [
        (line["partition"], line["committed"], line["end"], line["lag"]) for line in offsets
    ] == [(0, 4, 10, 6), (1, 4, 10, 6)]
    assert {line["member"] for line in offsets} == {row["member"]}
    assert all(line["metadata"].startswith("half way") for line in offsets)
    explained = headrace("groups", "explain", topic)
    assert explained.stdout.startswith(f"{topic} is stable: 1 member")
    assert " ago" in explained.stdout
    move = ("groups", "reset-offsets", topic, "--all-topics", "--to-beginning")
    refused = headrace(*move, "--execute")
    assert refused.returncode == 1
    assert "stop them first" in refused.stderr
    kept = headrace("groups", "delete", topic)
    assert (kept.returncode, "NON_EMPTY_GROUP" in kept.stderr) == (1, True)


def test_offsets_are_only_moved_when_told_to(headrace: CommandLine, topic: str) -> None:
    def committed() -> list[int]:
        return [row["committed"] for row in headrace.json("groups", "offsets", topic)]

    def move(*words: object) -> list[tuple[int, int | None, int]]:
        moves = headrace.json("groups", "reset-offsets", topic, *words)
        return [(row["partition"], row["from"], row["to"]) for row in moves]

    assert move("--topic", topic, "--to-offset", 5, "--execute") == [(0, None, 5), (1, None, 5)]
    assert move("--all-topics", "--to-end") == [(0, 5, 10), (1, 5, 10)]
    assert committed() == [5, 5], "a dry run moves nothing"
    assert move("--topic", f"{topic}:1", "--shift", -2, "--execute") == [(1, 5, 3)]
    assert move("--all-topics", "--to-earliest", "--execute") == [(0, 5, 0), (1, 3, 0)]
    assert move("--all-topics", "--shift", 99) == [(0, 0, 10), (1, 0, 10)]
    assert move("--all-topics", "--to-time", "2099-01-01") == [(0, 0, 10), (1, 0, 10)]
    assert committed() == [0, 0]
    assert headrace.json("groups", "delete", topic) == [topic]
    gone = headrace("groups", "offsets", topic)
    assert (gone.returncode, "GROUP_ID_NOT_FOUND" in gone.stderr) == (1, True)
    assert headrace.json("groups", "delete", topic, "--if-exists") == []


@pytest.mark.parametrize(
    "words",
    [
        ["groups", "reset-offsets", "g", "--all-topics"],
        ["groups", "reset-offsets", "g", "--to-end"],
        ["groups", "reset-offsets", "g", "--topic", "t:x", "--to-end"],
        ["groups", "reset-offsets", "g", "--all-topics", "--to-end", "--to-beginning"],
        ["txn", "abort"],
        ["txn", "abort", "--partition", "t:0"],
        ["txn", "abort", "--partition", "t", "--producer-id", "1"],
    ],
)
def test_wrong_usage_is_told_before_anything_happens(words: list[str]) -> None:
    done = CommandLine("127.0.0.1:1")(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_what_does_not_exist_is_named_with_the_way_out(
    headrace: CommandLine, new_name: str
) -> None:
    for command in ("describe", "explain", "offsets", "delete"):
        done = headrace("groups", command, new_name)
        assert done.returncode == 1
        assert new_name in done.stderr
        assert "headrace groups list" in done.stderr
    for command in ("describe", "abort"):
        done = headrace("txn", command, new_name)
        assert done.returncode == 1
        assert "headrace txn list" in done.stderr


def test_an_open_transaction_is_listed_described_and_aborted(
    any_bootstrap: str, headrace: CommandLine, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": any_bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(DEADLINE_SECONDS) == 0
    (listed,) = [row for row in headrace.json("txn", "list") if row["transactional_id"] == topic]
    described = headrace.json("txn", "describe", topic)
    assert listed["state"] == described["state"] == "Ongoing"
    assert described["partitions"] == [{"topic": topic, "partition": 1, "start_offset": 10}]
    assert headrace("txn", "abort", topic).stdout == f"aborted {topic}\n"
    assert headrace.json("txn", "describe", topic)["partitions"] == []
    seen = headrace("consume", topic, "--partition", 1, "--committed").stdout.split()
    assert seen == [str(number) for number in range(1, 20, 2)]


def test_a_transaction_that_hangs_in_a_partition_is_ended_there(
    any_bootstrap: str, headrace: CommandLine, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": any_bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    writer = headrace.json("txn", "describe", topic)["producer_id"]
    where = ("--partition", f"{topic}:0", "--producer-id", writer)
    assert headrace("txn", "abort", *where).returncode == 0
    again = headrace("txn", "abort", *where)
    assert (again.returncode, "no open transaction" in again.stderr) == (1, True)
