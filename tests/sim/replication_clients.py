"""The clients of a replicated cluster: programs as users write them, which note what they are told.

Each runs until the world is calm or over, and begins again after whatever its client raises. Only
what breaks a promise ends the world. `replication_raw` has clients of single requests.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from headrace.client import (
    Acknowledged,
    AcknowledgeType,
    Admin,
    ClientSettings,
    Consumer,
    ConsumerSettings,
    Placed,
    Producer,
    ProducerFenced,
    ProducerSettings,
    Resource,
    ResourceType,
    ShareConsumer,
    ShareSettings,
    Start,
    TopicPartition,
    TransactionAborted,
)
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from tests.sim.node_checks import Place, Violation

if TYPE_CHECKING:
    from tests.sim.replication_world import World

SETTINGS: Final = ClientSettings(
    connect_timeout_ms=1_000,
    request_timeout_ms=3_000,
    api_timeout_ms=8_000,
    retry_backoff_ms=100,
    retry_backoff_max_ms=400,
    topic_wait_ms=2_000,
)
LIMITS: Final = ConsumerSettings(max_wait_ms=400)
PRODUCER_LIMITS: Final = ProducerSettings(delivery_timeout_ms=8_000)
TRANSACTION_TIMEOUT_MS: Final = 6_000
ORDERS: Final = "orders"
"""Three replicas, of which two must have a record."""
PAIRS: Final = "pairs"
"""Two replicas, of which both must have a record."""
LOOSE: Final = "loose"
"""Three replicas, of which one must have a record."""
COPIES: Final = "copies"
"""What the pipeline makes of orders."""
JOBS: Final = "jobs"
"""What the queue works on."""
READERS: Final = "readers"
COPIERS: Final = "copiers"
QUEUE: Final = "workers"
LOCK_SECONDS: Final = 2.0


def value_of(world: "World", name: str, number: int) -> bytes:
    value = f"{name}-{number}".encode()
    world.checks.note_sent(value, name.encode(), number)
    return value


async def _rest(world: "World", luck: Random, a_second: float) -> None:
    await asyncio.sleep(luck.expovariate(a_second))


async def produce(world: "World", name: str, topics: Sequence[tuple[str, int]]) -> None:
    """Send numbered records to topics, one or several at a time."""
    luck = world.luck(name)
    while world.is_storming:
        me = world.new_name(name)
        number = 0
        try:
            async with Producer(world.bootstrap, SETTINGS, limits=PRODUCER_LIMITS) as producer:
                while world.is_storming:
                    sent = []
                    for _ in range(luck.choice((1, 1, 2, 4))):
                        number += 1
                        topic, count = luck.choice(topics)
                        value = value_of(world, me, number)
                        partition = luck.randrange(count)
                        sent.append((value, await producer.send(topic, value, partition=partition)))
                    for value, delivery in sent:
                        placed: Placed = await delivery
                        place = placed.topic, placed.partition, placed.offset
                        world.checks.note_acknowledged(*place, value)
                    await _rest(world, luck, world.REQUESTS_A_SECOND)
        except HeadraceError as error:
            world.note(f"{me} ends: {error!r:.200}")
            await asyncio.sleep(0.2)


# Transactions


async def transact(world: "World", name: str, topics: Sequence[tuple[str, int]]) -> None:
    """Send transactions to several partitions, and abort some of them."""
    luck = world.luck(name)
    count = 0
    while world.is_storming:
        try:
            async with Producer(
                world.bootstrap,
                SETTINGS,
                limits=PRODUCER_LIMITS,
                transactional_id=name,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            ) as producer:
                while world.is_storming:
                    count += 1
                    await _transact_once(world, producer, f"tx.{name}.{count}", topics, luck)
                    await _rest(world, luck, world.REQUESTS_A_SECOND / 2)
        except HeadraceError as error:
            world.note(f"{name} begins again: {error!r:.200}")
            await asyncio.sleep(0.2)


class _ChangedMind(Exception):
    """An application that aborts its transaction."""


async def _transact_once(
    world: "World",
    producer: Producer,
    transaction: str,
    topics: Sequence[tuple[str, int]],
    luck: Random,
) -> None:
    checks, size = world.checks, luck.randint(1, 3)
    name = transaction.encode()
    checks.transactions[name] = size, None
    will_abort = luck.random() < 0.3
    try:
        async with producer.transaction():
            for number in range(size):
                value = f"{transaction}/{number}".encode()
                checks.note_sent(value, name, number)
                topic, partitions = luck.choice(topics)
                await producer.send(topic, value, partition=luck.randrange(partitions))
            if will_abort:
                if luck.random() < 0.7:
                    await producer.flush()
                checks.transactions[name] = size, False
                raise _ChangedMind
    except _ChangedMind:
        checks.seen["aborted"] += 1
    except TransactionAborted as error:
        if not isinstance(error, ProducerFenced):
            checks.transactions[name] = size, False
        raise
    else:
        checks.transactions[name] = size, True
        checks.seen["committed"] += 1


async def copy(world: "World", name: str) -> None:
    """Copy orders, each exactly once, with the group's offsets in the same transaction."""
    while not world.is_over:
        try:
            async with (
                Producer(
                    world.bootstrap,
                    SETTINGS,
                    limits=PRODUCER_LIMITS,
                    transactional_id=name,
                    transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                ) as producer,
                Consumer(
                    world.bootstrap,
                    SETTINGS,
                    group=COPIERS,
                    reset=Start.BEGINNING,
                    limits=LIMITS,
                    auto_commit=False,
                    read_committed=True,
                ) as consumer,
            ):
                await consumer.subscribe([ORDERS])
                while not world.is_over:
                    await _copy_some(world, producer, consumer)
        except HeadraceError as error:
            world.note(f"{name} begins again: {error!r:.200}")
            await asyncio.sleep(0.2)


