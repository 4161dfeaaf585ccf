"""Kafka's administration tools print the same for Headrace as for Apache Kafka.

Each call runs against both at once. What is a cluster's own is left out: ids, addresses, folders.
"""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from tests.headrace_process import headrace
from tests.jvm.kafka_broker import kafka
from tests.jvm.kafka_tools import CONFIGS, TOOLS, TOPICS, Output, run_tool

START_MS = int(time.time() * 1000) - 60_000
"""Not long ago, or retention, which tests change, takes the records away."""
DEADLINE_SECONDS = 30
FILLED = "filled"
FILLED_RECORDS = 5

SERVED = [
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterConfigs",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "CreatePartitions",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "DescribeQuorum",
    "UpdateFeatures",
    "DescribeCluster",
    "DescribeProducers",
    "UnregisterBroker",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "AddRaftVoter",
    "RemoveRaftVoter",
]


class Answers(NamedTuple):
    """What a tool printed for either broker."""

    ours: Output
    theirs: Output


class Brokers(NamedTuple):
    ours: str
    theirs: str

    def run(self, main: str, *arguments: str) -> Answers:
        """Run a tool against both at once, with either's address."""

        def one(address: str) -> Output:
            return run_tool(main, "--bootstrap-server", address, *arguments)

        with ThreadPoolExecutor(2) as threads:
            return Answers(*threads.map(one, self))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder: Path = tmp_path_factory.mktemp("brokers")
    with kafka(folder / "kafka") as theirs, headrace(folder / "headrace", {"node.id": "1"}) as ours:
        both = Brokers(ours, theirs)
        for answer in both.run(TOPICS, "--create", "--topic", FILLED, "--partitions", "2"):
            assert answer.status == 0, answer.stderr
        for address in both:
            fill(address)
        yield both


def fill(address: str) -> None:
    """Write to partition 0, one batch a record, so that both have the same bytes."""
    producer = Producer({"bootstrap.servers": address})
    for n in range(FILLED_RECORDS):
        producer.produce(FILLED, b"%d" % n, partition=0, timestamp=START_MS + 10 * n)
        assert producer.flush(DEADLINE_SECONDS) == 0


def same_lines(answers: Answers) -> list[str]:
    """The lines that both printed, with a topic's id left out."""
    for answer in answers:
        assert answer.status == 0, answer.stdout + answer.stderr
    ours, theirs = (
        [_without_ids(line) for line in answer.lines if _is_compared(line)] for answer in answers
    )
    assert ours == theirs
    return ours


def same_refusal(answers: Answers, named: str) -> None:
    """Both fail with the same status and name what is wrong, in words of their own."""
    assert answers.ours.status == answers.theirs.status != 0
    for answer in answers:
        assert named in answer.stdout + answer.stderr


def _is_compared(line: str) -> bool:
    # A new Kafka cluster has this as a setting of the cluster, for eligible leader replicas.
    return bool(line) and not line.startswith("  min.insync.replicas=")


def _without_ids(line: str) -> str:
    line = re.sub(r"TopicId: \S+", "TopicId: -", line)
    return re.sub(r"min\.insync\.replicas=1,?", "", line)


def test_a_topic_is_created_described_grown_listed_and_deleted(brokers: Brokers) -> None:
    shape = ("--partitions", "2", "--replication-factor", "1")
    configs = ("--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete")
    same_lines(brokers.run(TOPICS, "--create", "--topic", "orders", *shape, *configs))
    described = same_lines(brokers.run(TOPICS, "--describe", "--topic", "orders"))
    assert "retention.ms=1000" in described[0]
    same_lines(brokers.run(TOPICS, "--alter", "--topic", "orders", "--partitions", "4"))
    described = same_lines(brokers.run(TOPICS, "--describe", "--topic", "orders"))
    assert len(described) == 1 + 4
    same_lines(brokers.run(TOPICS, "--delete", "--topic", "orders"))
    for answer in brokers.run(TOPICS, "--list"):
        assert answer.status == 0
        assert "orders" not in answer.lines


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--create --topic filled", "filled"),
        ("--create --topic odd --config nope=1", "nope"),
        ("--alter --topic filled --partitions 1", "2 partition"),
    ],
)
def test_a_topic_command_that_cannot_be_done_is_refused_alike(
    brokers: Brokers, arguments: str, named: str
) -> None:
    same_refusal(brokers.run(TOPICS, *arguments.split()), named)


