"""Clients that send single requests to nodes of their choice, as no client library would.

A producer that sends on to a former leader, and a reader that asks followers, too.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

from headrace.client import Address, NotReachable, TopicPartition
from headrace.client.connection import Connection, open_connection
from headrace.errors import RETRIABLE, ErrorCode
from headrace.records.builder import BatchBuilder
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from headrace.wire import APIS
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.schema import Message
from tests.sim.node_checks import expect
from tests.sim.replication_clients import SETTINGS, value_of

if TYPE_CHECKING:
    from tests.sim.cluster_world import Machine
    from tests.sim.replication_world import World

TRIES_SECONDS: Final = 8.0
PRODUCE_TIMEOUT_MS: Final = 2_000
HOPELESS: Final = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))
"""What a leader says that has lost what was acknowledged."""


class Connections:
    """The connections of one client to nodes."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}

    async def ask(self, machine: "Machine", body: Message) -> Any:
        """Return a node's response; NotReachable without one."""
        name = machine.host.name
        connection = self._open.get(name)
        if connection is None or not connection.is_open:
            connection = self._open[name] = await open_connection(Address(name, 9092), SETTINGS)
        return await connection.request(body, APIS[body.API_KEY].response)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


class RawProducer:
    """An idempotent producer with one batch in flight, and its own idea of who leads."""

    def __init__(self, world: "World", name: str, topics: tuple[tuple[str, int], ...]) -> None:
        self._world = world
        self._name = name
        self._me = ""
        self._luck = world.luck(name)
        self._topics = topics
        self._connections = Connections()
        self._producer_id = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._number = 0

    async def run(self) -> None:
        while self._world.is_storming:
            if self._producer_id < 0:
                await self._begin()
            else:
                topic, count = self._luck.choice(self._topics)
                partition = TopicPartition(topic, self._luck.randrange(count))
                if not await self._send(partition):
                    self._producer_id = -1
            await asyncio.sleep(self._luck.expovariate(self._world.REQUESTS_A_SECOND))
        self._connections.close()

    def _machine(self) -> "Machine":
        return self._luck.choice(self._world.started)

    async def _begin(self) -> None:
        try:
            body = InitProducerIdRequest(transactional_id=None)
            response = await self._connections.ask(self._machine(), body)
        except NotReachable:
            return
        if response.error_code == ErrorCode.NONE:
            self._producer_id = response.producer_id
            self._me, self._number = self._world.new_name(self._name), 0
            self._sequences.clear()

    async def _send(self, partition: TopicPartition) -> bool:
        """Send a batch until it is acknowledged; return whether it was."""
        world, luck = self._world, self._luck
        values = []
        for _ in range(luck.choice((1, 1, 3))):
            self._number += 1
            values.append(value_of(world, self._me, self._number))
        sequence = self._sequences.get(partition, 0)
        until = world.simulation.now + TRIES_SECONDS
        while world.simulation.now < until:
            code, offset = int(ErrorCode.LEADER_NOT_AVAILABLE), -1
            try:
                machine = await self._leader(partition)
                if machine is not None:
                    code, offset = await self._produce(machine, partition, values, sequence)
            except NotReachable:
                code, offset = ErrorCode.NETWORK_EXCEPTION, -1
            world.checks.seen[f"raw: {ErrorCode(code).name}"] += 1
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                for delta, value in enumerate(values):
                    at = -1 if offset < 0 else offset + delta
                    world.checks.note_acknowledged(*partition, at, value)
                self._sequences[partition] = sequence + len(values)
                return True
            is_promised = world.checks.is_promised(partition.topic)
            expect(
                not (code in HOPELESS and is_promised),
                f"{self._me} sent {sequence} to {partition}, all before are there: "
                f"{ErrorCode(code).name}",
            )
            expect(
                code in RETRIABLE or code == ErrorCode.KAFKA_STORAGE_ERROR or not is_promised,
                f"{self._me} is told {ErrorCode(code).name} of {partition}",
            )
            if luck.random() < 0.8:  # else it goes on with whom it takes for the leader
                self._leaders.pop(partition, None)
            await asyncio.sleep(luck.uniform(0.05, 0.4))
        return False

    async def _leader(self, partition: TopicPartition) -> "Machine | None":
        if partition not in self._leaders:
            body = MetadataRequest(topics=[MetadataRequestTopic(name=partition.topic)])
            response = await self._connections.ask(self._machine(), body)
            for topic in response.topics:
                self._topic_ids[topic.name] = bytes(topic.topic_id)
                for row in topic.partitions:
                    place = TopicPartition(topic.name, row.partition_index)
                    self._leaders[place] = row.leader_id
        leader = self._leaders.get(partition, -1)
        if leader < 0:
            self._leaders.pop(partition, None)
            return None
        return self._world.machines[leader - 1]

    async def _produce(
        self, machine: "Machine", partition: TopicPartition, values: list[bytes], sequence: int
    ) -> tuple[int, int]:
        builder = BatchBuilder()
        for value in values:
            builder.append(1_700_000_000_000, None, value)
        batch = builder.build(
            producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
        )
        data = PartitionProduceData(index=partition.partition, records=batch)
        topic = TopicProduceData(
            name=partition.topic,
            topic_id=self._topic_ids[partition.topic],
            partition_data=[data],
        )
        body = ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])
        response = await self._connections.ask(machine, body)
        row = response.responses[0].partition_responses[0]
        return row.error_code, row.base_offset


class RawReader:
    """Reads any offset of any partition on any node, replicas that follow included."""

    def __init__(self, world: "World", name: str, topics: tuple[tuple[str, int], ...]) -> None:
        self._world = world
        self._luck: Random = world.luck(name)
        self._topics = topics
        self._connections = Connections()
        self._ends: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        while self._world.is_storming:
            try:
                await self._read()
            except NotReachable:
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._luck.expovariate(self._world.REQUESTS_A_SECOND))
        self._connections.close()

    async def _read(self) -> None:
        world, luck = self._world, self._luck
        topic, count = luck.choice(self._topics)
        partition = TopicPartition(topic, luck.randrange(count))
        end = self._ends.get(partition, 0)
        offset = luck.choice((0, end // 2, max(end - 1, 0), end))
        body = FetchRequest(
            max_wait_ms=luck.choice((0, 50)),
            min_bytes=1,
            max_bytes=100_000,
            topics=[
                FetchTopic(
                    topic=topic,
                    topic_id=world.topic_ids[topic],
                    partitions=[
                        FetchPartition(
                            partition=partition.partition,
                            fetch_offset=offset,
                            partition_max_bytes=20_000,
                        )
                    ],
                )
            ],
        )
        machine = luck.choice(world.started)
        response = await self._connections.ask(machine, body)
        if not response.responses:
            return
        row = response.responses[0].partitions[0]
        world.checks.note_fetched(partition, offset, row)
        if row.error_code != ErrorCode.NONE or not row.records:
            return
        data = memoryview(row.records)
        for position, header in read_headers(data):
            batch = data[position : position + header.size_bytes]
            expect(
                header.base_offset < row.high_watermark,
                f"{machine} sent {header.base_offset} of {partition}, beyond the high watermark "
                f"{row.high_watermark}",
            )
            if header.is_control:
                continue
            for record in read_records(batch):
                value = bytes(record.value or b"")
                world.checks.note_read((partition, record.offset), value)
            self._ends[partition] = max(end, header.next_offset)