async def _copy_some(world: "World", producer: Producer, consumer: Consumer) -> None:
    checks = world.checks
    records = await consumer.poll(500)
    if not records:
        return
    for record in records:
        place = TopicPartition(record.topic, record.partition), record.offset
        checks.note_read_committed(place, bytes(record.value or b""))
    offsets = dict(consumer.positions)
    async with producer.transaction() as transaction:
        for record in records:
            source = f"copy.{record.partition}".encode()
            value = source + f"-{record.offset}=".encode() + bytes(record.value or b"")
            checks.note_sent(value, source, record.offset)
            await producer.send(COPIES, value, partition=0)
        await transaction.send_offsets(offsets, consumer.group_metadata)
    checks.note_offsets(COPIERS, offsets)
    checks.seen["copied"] += len(records)


# Groups and queues


async def consume(world: "World", name: str, protocol: str, topics: Sequence[str]) -> None:
    """Read committed records as a member of the group, and commit now and then."""
    luck = world.luck(name)
    while not world.is_over:
        try:
            async with Consumer(
                world.bootstrap,
                SETTINGS,
                group=READERS,
                reset=Start.BEGINNING,
                limits=LIMITS,
                auto_commit=False,
                read_committed=True,
                protocol=protocol,
                session_timeout_ms=6_000,
                heartbeat_interval_ms=500,
            ) as consumer:
                await consumer.subscribe(list(topics))
                while not world.is_over:
                    await _read_some(world, consumer, luck)
        except HeadraceError as error:
            world.note(f"{name} begins again: {error!r:.200}")
            await asyncio.sleep(0.2)


async def _read_some(world: "World", consumer: Consumer, luck: Random) -> None:
    checks = world.checks
    records = await consumer.poll(500)
    for record in records:
        place = TopicPartition(record.topic, record.partition), record.offset
        value = bytes(record.value or b"")
        checks.note_read_committed(place, value)
        checks.delivered.add((READERS, value))
    if records and (world.is_calm or luck.random() < 0.5):
        offsets = dict(consumer.positions)
        await consumer.commit(offsets)
        checks.note_offsets(READERS, offsets)


