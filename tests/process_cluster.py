"""A cluster as its users run it: three `headrace up` that know each other as seeds.

with ProcessCluster(folder) as cluster:
    cluster.create_topic("orders")
    cluster.nodes[cluster.controller()].kill()
    cluster.create_topic("payments", through=cluster.running()[0])
    cluster.wait_until_all_agree()
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from headrace.client import Admin
from headrace.client.addresses import Address
from headrace.client.connection import open_connection
from headrace.client.settings import ClientSettings
from headrace.client.topics import TopicPartition
from headrace.config import VOTERS_MAX
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
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.wire.schema import Message
from tests.headrace_process import HeadraceProcess
from tools.ports import free_port

M = TypeVar("M", bound=Message)

DEADLINE_SECONDS = 60
POLL_SECONDS = 0.01
QUICK = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
"""Settings that notice soon who is gone; elections have the time that they come with."""
RETRIED = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # more brokers are fenced than a topic can spare
}


class Place(NamedTuple):
    """Where a node listens, and how it is run there."""

    host: str
    port: int
    node_port: int
    within: tuple[str, ...] = ()

    @property
    def node_address(self) -> str:
        return f"{self.host}:{self.node_port}"


class PartitionState(NamedTuple):
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


class ProcessCluster:
    """Nodes 1 to `count`, each with a folder of its own in `folder`."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        count: int = 3,
        places: Mapping[int, Place] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        insecure = {"headrace.insecure": "true"} if places else {}  # in networks of their own
        self.settings = {**QUICK, **insecure, **(settings or {})}
        self.own = own or {}
        """Settings that one node has and others do not."""
        self.places = dict(places or {})
        for number in range(1, count + 1):
            if number not in self.places:
                self.places[number] = Place("127.0.0.1", free_port(), free_port())
        self.seeds = tuple(place.node_address for place in self.places.values())
        """What every node is started with, even if a node moves."""
        self.nodes: dict[int, HeadraceProcess] = {}

    def __enter__(self) -> Self:
        try:
            self.start(self.places)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()

    # Life

    def launch(self, number: int) -> None:
        """Start a process, and do not wait for it."""
        place = self.places[number]
        self.nodes[number] = HeadraceProcess(
            self.folder / str(number),
            {
                **self.settings,
                **self.own.get(number, {}),
                "node.id": str(number),
                "headrace.node.listen": place.node_address,
                "headrace.seeds": ",".join(self.seeds),
            },
            host=place.host,
            port=place.port,
            within=place.within,
            program=self.program_of(number),
            is_awaited=False,
        )

    def program_of(self, number: int) -> tuple[str, ...]:
        """Return the module, and its first arguments, that a node is run with."""
        return ("headrace",)

    def start(self, numbers: Iterable[int]) -> None:
        """Start processes at once; return when all of them serve."""
        started = tuple(numbers)
        for number in started:
            self.launch(number)
        for number in started:
            self.nodes[number].wait()

    def kill(self, number: int) -> None:
        self.nodes.pop(number).kill()

    def running(self) -> tuple[int, ...]:
        return tuple(sorted(self.nodes))

    def log_digest(self, number: int, partition: TopicPartition) -> bytes:
        """Return the digest of all records of a node's copy."""
        digest = hashlib.sha256()
        folder = self.folder / str(number) / f"{partition.topic}-{partition.partition}"
        for path in sorted(folder.glob("*.log")):
            digest.update(path.read_bytes().rstrip(b"\0"))
        return digest.digest()

    # Requests to whichever node answers

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{place.host}:{place.port}" for place in self.places.values())

    def admin(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what a method of `Admin` returns, called as often as it takes."""
        answers: list[Any] = []

        async def ask() -> None:
            async with Admin(self.bootstrap) as admin:
                answers.append(await getattr(admin, method)(*arguments, **options))

        def is_answered() -> bool:
            try:
                asyncio.run(ask())
            except HeadraceError:
                return False
            return True

        wait_for(is_answered, method)
        return answers[-1]

    # Requests to one node

    def ask(self, number: int, body: Message, response_type: type[M]) -> M:
        """Return a node's own response; a HeadraceError if there is none."""
        return asyncio.run(ask(self.places[number], body, response_type))

    def create_topic(
        self,
        name: str,
        *,
        through: int = 1,
        partitions: int = 3,
        replicas: int = 1,
    ) -> None:
        """Create a topic through a node, as often as it takes."""

        def is_created() -> bool:
            code = try_to_create(self, through, name, partitions, replicas)
            return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        wait_for(is_created, f"node {through} to create {name}")

    def controller(self, among: Sequence[int] = ()) -> int:
        """Return the node that leads the metadata log, by the word of a node that has a quorum."""
        found: list[int] = []

        def is_found() -> bool:
            for number in among or self.running():
                leader = leader_by(self, number)
                if leader in (among or self.running()):
                    found.append(leader)
                    return True
            return False

        wait_for(is_found, "a controller")
        return found[0]

    def view(self, number: int) -> dict[str, Any]:
        """Return what a node says of the cluster: brokers, topics, leaders."""
        cluster = self.ask(
            number, DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse
        )
        metadata = self.ask(number, MetadataRequest(topics=None), MetadataResponse)
        return {
            "cluster_id": cluster.cluster_id,
            "brokers": {
                row.broker_id: (row.host, row.port, row.is_fenced) for row in cluster.brokers
            },
            "metadata_brokers": {row.node_id: (row.host, row.port) for row in metadata.brokers},
            "topics": {
                row.name: (
                    row.topic_id,
                    {
                        each.partition_index: (each.leader_id, each.leader_epoch, each.isr_nodes)
                        for each in row.partitions
                    },
                )
                for row in metadata.topics
            },
        }

    def topics(self, number: int) -> set[str]:
        return set(self.view(number)["topics"])

    def partitions(self, number: int) -> dict[TopicPartition, PartitionState]:
        """Return what a node says of every partition."""
        metadata = self.ask(number, MetadataRequest(topics=None), MetadataResponse)
        return {
            TopicPartition(str(topic.name), row.partition_index): PartitionState(
                row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes)
            )
            for topic in metadata.topics
            for row in topic.partitions
        }

    def wait_until_in_sync(self) -> None:
        """Return when every replica of every partition is in the ISR."""
        behind: dict[TopicPartition, PartitionState] = {}

        def are_all() -> bool:
            try:
                partitions = self.partitions(self.running()[0])
            except HeadraceError:
                return False
            behind.clear()
            behind.update((each, state) for each, state in partitions.items() if not state.is_whole)
            return bool(partitions) and not behind

        try:
            wait_for(are_all, "all replicas to be in sync")
        except AssertionError as error:
            raise AssertionError(f"{error}: {behind}") from None

    def wait_until_all_agree(
        self, topics: Iterable[str] = (), *, is_under_load: bool = False
    ) -> None:
        """Return when all nodes are unfenced, vote as far as nodes do, and say the same.

        All of them know these topics then.

        Under a load of changes no two nodes are asked at the same moment, so that only the brokers
        are compared, and other topics are not.
        """
        wanted = set(topics)
        seen: dict[int, Any] = {}

        def do_agree() -> bool:
            try:
                seen.clear()
                seen.update((number, self.view(number)) for number in self.places)
                voters = {voter.replica_id for voter in quorum_by(self, 1).current_voters}
            except HeadraceError:
                return False
            first = seen[1]
            return (
                (is_under_load or all(view == first for view in seen.values()))
                and all(view["brokers"] == first["brokers"] for view in seen.values())
                and set(first["brokers"]) == set(self.places) >= voters
                and len(voters) == min(len(self.places), VOTERS_MAX.default)
                and not any(is_fenced for _, _, is_fenced in first["brokers"].values())
                and all(wanted <= set(view["topics"]) for view in seen.values())
            )

        try:
            wait_for(do_agree, "all nodes to agree")
        except AssertionError:
            lost = {number: wanted - set(view["topics"]) for number, view in seen.items()}
            brokers = {number: view["brokers"] for number, view in seen.items()}
            raise AssertionError(f"lost: {lost}; brokers: {brokers}") from None


