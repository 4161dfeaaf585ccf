"""Three nodes of Headrace, and three of Apache Kafka that are broker and controller, to measure.

Each with the settings that it comes with; a node can be killed, and started again on its folder.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from bench.broker_servers import (
    CLIENT_HEAP,
    CLUSTER_ID,
    ENVIRONMENT,
    SERVER_HEAP,
    Server,
    java,
    wait_for_answer,
)
from headrace.client.addresses import Address
from headrace.client.connection import Connection, open_connection
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode, HeadraceError
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from headrace.wire.messages.describe_quorum_response import DescribeQuorumResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from headrace.wire.schema import Message
from tools.ports import free_port

NODES: Final = (1, 2, 3)
WAIT_SECONDS_MAX: Final = 120
POLL_SECONDS: Final = 0.005
_CLIENT: Final = ClientSettings(connect_timeout_ms=3000, request_timeout_ms=20_000)

M = TypeVar("M", bound=Message)


class ThreeNodes:
    """Processes by node id, and what is asked of one node at a time."""

    def __init__(self, folder: Path, command_of: Callable[[int], list[str]]) -> None:
        self.ports: dict[int, int] = {}
        self.servers: dict[int, Server] = {}
        self._folder = folder
        self._command_of = command_of
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *numbers: int) -> None:
        """Start nodes at once; return when all of them serve."""
        for number in numbers:
            with self._output(number).open("ab") as file:
                self._processes[number] = subprocess.Popen(
                    self._command_of(number), stdout=file, stderr=file, env=ENVIRONMENT
                )
        for number in numbers:
            process, port = self._processes[number], self.ports[number]
            wait_for_answer(process, port, self._output(number))
            self.servers[number] = Server(process, port, 0)

    def kill(self, number: int) -> None:
        self.servers.pop(number, None)
        self._processes[number].kill()
        self._processes[number].wait()

    def close(self) -> None:
        for number in self._processes:
            self.kill(number)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def cpu_seconds(self) -> float:
        """Return what all nodes have used."""
        return sum(server.cpu_seconds() for server in self.servers.values())

    def ask(self, number: int, body: Message, response_type: type[M]) -> M:
        async def work() -> M:
            connection = await self.connect(number)
            try:
                return await connection.request(body, response_type)
            finally:
                connection.close()

        return asyncio.run(work())

    async def connect(self, number: int) -> Connection:
        return await open_connection(Address("127.0.0.1", self.ports[number]), _CLIENT)

    def controller(self) -> int:
        """Return the leader of the metadata log, when all three are up."""
        partition = PartitionData(partition_index=0)
        topic = TopicData(topic_name="__cluster_metadata", partitions=[partition])
        body = DescribeQuorumRequest(topics=[topic])
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                views = [
                    self.ask(number, DescribeClusterRequest(), DescribeClusterResponse)
                    for number in NODES
                ]
                quorum = self.ask(NODES[0], body, DescribeQuorumResponse).topics[0].partitions[0]
            except HeadraceError:
                continue
            voters = {voter.replica_id for voter in quorum.current_voters}
            if all(len(view.brokers) == len(voters) == len(NODES) for view in views):
                return int(quorum.leader_id)
            time.sleep(POLL_SECONDS)
        sys.exit(f"no cluster of three within {WAIT_SECONDS_MAX} s; see {self._folder}")

    def create_topic(self, number: int, name: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create a topic through a node; retry until it is there."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        body = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                code = self.ask(number, body, CreateTopicsResponse).topics[0].error_code
            except HeadraceError:
                continue
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            time.sleep(POLL_SECONDS)
        sys.exit(f"node {number} did not create a topic within {WAIT_SECONDS_MAX} s")

    def partition(self, topic: str) -> MetadataResponsePartition:
        """Return what a node that is up says of the first partition of a topic."""
        body = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        for number in self.servers:
            try:
                return self.ask(number, body, MetadataResponse).topics[0].partitions[0]
            except (HeadraceError, IndexError):
                continue
        sys.exit(f"no node knows of {topic}")

    def _output(self, number: int) -> Path:
        return self._folder / f"{number}.out"


@contextmanager
def three_headraces(folder: Path) -> Iterator[ThreeNodes]:
    """Yield three `headrace up` that are each other's seeds."""
    node_ports = {number: free_port() for number in NODES}
    seeds = ",".join(f"127.0.0.1:{port}" for port in node_ports.values())

    def command_of(number: int) -> list[str]:
        command = [sys.executable, "-m", "headrace", "up", "--data", str(folder / str(number))]
        command += ["--listen", f"127.0.0.1:{nodes.ports[number]}", "--seeds", seeds]
        command += ["--node-listen", f"127.0.0.1:{node_ports[number]}"]
        return [*command, "--set", f"node.id={number}", "--set", "http.listen="]

    nodes = ThreeNodes(folder, command_of)
    yield from _run(nodes)


@contextmanager
def three_kafkas(folder: Path) -> Iterator[ThreeNodes]:
    """Yield three brokers that are controllers, too, with a static quorum."""
    controller_ports = {number: free_port() for number in NODES}
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controller_ports.items())

    def command_of(number: int) -> list[str]:
        settings = folder / f"{number}.properties"
        if not settings.exists():
            _format_kafka(folder, number, nodes.ports[number], controller_ports[number], voters)
        return java(SERVER_HEAP, "kafka.Kafka", str(settings))

    nodes = ThreeNodes(folder, command_of)
    yield from _run(nodes)


def _run(nodes: ThreeNodes) -> Iterator[ThreeNodes]:
    nodes.ports.update((number, free_port()) for number in NODES)
    try:
        nodes.start(*NODES)
        nodes.controller()
        yield nodes
    finally:
        nodes.close()


def _format_kafka(folder: Path, number: int, port: int, controller_port: int, voters: str) -> None:
    settings = folder / f"{number}.properties"
    settings.write_text(
        f"""
process.roles=broker,controller
node.id={number}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={folder / str(number)}
"""
    )
    arguments = ("format", "-t", CLUSTER_ID, "-c", str(settings))
    command = java(CLIENT_HEAP, "kafka.tools.StorageTool", *arguments)
    subprocess.run(command, capture_output=True, check=True)
