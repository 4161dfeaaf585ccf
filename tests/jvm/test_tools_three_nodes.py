"""Kafka's own programs on three nodes, through each of them."""

import json
from collections.abc import Iterator

import pytest

from headrace.testing.cluster import TestCluster
from tests.clients.confluent_queues import QUICK, fill, queue
from tests.clients.conftest import QUICK_GROUPS
from tests.clients.test_cluster_workloads import ONE_REPLICA
from tests.jvm.kafka_tools import TOOLS, TOPICS, run_well

PARTITIONS = 6
RECORDS = 300
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3, settings={**QUICK_GROUPS, **QUICK, **ONE_REPLICA}) as cluster:
        yield cluster


@pytest.mark.parametrize("node", NODES)
def test_records_of_the_verifiable_producer_are_read_by_the_verifiable_consumer(
    cluster: TestCluster, node: int
) -> None:
    first, second = (
        ("--bootstrap-server", cluster.nodes[each].bootstrap) for each in (node, node % 3 + 1)
    )
    topic = f"verified-{node}"
    partitions = ("--partitions", str(PARTITIONS), "--replication-factor", "1")
    run_well(TOPICS, *first, "--create", "--topic", topic, *partitions)
    where = (*first, "--topic", topic)
    printed = run_well(f"{TOOLS}.VerifiableProducer", *where, "--max-messages", str(RECORDS))
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert len(sent) == RECORDS
    for protocol in ("classic", "consumer"):
        group = ("--group-id", f"{topic}-{protocol}", "--group-protocol", protocol)
        printed = run_well(
            f"{TOOLS}.VerifiableConsumer",
            *(*second, "--topic", topic, *group, "--max-messages", str(RECORDS)),
        )
        events = [json.loads(line) for line in printed.lines if line.startswith("{")]
        read = sum(event["count"] for event in events if event["name"] == "records_consumed")
        assert read == RECORDS


@pytest.mark.parametrize("node", NODES)
def test_the_console_writes_and_reads(cluster: TestCluster, node: int) -> None:
    where = ("--bootstrap-server", cluster.nodes[node].bootstrap, "--topic", f"console-{node}")
    partitions = ("--partitions", str(PARTITIONS), "--replication-factor", "1")
    run_well(TOPICS, *where, "--create", *partitions)
    lines = [f"key-{number}\t{number}" for number in range(RECORDS)]
    keyed = ("--reader-property", "parse.key=true")
    run_well(f"{TOOLS}.ConsoleProducer", *where, *keyed, text="\n".join(lines) + "\n")
    span = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "30000")
    found = run_well(f"{TOOLS}.consumer.ConsoleConsumer", *where, *span).lines
    assert sorted(map(int, found)) == list(range(RECORDS))


@pytest.mark.parametrize("node", NODES)
def test_the_verifiable_share_consumer_acknowledges_all(cluster: TestCluster, node: int) -> None:
    bootstrap = cluster.nodes[node].bootstrap
    name = queue(bootstrap, PARTITIONS)
    fill(cluster.nodes[node % 3 + 1].bootstrap, name, RECORDS, PARTITIONS)
    printed = run_well(
        f"{TOOLS}.VerifiableShareConsumer",
        *("--bootstrap-server", bootstrap, "--topic", name, "--group-id", name),
        *("--max-messages", str(RECORDS), "--acknowledgement-mode", "sync"),
        *("--offset-reset-strategy", "earliest"),
    )
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == RECORDS


@pytest.mark.parametrize("node", NODES)
def test_the_copier_copies_each_record_once_over_all_nodes(cluster: TestCluster, node: int) -> None:
    bootstrap = cluster.nodes[node].bootstrap
    source, target = f"copied-{node}", f"copy-{node}"
    where = ("--bootstrap-server", bootstrap)
    one = ("--partitions", "1", "--replication-factor", "1")
    many = ("--partitions", str(PARTITIONS), "--replication-factor", "1")
    run_well(TOPICS, *where, "--create", "--topic", source, *one)
    run_well(TOPICS, *where, "--create", "--topic", target, *many)
    numbers = "\n".join(map(str, range(RECORDS))) + "\n"
    run_well(f"{TOOLS}.ConsoleProducer", *where, "--topic", source, text=numbers)
    printed = run_well(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", source, "--transactional-id", source),
        *("--transaction-size", "30", "--enable-random-aborts", "--use-group-metadata"),
    )
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    assert events[-1]["remaining"] == 0
    span = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "30000")
    committed = ("--isolation-level", "read_committed")
    reading = (*where, "--topic", target, *span, *committed)
    found = run_well(f"{TOOLS}.consumer.ConsoleConsumer", *reading).lines
    assert sorted(map(int, found)) == list(range(RECORDS))