def test_a_topics_configs_are_changed_and_described(brokers: Brokers) -> None:
    entity = ("--entity-type", "topics", "--entity-name", FILLED)
    values = "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    same_lines(brokers.run(CONFIGS, *entity, "--alter", "--add-config", values))
    described = same_lines(brokers.run(CONFIGS, *entity, "--describe"))
    assert any("cleanup.policy=compact,delete" in line for line in described)
    names = "max.message.bytes,cleanup.policy"
    same_lines(brokers.run(CONFIGS, *entity, "--alter", "--delete-config", names))
    everything = same_lines(brokers.run(CONFIGS, *entity, "--describe", "--all"))
    assert any("max.message.bytes=1048588" in line for line in everything)


def test_an_impossible_config_is_refused_alike(brokers: Brokers) -> None:
    change = ("--alter", "--add-config", "retention.ms=soon")
    answers = brokers.run(CONFIGS, "--entity-type", "topics", "--entity-name", FILLED, *change)
    same_refusal(answers, "InvalidConfigurationException")


def test_a_brokers_configs_are_changed_and_described(brokers: Brokers) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    same_lines(
        brokers.run(CONFIGS, *entity, "--alter", "--add-config", "log.retention.ms=900000000")
    )
    described = same_lines(brokers.run(CONFIGS, *entity, "--describe"))
    assert any("log.retention.ms=900000000" in line for line in described)
    same_lines(brokers.run(CONFIGS, *entity, "--alter", "--delete-config", "log.retention.ms"))


QUOTAS = "producer_byte_rate=1000000000,request_percentage=5000.5,controller_mutation_rate=9000"


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ("--entity-type users --entity-name ann", QUOTAS),
        ("--entity-type users --entity-default", QUOTAS),
        ("--entity-type clients --entity-name app", QUOTAS),
        ("--entity-type clients --entity-default", QUOTAS),
        ("--entity-type users --entity-name ann --entity-type clients --entity-name app", QUOTAS),
        ("--entity-type users --entity-name ann --entity-type clients --entity-default", QUOTAS),
        ("--entity-type ips --entity-name 10.0.0.1", "connection_creation_rate=9000"),
        ("--entity-type ips --entity-default", "connection_creation_rate=9000"),
        ("--user ann", QUOTAS),
        ("--client-defaults", QUOTAS),
        ("--ip 10.0.0.2", "connection_creation_rate=9000"),
    ],
)
def test_quotas_are_changed_and_described(brokers: Brokers, entity: str, quotas: str) -> None:
    which = entity.split()
    first = quotas.partition("=")[0]
    same_lines(brokers.run(CONFIGS, *which, "--alter", "--add-config", quotas))
    described = same_lines_soon(brokers, *which, "--describe", until=first)
    assert any(first in line for line in described)
    names = ",".join(each.split("=")[0] for each in quotas.split(","))
    same_lines(brokers.run(CONFIGS, *which, "--alter", "--delete-config", names))


def test_all_users_and_addresses_are_described(brokers: Brokers) -> None:
    for kind, quotas in (("users", QUOTAS), ("ips", "connection_creation_rate=9000")):
        default = ("--entity-type", kind, "--entity-default")
        same_lines(brokers.run(CONFIGS, *default, "--alter", "--add-config", quotas))
        described = same_lines_soon(
            brokers, "--entity-type", kind, "--describe", until=quotas.split("=")[0]
        )
        assert described
        names = ",".join(each.split("=")[0] for each in quotas.split(","))
        same_lines(brokers.run(CONFIGS, *default, "--alter", "--delete-config", names))


@pytest.mark.parametrize(
    ("entity", "quota", "named"),
    [
        ("--user ann", "producer_byte_rate=0", "greater than 0"),
        ("--user ann", "producer_byte_rate=1.5", "producer_byte_rate"),
        ("--user ann", "producer_byte_rate=soon", "producer_byte_rate"),
        ("--ip 10.0.0.1", "connection_creation_rate=-1", "connection_creation_rate"),
    ],
)
def test_an_impossible_quota_is_refused_alike(
    brokers: Brokers, entity: str, quota: str, named: str
) -> None:
    answers = brokers.run(CONFIGS, *entity.split(), "--alter", "--add-config", quota)
    same_refusal(answers, named)


