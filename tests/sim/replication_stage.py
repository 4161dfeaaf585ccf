"""Nodes with replicated partitions, to which a test does what it likes.

    async def scene(stage: Stage) -> None:
        await stage.start_all(1, 2, 3)
        await stage.create("orders", (1, 2, 3))
        assert await stage.produce(1, "orders", b"one") == (ErrorCode.NONE, 0)

    Stage().run(scene)

Everything that `replication_checks` watches holds here, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from headrace.client import Address, ClientSettings
from headrace.client.connection import open_connection
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Partition as Row
from headrace.metadata.state import ResourceType
from headrace.node.node import Node
from headrace.records.builder import BatchBuilder
from headrace.replication.partition import Partition
from headrace.testing.hosts import Host
from headrace.testing.simulated_node import NODE_PORT, PORT, make_node
from headrace.testing.simulation import Simulation
from headrace.wire import APIS
from headrace.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.schema import Message
from tests.sim.replication_checks import ReplicationChecks, compare_copies, watching_replicas

DEADLINE_SECONDS: Final = 60.0
PATIENT: Final = ClientSettings(connect_timeout_ms=2_000, request_timeout_ms=20_000)
FACTS: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "400",
    "broker.session.timeout.ms": "1800",
    "headrace.voters.max": "3",
    "log.cleaner.enable": "false",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "300",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "1000",
    "auto.leader.rebalance.enable": "false",
}


class Stage:
    """Hosts with nodes, and a client that sends single requests."""

    def __init__(self, settings: Mapping[str, str] | None = None, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.checks = ReplicationChecks(self.simulation)
        self.checks.applied_by = self._applied_by
        self.client = self.simulation.host("10.0.1.1")
        self.settings = {
            **FACTS,
            **{name.replace("_", "."): text for name, text in (settings or {}).items()},
        }
        self.nodes: dict[int, Node] = {}
        self._seeds: tuple[int, ...] = ()

    def run(self, play: Callable[["Stage"], Awaitable[None]]) -> None:
        async def main() -> None:
            await play(self)

        logging.disable(logging.CRITICAL)
        try:
            with watching_replicas(self.simulation, self.checks):
                self.simulation.run(main())
        finally:
            logging.disable(logging.NOTSET)

    def _applied_by(self, node_id: int, life: bytes) -> int | None:
        node = self.nodes.get(node_id)
        quorum = None if node is None or node._incarnation_id != life else node._quorum
        return None if quorum is None else quorum.driver.applied_index

    # Nodes

    def host(self, number: int) -> Host:
        name = f"10.0.0.{number}"
        return self.simulation.hosts.get(name) or self.simulation.host(name)

    def start(self, number: int) -> "asyncio.Future[None]":
        """Begin to start a node; the future is done when it serves."""
        host = self.host(number)
        if not host.is_up:
            host.boot()
        settings = {
            **self.settings,
            "node.id": str(number),
            "headrace.seeds": ",".join(f"10.0.0.{each}:{NODE_PORT}" for each in self._seeds),
        }
        node = self.nodes[number] = host.call(make_node, host, settings)
        return host.start(node.start())

    async def start_all(self, *numbers: int) -> None:
        self._seeds = numbers
        for each in [self.start(number) for number in numbers]:
            await each
        await self.until(lambda: all(self.is_unfenced(number) for number in numbers))
        voters = len(numbers)
        await self.until(
            lambda: all(
                len(node.broker.quorum.driver.state.membership.voters) == voters
                for node in self.nodes.values()
            )
        )

    def crash(self, number: int, *, power: bool = False) -> None:
        """Kill a node, or take the power of its machine: what was not synced may be lost."""
        self.host(number).crash(power=power)
        self.nodes.pop(number)

    async def stop(self, number: int) -> None:
        """Stop a node as an operator does."""
        await self.host(number).run(self.nodes[number].stop())
        self.crash(number)

    async def restart(self, number: int) -> None:
        await self.start(number)
        await self.until(lambda: self.is_unfenced(number))

    def is_unfenced(self, number: int) -> bool:
        """Return whether every node that runs knows another to be unfenced."""
        for node in self.nodes.values():
            broker = node.broker.image.broker(BrokerId(number)) if node.is_ready else None
            if broker is None or broker.is_fenced:
                return False
        return True

    def is_fenced(self, number: int) -> bool:
        broker = self.image.broker(BrokerId(number))
        return broker is None or broker.is_fenced

    @property
    def controller(self) -> int:
        return next(
            number
            for number, node in self.nodes.items()
            if node.is_ready and node.cluster.is_controller
        )

    # Links

    def cut(self, *pairs: tuple[int, int]) -> None:
        """Cut the ways from nodes to others, one way each."""
        for source, target in pairs:
            self.simulation.network.cut(f"10.0.0.{source}", f"10.0.0.{target}")

    def isolate(self, number: int) -> None:
        """Cut a node off from all others; clients still reach it."""
        for other in self._seeds:
            if other != number:
                self.cut((number, other), (other, number))

    def heal(self, *pairs: tuple[int, int]) -> None:
        """Restore the ways from nodes to others, or all."""
        if not pairs:
            self.simulation.network.heal()
        for source, target in pairs:
            self.simulation.network.heal(f"10.0.0.{source}", f"10.0.0.{target}")

    async def until(
        self, condition: Callable[[], object], seconds: float = DEADLINE_SECONDS
    ) -> None:
        deadline = self.simulation.now + seconds
        while not condition():
            assert self.simulation.now < deadline, "it does not come about"
            await asyncio.sleep(0.02)

    # Partitions

    @property
    def image(self) -> Image:
        """The newest image that a node has."""
        images = [node.broker.image for node in self.nodes.values() if node._broker is not None]
        return max(images, key=lambda image: image.applied_index)

    def row(self, topic: str, partition: int = 0) -> Row:
        found = self.image.topic(TopicName(topic))
        assert found is not None
        return found.partitions[partition]

    def leader(self, topic: str) -> int:
        return self.row(topic).leader

    def is_in_sync(self, topic: str) -> bool:
        row = self.row(topic)
        return set(row.isr) == set(row.replicas) and row.leader > 0

    def replica(self, number: int, topic: str, partition: int = 0) -> Partition:
        found = self.nodes[number].broker.replicas.find(TopicName(topic), partition)
        assert found is not None
        return found

    def end(self, number: int, topic: str) -> int:
        return self.replica(number, topic).log.end_offset

    def high_watermark(self, number: int, topic: str) -> int:
        return self.replica(number, topic).log.high_watermark

    async def create(
        self, topic: str, *replicas: tuple[int, ...], least: int = 2, **configs: str
    ) -> None:
        """Create a topic with the replicas of each partition; the first one leads."""
        rows = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in enumerate(replicas)
        ]
        given = {"min.insync.replicas": str(least)}
        given.update((name.replace("_", "."), text) for name, text in configs.items())
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=rows,
            configs=[CreatableTopicConfig(name=name, value=text) for name, text in given.items()],
        )
        body = CreateTopicsRequest(topics=[wanted], timeout_ms=4000)
        response = await self.ask(self.controller, body)
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0]
        self.checks.topic_names.add(topic)
        nodes = {each for some in replicas for each in some}
        await self.until(
            lambda: (
                all(
                    self.nodes[node].broker.replicas.find(TopicName(topic), index) is not None
                    for index, some in enumerate(replicas)
                    for node in some
                    if node in self.nodes
                )
                and nodes
            )
        )

    async def configure(self, topic: str, **configs: str) -> None:
        rows = [
            AlterableConfig(name=name.replace("_", "."), value=text)
            for name, text in configs.items()
        ]
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic, configs=rows
        )
        body = IncrementalAlterConfigsRequest(resources=[resource])
        response = await self.ask(self.controller, body)
        assert response.responses[0].error_code == ErrorCode.NONE

    async def delete_records(self, number: int, topic: str, offset: int) -> None:
        """Delete the records of partition 0 before an offset."""
        row = DeleteRecordsPartition(partition_index=0, offset=offset)
        body = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=4000
        )
        response = await self.ask(number, body)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    def compare(self, topic: str) -> None:
        """Compare all replicas of a topic with their leaders, byte for byte."""
        found = self.image.topic(TopicName(topic))
        assert found is not None
        for index, row in enumerate(found.partitions):
            leader = self.replica(row.leader, topic, index)
            for node in row.replicas:
                if node != row.leader:
                    follower = self.replica(node, topic, index)
                    compare_copies(f"{topic}-{index}", leader, follower, self.checks)

    # Requests

    async def ask(self, number: int, body: Message) -> Any:
        """Return a node's response to a client."""

        async def ask() -> Any:
            address = Address(f"10.0.0.{number}", PORT)
            connection = await open_connection(address, PATIENT)
            try:
                return await connection.request(body, APIS[body.API_KEY].response)
            finally:
                connection.close()

        return await self.client.run(ask())

    def start_producing(
        self, number: int, topic: str, *values: bytes, acks: int = -1, timeout_ms: int = 2000
    ) -> "asyncio.Task[tuple[ErrorCode, int]]":
        producing = self.produce(number, topic, *values, acks=acks, timeout_ms=timeout_ms)
        return asyncio.get_running_loop().create_task(producing)

    async def produce(
        self,
        number: int,
        topic: str,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 2000,
        sequence: tuple[int, int] | None = None,
    ) -> tuple[ErrorCode, int]:
        """Send one batch to a node; return the error code and the offset.

        `sequence` is a producer id and the number of the batch's first record.
        """
        builder = BatchBuilder()
        for value in values:
            self.checks.sent.add(value)
            builder.append(1_700_000_000_000, None, value)
        if sequence is None:
            batch = builder.build()
        else:
            producer_id, base_sequence = sequence
            batch = builder.build(
                producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence
            )
        found = self.image.topic(TopicName(topic))
        assert found is not None
        data = PartitionProduceData(index=0, records=batch)
        rows = [TopicProduceData(name=topic, topic_id=found.topic_id, partition_data=[data])]
        body = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=rows)
        response = await self.ask(number, body)
        row = response.responses[0].partition_responses[0]
        return ErrorCode(row.error_code), row.base_offset

    async def fetch(
        self,
        number: int,
        topic: str,
        offset: int,
        *,
        replica: tuple[int, int] | None = None,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> Any:
        """Fetch from a node, as a replica with its broker epoch if given; return the row."""
        found = self.image.topic(TopicName(topic))
        assert found is not None
        row = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=1_000_000,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=0 if replica else -1,
        )
        body = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1_000_000,
            topics=[FetchTopic(topic=topic, topic_id=found.topic_id, partitions=[row])],
            replica_state=ReplicaState(*replica) if replica else ReplicaState(),
        )
        response = await self.ask(number, body)
        return response.responses[0].partitions[0]

    def broker_epoch(self, number: int) -> int:
        broker = self.image.broker(BrokerId(number))
        assert broker is not None
        return broker.broker_epoch
