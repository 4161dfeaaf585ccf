"""Three processes with three copies of everything, for Kafka's own programs."""

import re
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from tests.clients.conftest import QUICK_GROUPS
from tests.jvm.kafka_tools import CONFIGS, TOOLS, TOPICS, run_well
from tests.process_cluster import ProcessCluster, wait_for

NODES = (1, 2, 3)
SETTINGS = {
    **QUICK_GROUPS,
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
    "http.listen": "127.0.0.1:0",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class Described(NamedTuple):
    """A partition as kafka-topics shows it."""

    leader: str
    replicas: tuple[int, ...]
    isr: set[int]
    elr: set[int]


class ReplicatedNodes(ProcessCluster):
    """A cluster whose nodes are in racks of their own, with metrics."""

    def __init__(self, folder: Path) -> None:
        own = {number: {"broker.rack": rack_of(number)} for number in NODES}
        super().__init__(folder, SETTINGS, own=own)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{place.host}:{place.port}" for place in self.places.values())

    @property
    def where(self) -> tuple[str, str]:
        return ("--bootstrap-server", self.bootstrap)

    def create(self, topic: str, *arguments: str) -> None:
        """Create a topic with kafka-topics."""
        run_well(TOPICS, *self.where, "--create", "--topic", topic, *arguments)

    def describe(self, *arguments: str) -> dict[tuple[str, int], Described]:
        """Return the partitions that kafka-topics describes."""
        lines = run_well(TOPICS, *self.where, "--describe", *arguments).lines
        rows = [_columns(line) for line in lines if "Partition:" in line]
        return {
            (row["Topic"], int(row["Partition"])): Described(
                row["Leader"],
                tuple(map(int, row["Replicas"].split(","))),
                _ids(row["Isr"]),
                _ids(row["Elr"]),
            )
            for row in rows
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return who leads a partition, by the word of a node that runs; -1 if nobody does."""
        for number in self.running():
            try:
                _, partitions = self.view(number)["topics"][topic]
            except (HeadraceError, KeyError):
                continue
            leader: int = partitions[partition][0]
            return leader
        return -1

    def write(self, topic: str, numbers: range, *arguments: str) -> None:
        """Write numbers with the console's producer, which waits for all in-sync replicas."""
        text = "".join(f"{number}\n" for number in numbers)
        producer = f"{TOOLS}.ConsoleProducer"
        run_well(producer, *self.where, "--topic", topic, *arguments, text=text)

    def read(self, topic: str, count: int, *arguments: str) -> list[str]:
        """Return the first records of a topic, read by the console's consumer."""
        span = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        consumer = f"{TOOLS}.consumer.ConsoleConsumer"
        return run_well(consumer, *self.where, "--topic", topic, *span, *arguments).lines

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return what kafka-get-offsets prints."""
        lines = run_well(f"{TOOLS}.GetOffsetShell", *self.where, "--topic", topic).lines
        rows = (line.split(":") for line in lines if line)
        return {int(partition): int(offset) for _, partition, offset in rows}

    def configs(self, kind: str, name: str) -> dict[str, str]:
        """Return the dynamic configs that kafka-configs shows of a resource."""
        named = ("--entity-type", kind, "--entity-name", name, "--describe")
        lines = run_well(CONFIGS, *self.where, *named).lines
        pairs = [
            line.strip().split(" ")[0].split("=", 1) for line in lines if line.startswith("  ")
        ]
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}

    def bytes_out(self, topic: str) -> dict[int, float]:
        """Return what each node sent of a topic to consumers, by its metrics."""
        found: dict[int, float] = {}
        name = re.compile(
            rf'^headrace_topic_bytes_out_total{{topic="{topic}"}} (\S+)', re.MULTILINE
        )
        for number, node in self.nodes.items():
            port = re.findall(r"http on port (\d+)", node.output.read_text())[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
                row = name.search(response.read().decode())
            found[number] = float(row[1]) if row else 0
        return found

    def stop(self, number: int) -> None:
        assert self.nodes.pop(number).stop() == 0

    def do_agree(self, numbers: Iterable[int]) -> bool:
        """Tell whether these nodes say the same of every topic."""
        views = [self._topics(number) for number in numbers]
        return views[0] is not None and all(view == views[0] for view in views)

    def wait_until_in_sync(self) -> None:
        """Return when all nodes run and agree, and every replica is in its ISR."""

        def are_all() -> bool:
            topics = self._topics(NODES[0])
            return (
                topics is not None
                and all(
                    row.leader_id >= 0 and set(row.isr_nodes) == set(row.replica_nodes)
                    for topic in topics
                    for row in topic.partitions
                )
                and self.do_agree(NODES)
            )

        wait_for(are_all, "all replicas to be in sync")

    def _topics(self, number: int) -> list[MetadataResponseTopic] | None:
        try:
            return self.ask(number, MetadataRequest(topics=None), MetadataResponse).topics
        except HeadraceError:
            return None


def rack_of(number: int) -> str:
    return f"rack-{number}"


def _columns(line: str) -> dict[str, str]:
    pairs = (column.partition(":") for column in line.split("\t") if ":" in column)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _ids(text: str) -> set[int]:
    return {int(each) for each in text.split(",") if each}


@contextmanager
def replicated_nodes(folder: Path) -> Iterator[ReplicatedNodes]:
    with ReplicatedNodes(folder) as cluster:
        cluster.wait_until_all_agree()
        yield cluster