async def ask(place: Place, body: Message, response_type: type[M]) -> M:
    settings = ClientSettings(connect_timeout_ms=3000, request_timeout_ms=10_000)
    connection = await open_connection(Address(place.host, place.port), settings)
    try:
        return await connection.request(body, response_type)
    finally:
        connection.close()


def try_to_create(
    cluster: ProcessCluster, number: int, name: str, partitions: int, replicas: int
) -> ErrorCode:
    """Ask a node once for a topic; its answer, or a code that says that there was none."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    body = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    try:
        response = cluster.ask(number, body, CreateTopicsResponse)
    except HeadraceError:
        return ErrorCode.NETWORK_EXCEPTION
    code = ErrorCode(response.topics[0].error_code)
    expected = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, *RETRIED}
    assert code in expected, (code, response.topics[0].error_message)
    return code


def quorum_by(cluster: ProcessCluster, number: int) -> Any:
    """Return what a node hears of the quorum from its leader; a HeadraceError if nothing."""
    partition = PartitionData(partition_index=0)
    body = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])]
    )
    response = cluster.ask(number, body, DescribeQuorumResponse)
    if response.error_code:
        raise HeadraceError(str(response.error_message))
    return response.topics[0].partitions[0]


def leader_by(cluster: ProcessCluster, number: int) -> int:
    try:
        leader: int = quorum_by(cluster, number).leader_id
    except HeadraceError:
        return -1
    return leader


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS} s for {what}"
        time.sleep(POLL_SECONDS)  # polls, up to the deadline
