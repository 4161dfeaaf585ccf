"""Kafka's own programs on partitions with three copies, also while their leaders are killed."""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from tests.crash.replicated_producers import values_by_partition
from tests.jvm.kafka_tools import TOOLS, run_tool, run_well, running_tool
from tests.jvm.replica_copies import assert_copies_are_the_same, assert_verification_finds_no_lag
from tests.jvm.replicated_nodes import NODES, ReplicatedNodes, rack_of, replicated_nodes
from tests.process_cluster import wait_for

pytestmark = pytest.mark.slow

ELECTION = f"{TOOLS}.LeaderElectionCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
THREE = ("--partitions", "3", "--replication-factor", "3")
RECORDS = 300
LONG = (pytest.mark.exhaustive, pytest.mark.timeout(3600))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedNodes]:
    with replicated_nodes(tmp_path_factory.mktemp("nodes")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _is_whole(cluster: ReplicatedNodes) -> None:
    """Start what a test before this one left behind."""
    cluster.start(number for number in NODES if number not in cluster.nodes)
    cluster.wait_until_in_sync()


def test_a_topic_shows_leaders_isr_and_elr_while_a_node_is_stopped(
    cluster: ReplicatedNodes,
) -> None:
    cluster.create("two-of-three", *THREE)
    cluster.create("all-of-three", *THREE, "--config", "min.insync.replicas=3")
    cluster.wait_until_in_sync()  # and all nodes know the topics
    rows = cluster.describe("--topic", "two-of-three")
    assert sorted(index for _, index in rows) == [0, 1, 2]
    for row in rows.values():
        assert sorted(row.replicas) == [1, 2, 3]
        assert (row.leader, row.isr, row.elr) == (str(row.replicas[0]), {1, 2, 3}, set())
    assert cluster.describe("--under-replicated-partitions") == {}

    gone = 2
    others = set(NODES) - {gone}
    cluster.stop(gone)
    wait_for(lambda: cluster.do_agree(others), "those who are left to agree")
    missing = cluster.describe("--under-replicated-partitions")
    for (topic, _), row in missing.items():
        assert row.isr == set(row.replicas) & others
        assert int(row.leader) in others
        if topic.endswith("of-three"):
            assert row.elr == ({gone} if topic == "all-of-three" else set())
    names = [topic for topic, _ in missing]
    assert names.count("two-of-three") == names.count("all-of-three") == 3

    cluster.start([gone])
    cluster.wait_until_in_sync()
    mine = {key for key, row in cluster.describe().items() if row.replicas[0] == gone}
    assert mine & set(missing)
    all_of_them = ("--election-type", "preferred", "--all-topic-partitions")
    assert (
        "Successfully completed leader election"
        in run_well(ELECTION, *cluster.where, *all_of_them).stdout
    )
    cluster.wait_until_in_sync()
    for row in cluster.describe().values():
        assert row.leader == str(row.replicas[0])


def test_an_unclean_election_gives_up_what_the_new_leader_lacks(cluster: ReplicatedNodes) -> None:
    topic, leads, lacks = "unclean", 1, 3
    config = ("--config", "min.insync.replicas=1")
    cluster.create(topic, "--replica-assignment", f"{leads}:{lacks}", *config)
    cluster.write(topic, range(10))
    cluster.stop(lacks)
    cluster.write(topic, range(10, 20))
    cluster.kill(leads)
    cluster.start([lacks])
    partition = ("--topic", topic, "--partition", "0")
    wait_for(lambda: cluster.describe("--topic", topic)[topic, 0].leader == "none", "no leader")
    preferred = run_tool(ELECTION, *cluster.where, "--election-type", "preferred", *partition)
    assert preferred.status != 0
    run_well(ELECTION, *cluster.where, "--election-type", "unclean", *partition)
    wait_for(lambda: cluster.leader(topic) == lacks, "the one that lacks records to lead")
    cluster.write(topic, range(20, 25))
    cluster.start([leads])
    cluster.wait_until_in_sync()
    kept = [str(number) for number in (*range(10), *range(20, 25))]
    assert cluster.read(topic, 15) == kept
    assert cluster.end_offsets(topic) == {0: 15}
    run_well(ELECTION, *cluster.where, "--election-type", "preferred", *partition)
    wait_for(lambda: cluster.leader(topic) == leads, "the preferred leader to lead")
    assert cluster.read(topic, 15) == kept
    assert_copies_are_the_same(cluster, topic, 0, (leads, lacks))


def reassign(
    cluster: ReplicatedNodes, plan: Path, topic: str, replicas: list[int], *arguments: str
) -> str:
    rows = [{"topic": topic, "partition": 0, "replicas": replicas}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    named = ("--reassignment-json-file", str(plan))
    return run_well(REASSIGN, *cluster.where, *named, *arguments).stdout


def test_a_replica_moves_to_another_node(cluster: ReplicatedNodes, tmp_path: Path) -> None:
    topic, plan = "moved", tmp_path / "plan.json"
    cluster.create(topic, "--replica-assignment", "1:2")
    cluster.write(topic, range(RECORDS))
    started = reassign(cluster, plan, topic, [2, 3], "--execute")
    assert "Successfully started partition reassignment for moved-0" in started

    def is_done() -> bool:
        return f"{topic}-0 is completed" in reassign(cluster, plan, topic, [2, 3], "--verify")

    wait_for(is_done, "the move")
    cluster.wait_until_in_sync()
    row = cluster.describe("--topic", topic)[topic, 0]
    assert (row.leader, row.replicas, row.isr) == ("2", (2, 3), {2, 3})
    assert_copies_are_the_same(cluster, topic, 0, (2, 3))
    assert cluster.read(topic, RECORDS) == [str(number) for number in range(RECORDS)]
    folder = cluster.folder / "1" / f"{topic}-0"
    wait_for(lambda: not folder.exists(), "the copy that is not needed to go")


def test_a_move_that_cannot_end_is_cancelled(cluster: ReplicatedNodes, tmp_path: Path) -> None:
    topic, plan = "stays", tmp_path / "plan.json"
    cluster.create(topic, "--replica-assignment", "1:2")
    cluster.write(topic, range(RECORDS))
    cluster.stop(3)
    # The tool itself names no node that is gone.
    partition = ReassignablePartition(partition_index=0, replicas=[1, 3])
    wanted = ReassignableTopic(name=topic, partitions=[partition])
    body = AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=30_000)
    response = cluster.ask(1, body, AlterPartitionReassignmentsResponse)
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0)
    wait_for(lambda: cluster.do_agree((1, 2)), "those who are left to agree")
    verified = reassign(cluster, plan, topic, [1, 3], "--verify")
    assert f"{topic}-0 is still in progress" in verified
    listed = run_well(REASSIGN, *cluster.where, "--list").stdout
    assert f"{topic}-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
    # Throttles are cleared at each node, also at the one that is gone.
    cancelled = reassign(cluster, plan, topic, [1, 3], "--cancel", "--preserve-throttles")
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    wait_for(lambda: cluster.do_agree((1, 2)), "those who are left to agree")
    assert "No partition reassignments found" in run_well(REASSIGN, *cluster.where, "--list").stdout
    row = cluster.describe("--topic", topic)[topic, 0]
    assert (row.leader, row.replicas, row.isr) == ("1", (1, 2), {1, 2})