def same_lines_soon(brokers: Brokers, *words: str, until: str) -> list[str]:
    """The lines that both print, once Kafka's broker has heard of what its controller changed."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        answers = brokers.run(CONFIGS, *words)
        if until in answers.theirs.stdout or time.monotonic() > deadline:
            return same_lines(answers)


def test_the_versions_of_what_is_served_are_kafkas(brokers: Brokers) -> None:
    ours, theirs = (
        _versions(answer) for answer in brokers.run(f"{TOOLS}.BrokerApiVersionsCommand")
    )
    assert set(SERVED) <= ours.keys()
    shared = ours.keys() & theirs.keys() - {"SaslHandshake"}  # version 0: docs/differences.md
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    # Every node is a controller, too.
    assert ours.keys() - theirs.keys() <= {"UpdateRaftVoter"}


def _versions(answer: Output) -> dict[str, str]:
    assert answer.status == 0, answer.stderr
    found = re.findall(r"^\t(\w+)\(\d+\): (\d.*?),?$", answer.stdout, re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("latest", ["filled:0:5", "filled:1:0"]),
        ("max-timestamp", ["filled:0:4"]),
    ],
)
def test_offsets_are_found_by_kind(brokers: Brokers, kind: str, expected: list[str]) -> None:
    shell = f"{TOOLS}.GetOffsetShell"
    assert same_lines(brokers.run(shell, "--topic", FILLED, "--time", kind)) == expected


def test_offsets_are_found_by_time(brokers: Brokers) -> None:
    asked = ("--topic", FILLED, "--time", str(START_MS + 11))
    assert same_lines(brokers.run(f"{TOOLS}.GetOffsetShell", *asked)) == ["filled:0:2"]


def test_log_dirs_have_the_partitions_with_their_sizes(brokers: Brokers) -> None:
    command = ("--describe", "--topic-list", FILLED)
    ours, theirs = (
        _log_dirs(answer) for answer in brokers.run(f"{TOOLS}.LogDirsCommand", *command)
    )
    assert ours == theirs
    assert {row["partition"] for row in ours} == {"filled-0", "filled-1"}
    assert ours[0]["size"] > 0


def _log_dirs(answer: Output) -> list[dict[str, Any]]:
    described = json.loads(next(line for line in answer.lines if line.startswith("{")))
    (broker,) = described["brokers"]
    (folder,) = broker["logDirs"]
    assert folder["error"] is None
    return sorted(folder["partitions"], key=lambda row: str(row["partition"]))


def test_records_are_deleted(brokers: Brokers, tmp_path: Path) -> None:
    same_lines(brokers.run(TOPICS, "--create", "--topic", "emptied"))
    asked = tmp_path / "offsets.json"
    rows = [{"topic": "emptied", "partition": 0, "offset": -1}]
    asked.write_text(json.dumps({"partitions": rows, "version": 1}))
    printed = brokers.run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert "partition: emptied-0\tlow_watermark: 0" in same_lines(printed)


def test_the_quorum_is_this_node(brokers: Brokers) -> None:
    quorum = f"{TOOLS}.MetadataQuorumCommand"
    for answer in brokers.run(quorum, "describe", "--status"):
        status = dict(line.split(":", 1) for line in answer.lines if ":" in line)
        assert status["LeaderId"].strip() == "1"
        assert int(status["LeaderEpoch"]) > 0
        assert int(status["HighWatermark"]) > 0
        assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == [1]
        assert status["CurrentObservers"].strip() == "[]"
    for answer in brokers.run(quorum, "describe", "--replication"):
        heads, row = [line.split("\t") for line in answer.lines if line]
        assert heads[0].strip() == "NodeId"
        assert (row[0].strip(), row[-1].strip()) == ("1", "Leader")


def test_the_jvm_client_finds_what_a_current_broker_has(brokers: Brokers) -> None:
    """It creates topics, writes idempotently, reads back, asks for offsets by time."""
    features = ["offsets-for-times", "cluster-id", "create-topics"]
    features += ["describe-configs", "idempotent-producer"]
    supported = [f"--{name}-supported=True" for name in features]
    shape = ["--topic=compatibility", "--num-cluster-nodes=1"]
    for address in (brokers.ours, brokers.theirs):
        answer = run_tool(
            f"{TOOLS}.ClientCompatibilityTest",
            *(f"--bootstrap-server={address}", *shape, *supported),
            *("--describe-acls-supported=True", "--expect-record-too-large-exception=False"),
        )
        assert answer.status == 0, answer.stdout + answer.stderr
