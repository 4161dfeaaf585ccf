"""Kafka's consumers and tools of groups and transactions work against Headrace as against Kafka.

HEADRACE_TESTS_BOOTSTRAP=host:port runs the same tests against another cluster.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.clients.conftest import QUICK_GROUPS
from tests.headrace_process import headrace
from tests.jvm.kafka_tools import TOOL_SECONDS_MAX, TOOLS, TOPICS, run_tool, run_well
from tools.jvm.harness import JVM_OPTIONS, jars

GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
PROTOCOLS = ["classic", "consumer"]
RECORDS = 300
DEADLINE_SECONDS = 30


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if address := os.environ.get("HEADRACE_TESTS_BOOTSTRAP"):
        yield address
        return
    with headrace(tmp_path_factory.mktemp("broker") / "data", QUICK_GROUPS) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A topic of three partitions with as many numbers in it."""
    name = f"{request.node.originalname[:100]}-{abs(hash(tmp_path)) % 10**8}"
    create(bootstrap, name, 3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, partition=number % 3)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return name


def create(bootstrap: str, topic: str, partitions: int) -> None:
    where = ("--bootstrap-server", bootstrap, "--create", "--topic", topic)
    run_well(TOPICS, *where, "--partitions", str(partitions))


def committed_values(bootstrap: str, topic: str) -> list[int]:
    """The numbers that a reader of committed records finds in partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, f"no end after {len(found)} records"
            if message.error() is None:
                found.append(int(message.value()))
                continue
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return found
    finally:
        consumer.close()


def rows(bootstrap: str, group: str, *what: str) -> list[list[str]]:
    """What the group tool prints of a group, a list of words a line."""
    where = ("--bootstrap-server", bootstrap, "--describe", "--group", group)
    lines = run_well(GROUPS, *where, *what).lines
    return [line.split() for line in lines if line.startswith(group)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_console_reads_a_topic_as_a_group_and_goes_on_later(
    bootstrap: str, topic: str, protocol: str
) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", topic)
    options = ("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000")
    earliest = ("--command-property", "auto.offset.reset=earliest")
    found: list[str] = []
    for count in (100, 200):
        limit = ("--max-messages", str(count))
        console = f"{TOOLS}.consumer.ConsoleConsumer"
        found += run_well(console, *where, *options, *earliest, *limit).lines
    assert sorted(map(int, found)) == list(range(RECORDS))
    shown = rows(bootstrap, topic)
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ...
    assert (
        sorted((row[1], row[3], row[4], row[5]) for row in _after_group(shown, topic))
        == [(topic, "100", "100", "0")] * 3
    )


def _after_group(shown: list[list[str]], topic: str) -> list[list[str]]:
    """Lines whatever columns the tool has between: they begin at the topic's name."""
    lines = []
    for row in shown:
        at = row.index(topic, 1)
        numbers = [word for word in row[at + 1 :] if word.isdigit()]
        lines.append([row[0], topic, *numbers])
    return lines


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_verifiable_consumer_reads_and_commits_everything(
    bootstrap: str, topic: str, protocol: str
) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", topic)
    printed = run_well(
        f"{TOOLS}.VerifiableConsumer",
        *where,
        *("--group-protocol", protocol, "--max-messages", str(RECORDS)),
    )
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    names = [event["name"] for event in events]
    assert "partitions_assigned" in names
    read = sum(event["count"] for event in events if event["name"] == "records_consumed")
    assert read == RECORDS
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in commits)
    last = {row["partition"]: row["offset"] for event in commits for row in event["offsets"]}
    assert last == {0: 100, 1: 100, 2: 100}


def test_the_copier_with_random_aborts_copies_each_record_once(bootstrap: str, topic: str) -> None:
    output = f"{topic}-copy"
    create(bootstrap, output, 1)
    printed = run_well(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", output, "--consumer-group", topic, "--transactional-id", topic),
        *("--transaction-size", "10", "--enable-random-aborts", "--use-group-metadata"),
    )
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    assert events[-1]["remaining"] == 0
    assert committed_values(bootstrap, output) == list(range(0, RECORDS, 3))