def test_a_throttled_move_is_planned_listed_cancelled_and_finished_by_the_tool(
    cluster: ReplicatedNodes, tmp_path: Path
) -> None:
    topic, plan = "throttled", tmp_path / "plan.json"
    cluster.create(topic, "--replica-assignment", "1:2")
    lines = [str(number) * 2000 for number in range(10, 210)]
    for part in range(0, len(lines), 20):  # batches that one response does not hold at once
        text = "\n".join(lines[part : part + 20])
        run_well(f"{TOOLS}.ConsoleProducer", *cluster.where, "--topic", topic, text=text)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = run_well(
        REASSIGN, *cluster.where, "--topics-to-move-json-file", str(topics),
        *("--broker-list", "2,3", "--generate"),
    ).lines  # fmt: skip
    proposed = json.loads(
        generated[generated.index("Proposed partition reassignment configuration") + 1]
    )
    assert set(proposed["partitions"][0]["replicas"]) == {2, 3}

    started = reassign(cluster, plan, topic, [3, 2], "--execute", "--throttle", "20000")
    assert "The inter-broker throttle limit was set to 20000 B/s" in started
    assert f"Successfully started partition reassignment for {topic}-0" in started
    listed = run_well(REASSIGN, *cluster.where, "--list").stdout
    assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    verified = reassign(cluster, plan, topic, [3, 2], "--verify", "--preserve-throttles")
    assert f"{topic}-0 is still in progress" in verified
    throttles = cluster.configs("topics", topic)
    assert throttles["leader.replication.throttled.replicas"] == "0:1,0:2"
    assert throttles["follower.replication.throttled.replicas"] == "0:3"
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    for number in NODES:
        assert {cluster.configs("brokers", str(number)).get(name) for name in rates} == {"20000"}
    cancelled = reassign(cluster, plan, topic, [3, 2], "--cancel")
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert "Clearing broker-level throttles" in cancelled
    assert not cluster.configs("brokers", "1").keys() & set(rates)
    row = cluster.describe("--topic", topic)[topic, 0]
    assert (row.leader, set(row.replicas), row.isr) == ("1", {1, 2}, {1, 2})
    folder = cluster.folder / "3" / f"{topic}-0"
    wait_for(lambda: not folder.exists(), "the copy that is not needed to go")

    reassign(cluster, plan, topic, [3, 2], "--execute", "--throttle", "50000000")
    rows: list[str] = []

    def is_done() -> bool:
        rows.append(reassign(cluster, plan, topic, [3, 2], "--verify"))
        return f"{topic}-0 is completed" in rows[-1]

    wait_for(is_done, "the move")
    assert f"Clearing topic-level throttles on topic {topic}" in rows[-1]
    assert not cluster.configs("topics", topic).keys() & {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
    assert_copies_are_the_same(cluster, topic, 0, (2, 3))
    assert cluster.read(topic, len(lines)) == lines


def test_copies_are_the_same_by_every_tool(cluster: ReplicatedNodes) -> None:
    topic = "copies"
    cluster.create(topic, *THREE, "--config", "segment.bytes=1048576")
    for codec in ("none", "gzip", "zstd"):
        cluster.write(topic, range(RECORDS), "--compression-codec", codec)
    cluster.kill(cluster.leader(topic))
    cluster.write(topic, range(RECORDS))
    cluster.start(number for number in NODES if number not in cluster.nodes)
    cluster.wait_until_in_sync()
    cluster.write(topic, range(RECORDS))
    assert sum(cluster.end_offsets(topic).values()) == 5 * RECORDS
    for partition in range(3):
        if cluster.end_offsets(topic)[partition]:
            assert_copies_are_the_same(cluster, topic, partition)
    assert_verification_finds_no_lag(cluster, topic)


@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=LONG)])
def test_what_the_verifiable_producer_was_acknowledged_survives_killed_leaders(
    cluster: ReplicatedNodes, tmp_path: Path, kills: int
) -> None:
    topic = f"verified-{kills}"
    cluster.create(topic, *THREE)
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=2147483647\n")
    arguments = ("--topic", topic, "--acks", "-1", "--throughput", "500", "--repeating-keys", "30")
    with running_tool(
        f"{TOOLS}.VerifiableProducer", *cluster.where, *arguments, "--command-config", str(config)
    ) as tool:

        def wait_for_more() -> None:
            """Wait until every partition has taken something."""
            seen = len(tool.lines)

            def has_more() -> bool:
                lines = [line for line in tool.lines[seen:] if "producer_send_success" in line]
                return {json.loads(line)["partition"] for line in lines} == {0, 1, 2}

            tool.wait_for(has_more, "more acknowledged values")

        wait_for_more()
        for turn in range(kills):
            leader = cluster.leader(topic, turn % 3)
            cluster.kill(leader)
            wait_for_more()
            cluster.start([leader])
            cluster.wait_until_in_sync()
        wait_for_more()
        tool.stop()
        events = tool.events
    assert not [event for event in events if event["name"] == "producer_send_error"]
    sent = {
        (event["partition"], event["offset"]): event["value"]
        for event in events
        if event["name"] == "producer_send_success"
    }
    assert_is_all_there(cluster, topic, sent)