async def work(world: "World", name: str) -> None:
    """Take jobs from the queue, and say of each what became of it."""
    luck = world.luck(name)
    while not world.is_over:
        confirmed: list[Acknowledged] = []
        try:
            async with ShareConsumer(
                world.bootstrap,
                QUEUE,
                [JOBS],
                mode="explicit",
                settings=ShareSettings(client=SETTINGS, limits=LIMITS),
            ) as queue:
                queue.on_acknowledged = confirmed.append
                while not world.is_over:
                    await _work_some(world, queue, confirmed, luck)
        except HeadraceError as error:
            world.note(f"{name} begins again: {error!r:.200}")
            await asyncio.sleep(0.2)


async def _work_some(
    world: "World", queue: ShareConsumer, confirmed: list[Acknowledged], luck: Random
) -> None:
    checks, accepted = world.checks, set()
    fetched_at = world.fetched_at()
    for record in await queue.poll(500):
        place = TopicPartition(record.topic, record.partition), record.offset
        value = bytes(record.value or b"")
        checks.note_read(place, value)
        checks.note_queued(QUEUE, place, value, fetched_at)
        if world.is_calm or luck.random() < 0.8:
            queue.acknowledge(record)
            accepted.add(place)
        else:
            queue.acknowledge(record, AcknowledgeType.RELEASE)
    confirmed.clear()
    await queue.commit()
    done: set[Place] = {
        (each.partition, offset)
        for each in confirmed
        if each.error is None
        for offset in each.offsets
    }
    checks.note_done(sorted(done & accepted), world.simulation.now)


# Administration


async def administrate(world: "World", name: str) -> None:
    """Change what replication depends on, and look at the groups."""
    luck = world.luck(name)
    number = 0
    while world.is_storming:
        try:
            async with Admin(world.bootstrap, SETTINGS) as admin:
                while world.is_storming:
                    number += 1
                    await _administrate_once(world, admin, number, luck)
                    await _rest(world, luck, 1.5)
        except HeadraceError as error:
            if isinstance(error, Violation):
                raise
            world.note(f"{name} begins again: {error!r:.200}")
            await asyncio.sleep(0.2)


async def _administrate_once(world: "World", admin: Admin, number: int, luck: Random) -> None:
    act = luck.choice(("offsets", "elect", "min isr", "create", "delete", "grow"))
    if act == "offsets":
        await check_offsets(world, admin)
    elif act == "elect":
        await admin.elect_leaders()
    elif act == "min isr":
        topic = Resource(ResourceType.TOPIC, luck.choice((ORDERS, LOOSE)))
        least = ("2", "3") if topic.name == ORDERS else ("1", "2")
        await admin.alter_configs(topic, set={"min.insync.replicas": luck.choice(least)})
    elif act == "create":
        await admin.create_topic(f"other-{luck.randint(1, 2)}", 1, world.FACTOR)
    elif act == "delete":
        await admin.delete_topic(f"other-{luck.randint(1, 2)}")
    else:
        await admin.add_partitions(f"other-{luck.randint(1, 2)}", luck.randint(2, 3))
    world.checks.seen[f"admin: {act}"] += 1


async def check_offsets(world: "World", admin: Admin) -> None:
    """Expect groups to be no earlier than they were told to be.

    Offsets of a transaction count when its markers are written, which nobody is told.
    """
    for group in world.groups:
        if group == COPIERS and not world.is_over:
            continue
        expected = dict(world.checks.offsets[group])
        try:
            rows = await admin.list_group_offsets(group)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND or expected:
                raise
            continue
        world.checks.check_offsets(expected, {each: row.offset for each, row in rows.items()})


async def read_all(
    world: "World", topics: Sequence[str], *, read_committed: bool = False
) -> dict[Place, bytes]:
    """Return every record of topics."""
    records = {}
    for topic in topics:
        async with Consumer(world.bootstrap, SETTINGS, read_committed=read_committed) as consumer:
            await consumer.assign(topic, Start.BEGINNING, until_end=True)
            async for record in consumer:
                place = TopicPartition(topic, record.partition), record.offset
                records[place] = bytes(record.value or b"")
    return records