def test_the_group_tool_resets_offsets_and_deletes_the_group(bootstrap: str, topic: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--group", topic)
    reset = ("--reset-offsets", "--topic", topic)
    run_well(GROUPS, *where, *reset, "--to-earliest", "--execute")
    assert [row[3] for row in _after_group(rows(bootstrap, topic), topic)] == ["0"] * 3
    run_well(GROUPS, *where, *reset, "--shift-by", "7", "--execute")
    assert [row[3] for row in _after_group(rows(bootstrap, topic), topic)] == ["7"] * 3
    (state,) = rows(bootstrap, topic, "--state")
    assert "Empty" in state
    listed = run_well(GROUPS, "--bootstrap-server", bootstrap, "--list").lines
    assert topic in listed
    run_well(GROUPS, *where, "--delete-offsets", "--topic", f"{topic}:0")
    assert len(rows(bootstrap, topic)) == 2
    run_well(GROUPS, *where, "--delete")
    assert topic not in run_well(GROUPS, "--bootstrap-server", bootstrap, "--list").lines


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_group_tool_shows_the_members_of_a_running_group(
    bootstrap: str, topic: str, protocol: str
) -> None:
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", topic)
    process = subprocess.Popen(
        [
            *("java", *JVM_OPTIONS, "-cp", f"{jars()}/*", f"{TOOLS}.VerifiableConsumer"),
            *(*arguments, "--group-protocol", protocol),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        while "partitions_assigned" not in (line := process.stdout.readline()):
            assert line, "the consumer ended"
        (member,) = rows(bootstrap, topic, "--members")
        assert "3" in member[-2:] + member[-1:], member
        (state,) = rows(bootstrap, topic, "--state")
        assert "Stable" in state
        refused = run_tool(GROUPS, "--bootstrap-server", bootstrap, "--delete", "--group", topic)
        assert "not empty" in refused.stdout.lower() + refused.stderr.lower()
    finally:
        process.kill()
        process.wait(TOOL_SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()


def test_the_transactions_tool_lists_describes_and_aborts(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"1000", partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0

    listed = transactions(bootstrap, "list")
    states = {row["TransactionalId"]: row["TransactionState"] for row in listed}
    assert states[topic] == "Ongoing"
    (described,) = transactions(bootstrap, "describe", "--transactional-id", topic)
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] == f"{topic}-0"
    where = ("--topic", topic, "--partition", "0")
    (writer,) = [
        row
        for row in transactions(bootstrap, "describe-producers", *where)
        if row["CurrentTransactionStartOffset"] != "None"
    ]
    assert writer["ProducerId"] == described["ProducerId"]
    start = writer["CurrentTransactionStartOffset"]
    transactions(bootstrap, "abort", *where, "--start-offset", start)
    left = transactions(bootstrap, "describe-producers", *where)
    assert {row["CurrentTransactionStartOffset"] for row in left} == {"None"}
    assert 1000 not in committed_values(bootstrap, topic)


def test_the_transactions_tool_ends_a_transaction_by_its_id(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"1000", partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    transactions(bootstrap, "forceTerminateTransaction", "--transactionalId", topic)
    (described,) = transactions(bootstrap, "describe", "--transactional-id", topic)
    assert described["TransactionState"] in ("CompleteAbort", "Empty")
    assert 1000 not in committed_values(bootstrap, topic)


def transactions(bootstrap: str, *words: str) -> list[dict[str, Any]]:
    """Run the tool; give its table, a dictionary a line."""
    lines = run_well(TRANSACTIONS, "--bootstrap-server", bootstrap, *words).lines
    table = [line.split("\t") for line in lines if "\t" in line]
    if not table:
        return []
    columns = [name.strip() for name in table[0]]
    return [
        {name: word.strip() for name, word in zip(columns, row, strict=False)} for row in table[1:]
    ]