def assert_is_all_there(
    cluster: ReplicatedNodes, topic: str, sent: dict[tuple[int, int], str]
) -> None:
    """Each value is there once, at the offset that was acknowledged, and in order."""
    count = sum(cluster.end_offsets(topic).values())
    shown = [f"--formatter-property=print.{each}=true" for each in ("partition", "offset")]
    found: dict[tuple[int, int], str] = {}
    numbers: dict[int, list[int]] = defaultdict(list)
    for line in cluster.read(topic, count, *shown):
        partition, offset, value = line.split("\t")
        key = int(partition.partition(":")[2]), int(offset.partition(":")[2])
        found[key] = value
        numbers[key[0]].append(int(value))
    assert len(found) == count
    lost = {key: value for key, value in sent.items() if found.get(key) != value}
    assert not lost, sorted(lost.items())[:10]
    for each in numbers.values():
        assert all(one < other for one, other in pairwise(each))


@pytest.mark.parametrize("stages", [1, pytest.param(20, marks=LONG)])
def test_copiers_copy_each_record_once_though_their_coordinator_is_killed(
    cluster: ReplicatedNodes, stages: int
) -> None:
    """A chain of them, each of which reads what the one before it committed."""
    topics = [f"stage-{number}-of-{stages}" for number in range(stages + 1)]
    count = 1500
    for topic in topics:
        cluster.create(topic, "--partitions", "1", "--replication-factor", "3")
    cluster.write(topics[0], range(count))
    for source, target in pairwise(topics):
        copy_with_a_kill(cluster, source, target, count)
    values = values_by_partition(cluster.bootstrap, topics[-1], read_committed=True)
    assert list(map(int, values[0])) == list(range(count))
    read = cluster.read(topics[-1], count, "--isolation-level", "read_committed")
    assert list(map(int, read)) == list(range(count))
    assert_copies_are_the_same(cluster, topics[-1], 0)


