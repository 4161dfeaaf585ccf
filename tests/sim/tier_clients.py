"""Clients of topics in the tier, beside those of replicated partitions."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headrace.client import Admin, NotReachable, Resource, ResourceType, TopicPartition
from headrace.errors import ErrorCode, HeadraceError
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.sim.node_checks import Violation, expect
from tests.sim.replication_clients import PAIRS, SETTINGS
from tests.sim.replication_raw import Connections, RawProducer

if TYPE_CHECKING:
    from tests.sim.cluster_world import Machine
    from tests.sim.tier_world import World

BRIEF: Final = "brief"
"""Old records are deleted, by retention and by request."""
WILD: Final = "wild"
"""A replica that is not in sync may lead: records are lost, and others take their places."""
FLEETING: Final = ("fleeting-1", "fleeting-2")
"""Topics that are deleted and created again."""
READ_SECONDS_MAX: Final = 60.0


class FleetingProducer(RawProducer):
    """Writes to topics that come and go; what is acknowledged is kept by the topic's id."""

    async def _send(self, partition: TopicPartition) -> bool:
        world: World = self._world  # type: ignore[assignment]
        if world.nodes and world.image_has(partition.topic):
            return await super()._send(partition)
        return True

    async def _produce(
        self, machine: "Machine", partition: TopicPartition, values: list[bytes], sequence: int
    ) -> tuple[int, int]:
        topic_id = self._topic_ids[partition.topic]
        code, offset = await super()._produce(machine, partition, values, sequence)
        if code == ErrorCode.NONE and offset >= 0 and topic_id == self._topic_ids[partition.topic]:
            known = self._world.checks.by_id[topic_id]  # type: ignore[attr-defined]
            for delta, value in enumerate(values):
                place = partition.partition, offset + delta
                before = known.setdefault(place, value)
                expect(before == value, f"{partition}@{place[1]} is {before!r} and {value!r}")
        return code, offset


async def come_and_go(world: "World", name: str) -> None:
    """Create and delete topics in the tier, by the same names."""
    luck = world.luck(name)
    while world.is_storming:
        topic = luck.choice(FLEETING)
        try:
            async with Admin(world.bootstrap, SETTINGS) as admin:
                if luck.random() < 0.6:
                    factor = min(world.FACTOR, luck.choice((2, 3)))
                    await admin.create_topic(topic, 1, factor, configs=world.configs_of(topic))
                else:
                    await admin.delete_topic(topic)
                world.checks.seen["fleeting"] += 1
        except HeadraceError as error:
            world.note(f"{name} begins again: {error!r:.200}")
        await asyncio.sleep(luck.expovariate(1.0))


async def delete_records(world: "World", name: str) -> None:
    """Delete the first records of a topic, and change how long it keeps them."""
    luck = world.luck(name)
    partition = TopicPartition(BRIEF, 0)
    while world.is_storming:
        await asyncio.sleep(luck.expovariate(1.0))
        try:
            async with Admin(world.bootstrap, SETTINGS) as admin:
                if luck.random() < 0.6:
                    ends = await admin.list_offsets({partition: -1})
                    end = ends[partition]
                    if not isinstance(end, Exception):
                        await admin.delete_records({partition: luck.randint(0, end.offset)})
                        world.checks.seen["deletions of records"] += 1
                else:
                    resource = Resource(ResourceType.TOPIC, BRIEF)
                    bytes_max = luck.choice(("-1", "900", "3000"))
                    await admin.alter_configs(resource, set={"retention.bytes": bytes_max})
        except HeadraceError as error:
            if isinstance(error, Violation):
                raise
            world.note(f"{name} begins again: {error!r:.200}")


async def move(world: "World", name: str) -> None:
    """Move replicas to nodes that have nothing of the log yet."""
    luck = world.luck(name)
    while world.is_storming:
        await asyncio.sleep(luck.expovariate(0.7))
        topic = luck.choice((PAIRS, BRIEF))
        nodes = luck.sample([machine.node_id for machine in world.machines], min(2, world.FACTOR))
        try:
            async with Admin(world.bootstrap, SETTINGS) as admin:
                await admin.alter_reassignments({TopicPartition(topic, 0): nodes})
                world.checks.seen["moves"] += 1
        except HeadraceError as error:
            world.note(f"{name} begins again: {error!r:.200}")


class WholeReader:
    """Reads a partition from its leader with single requests, and compares every batch."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._connections = Connections()

    async def read(self, topic: str, topic_id: bytes, index: int, start: int, end: int) -> None:
        """Read from an offset up to another; both are the log's own."""
        checks, simulation = self._world.checks, self._world.simulation
        partition = TopicPartition(topic, index)
        until, offset = simulation.now + READ_SECONDS_MAX, start
        while offset < end:
            row = await self._fetch(partition, topic_id, offset)
            if row is not None:
                checks.note_fetched(partition, offset, row)
                expect(
                    row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{partition} is said not to have {offset}, from {start} on: {row}",
                )
                if row.error_code == ErrorCode.NONE and row.records:
                    key = topic_id, index
                    offset = checks.check_batches(key, partition, offset, row.records)  # type: ignore[arg-type]
                    continue
            expect(
                simulation.now < until, f"{partition} is not read at {offset}, before {end}: {row}"
            )
            await asyncio.sleep(0.1)

    def close(self) -> None:
        self._connections.close()

    async def _fetch(self, partition: TopicPartition, topic_id: bytes, offset: int) -> Any:
        leader = self._world.leader_of(partition)
        wanted = FetchPartition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=700
        )
        topic = FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[wanted])
        body = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=100_000, topics=[topic])
        try:
            response = await self._connections.ask(leader, body)
        except NotReachable:
            return None
        return response.responses[0].partitions[0] if response.responses else None
