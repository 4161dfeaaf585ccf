"""The clients of a simulated node: programs as users write them, which note what they are told.

Each runs until the world is calm or over, and begins again after whatever its client raises: a
cluster that cannot be reached is what this is about. Only what breaks a promise ends the world.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Final

from headrace.client import (
    Acknowledged,
    AcknowledgeType,
    Address,
    Admin,
    ClientSettings,
    Consumer,
    ConsumerSettings,
    NotReachable,
    Placed,
    Producer,
    ProducerSettings,
    ShareConsumer,
    ShareSettings,
    Start,
    TopicPartition,
)
from headrace.client.connection import Connection, open_connection
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.wire import APIS
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.schema import Message
from tests.sim.node_checks import Place, Violation, expect

if TYPE_CHECKING:
    from tests.sim.node_world import World

BOOTSTRAP: Final = "10.0.0.1:9092"
ORDERS: Final = "orders"
JOBS: Final = "jobs"
GROUP: Final = "billing"
QUEUE: Final = "workers"
SETTINGS: Final = ClientSettings(
    connect_timeout_ms=2_000,
    request_timeout_ms=4_000,
    api_timeout_ms=8_000,
    retry_backoff_ms=50,
    retry_backoff_max_ms=400,
    topic_wait_ms=2_000,
)
LIMITS: Final = ConsumerSettings(max_wait_ms=300)
PROBES: Final[tuple[Callable[[], Message], ...]] = (
    lambda: MetadataRequest(topics=None),
    DescribeClusterRequest,
    ListGroupsRequest,
    lambda: DescribeLogDirsRequest(topics=None),
)


async def produce(world: "World", name: str) -> None:
    """Send numbered records to both topics, one or several at a time."""
    luck = world.luck(name)
    numbers = count(1)  # also after an error: what was sent before it may be there
    while world.is_storming:
        try:
            compression = luck.choice(("none", "none", "gzip", "lz4"))
            limits = ProducerSettings(delivery_timeout_ms=9_000)
            async with Producer(
                BOOTSTRAP, SETTINGS, compression=compression, limits=limits
            ) as producer:
                while world.is_storming:
                    await _send_some(world, producer, name, numbers, luck)
                    await asyncio.sleep(luck.expovariate(6))
        except HeadraceError as error:
            world.note(f"{name} begins again: {error}")
            await asyncio.sleep(0.2)


async def _send_some(
    world: "World", producer: Producer, name: str, numbers: Iterator[int], luck: Random
) -> None:
    sent = []
    lost = world.losses
    for number in islice(numbers, luck.choice((1, 1, 2, 5))):
        topic, partitions = luck.choice(((ORDERS, 3), (ORDERS, 3), (JOBS, 2)))
        padding = luck.choice((0, 10, 100, 2000, 60_000 if luck.random() < 0.1 else 0))
        value = f"{name}-{number} ".encode() + bytes(padding)
        world.checks.note_sent(value)
        delivery = await producer.send(topic, value, partition=luck.randrange(partitions))
        sent.append((value, delivery))
    for value, delivery in sent:
        placed: Placed = await delivery
        if lost == world.losses:  # else it may be of what went with the power meanwhile
            place = TopicPartition(placed.topic, placed.partition), placed.offset
            world.checks.note_acknowledged(place, value)


async def consume(world: "World", name: str, protocol: str) -> None:
    """Read as a member of the group, and commit now and then."""
    luck = world.luck(name)
    while not world.is_over:
        try:
            async with Consumer(
                BOOTSTRAP,
                SETTINGS,
                group=GROUP,
                reset=Start.BEGINNING,
                limits=LIMITS,
                auto_commit=False,
                protocol=protocol,
                session_timeout_ms=6_000,
                heartbeat_interval_ms=500,
            ) as consumer:
                await consumer.subscribe([ORDERS])
                while not world.is_over:
                    await _read_some(world, consumer, luck)
        except HeadraceError as error:
            world.note(f"{name} begins again: {error}")
            await asyncio.sleep(0.2)


async def _read_some(world: "World", consumer: Consumer, luck: Random) -> None:
    lost = world.losses
    records = await consumer.poll(500)
    for record in records:
        place = TopicPartition(record.topic, record.partition), record.offset
        assert record.value is not None
        world.checks.note_read(place, bytes(record.value))
        world.checks.delivered.add(bytes(record.value))
    if records and (world.is_calm or luck.random() < 0.3):
        offsets = dict(consumer.positions)
        await consumer.commit(offsets)
        if lost == world.losses:
            world.checks.note_committed(offsets)


async def work(world: "World", name: str) -> None:
    """Take jobs from the queue, and say of each what became of it."""
    luck = world.luck(name)
    while not world.is_over:
        confirmed: list[Acknowledged] = []
        try:
            async with ShareConsumer(
                BOOTSTRAP,
                QUEUE,
                [JOBS],
                mode="explicit",
                settings=ShareSettings(client=SETTINGS, limits=LIMITS),
            ) as queue:
                queue.on_acknowledged = confirmed.append
                while not world.is_over:
                    await _work_some(world, name, queue, confirmed, luck)
        except HeadraceError as error:
            world.note(f"{name} begins again: {error}")
            await asyncio.sleep(0.2)


async def _work_some(
    world: "World", name: str, queue: ShareConsumer, confirmed: list[Acknowledged], luck: Random
) -> None:
    lost, fetched_at = world.losses, world.fetched_at(name)
    accepted: set[Place] = set()
    for record in await queue.poll(500):
        place = TopicPartition(record.topic, record.partition), record.offset
        assert record.value is not None
        world.checks.note_read(place, bytes(record.value))
        world.checks.note_queued(place, bytes(record.value), fetched_at)
        if world.is_calm or luck.random() < 0.8:
            queue.acknowledge(record)
            accepted.add(place)
        else:
            queue.acknowledge(record, AcknowledgeType.RELEASE)
    confirmed.clear()
    await queue.commit()
    if lost == world.losses:
        done = {
            (each.partition, offset)
            for each in confirmed
            if each.error is None
            for offset in each.offsets
        }
        world.checks.note_done(sorted(done & accepted), world.simulation.now)


async def administrate(world: "World", name: str) -> None:
    """Create topics, look at the group, and expect to find what was there."""
    luck = world.luck(name)
    number = 0
    while world.is_storming:
        try:
            async with Admin(BOOTSTRAP, SETTINGS) as admin:
                while world.is_storming:
                    number += 1
                    await _administrate_once(world, admin, number, luck)
                    await asyncio.sleep(luck.expovariate(1))
        except HeadraceError as error:
            world.note(f"{name} begins again: {error}")
            await asyncio.sleep(0.2)


async def _administrate_once(world: "World", admin: Admin, number: int, luck: Random) -> None:
    checks = world.checks
    if luck.random() < 0.3:
        topic = f"{luck.choice(('a', 'b'))}-{number}"
        try:
            await admin.create_topic(topic, luck.randint(1, 3))
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        checks.topics.add(topic)
    else:
        expected = set(checks.topics)
        found = {topic.name for topic in await admin.list_topics()}
        expect(expected <= found, f"topics are gone: {sorted(expected - found)}")
        committed, losses = dict(checks.committed), world.losses
        rows = await admin.list_group_offsets(GROUP)
        if losses == world.losses:
            offsets = {each: row.offset for each, row in rows.items()}
            checks.check_committed(committed, offsets)


async def probe(world: "World", name: str) -> None:
    """Ask one thing after the other: each is answered, or the connection is closed."""
    luck = world.luck(name)
    connection: Connection | None = None
    while not world.is_over:
        body = luck.choice(PROBES)()
        asked_at = world.simulation.now
        try:
            if connection is None or not connection.is_open:
                connection = await open_connection(Address("10.0.0.1", 9092), SETTINGS)
            await connection.request(body, APIS[body.API_KEY].response)
            world.checks.seen["probes"] += 1
        except NotReachable as error:
            if "did not respond" in str(error) and asked_at > world.quiet_at:
                raise Violation(f"{name}: {error}") from error
            await asyncio.sleep(0.1)
        await asyncio.sleep(luck.expovariate(2))
    if connection is not None:
        connection.close()


async def read_all(topics: dict[str, int]) -> dict[Place, bytes]:
    """Return every record that there is."""
    records = {}
    for topic in topics:
        async with Consumer(BOOTSTRAP, SETTINGS) as consumer:
            await consumer.assign(topic, Start.BEGINNING, until_end=True)
            async for record in consumer:
                place = TopicPartition(topic, record.partition), record.offset
                records[place] = bytes(record.value or b"")
    return records