def copy_with_a_kill(cluster: ReplicatedNodes, source: str, target: str, count: int) -> None:
    with running_tool(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", cluster.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", source, "--transactional-id", source),
        *("--transaction-size", "10", "--enable-random-aborts", "--use-group-metadata"),
        *("--max-messages", str(count)),
    ) as tool:

        def copied() -> int:
            return max((event["totalProcessed"] for event in tool.events), default=0)

        tool.wait_for(lambda: copied() > 50, "copied records")
        coordinator = cluster.leader("__transaction_state")
        cluster.kill(coordinator)
        before = copied()
        assert before < count - 50, "it was as good as done before the coordinator was killed"
        tool.wait_for(lambda: copied() > before + 50, "more copied records")
        cluster.start([coordinator])
        tool.wait(300)
        assert tool.events[-1]["remaining"] == 0
    cluster.wait_until_in_sync()


def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: ReplicatedNodes) -> None:
    topic, leader = "racks", 1
    cluster.create(topic, "--replica-assignment", "1:2:3")
    numbers = [str(number) for number in range(RECORDS)]
    cluster.write(topic, range(RECORDS))
    before = cluster.bytes_out(topic)
    for number in (2, 3, leader):
        rack = ("--command-property", f"client.rack={rack_of(number)}")
        assert cluster.read(topic, RECORDS, *rack) == numbers
        after = cluster.bytes_out(topic)
        assert [each for each in NODES if after[each] > before[each]] == [number]
        before = after
