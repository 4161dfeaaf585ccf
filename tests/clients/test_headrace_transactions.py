"""Transactions of our own producer, on Headrace and on Apache Kafka, in both protocols (KIP-890).

What is visible is asked of other clients, as readers of committed records.
"""

# ruff: noqa: PT012  the end of a block is what raises

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from headrace.client import (
    Admin,
    CommittedOffset,
    Consumer,
    ErrorCode,
    GroupMetadata,
    InvalidTransactionStep,
    KafkaError,
    Producer,
    ProducerFenced,
    ProducerSettings,
    Start,
    TopicPartition,
    TransactionAborted,
)
from tests.clients.awaiting import DEADLINE_SECONDS, run
from tests.headrace_process import HeadraceProcess

FEATURE = "transaction.version"


async def set_level(bootstrap: str, level: int) -> None:
    async with Admin(bootstrap) as admin:
        if (await admin.describe_features())[FEATURE].finalized == level:
            return
        await admin.update_features({FEATURE: level}, may_downgrade=True)
        # A connection keeps what it heard when it was opened, as Kafka's clients do.
        while (await admin.describe_features())[FEATURE].finalized != level:
            await asyncio.sleep(0.01)  # polls, up to the deadline of `run`


@pytest.fixture(scope="module", params=[2, 1], ids=["implicit", "explicit"])
def level(any_bootstrap: str, request: pytest.FixtureRequest) -> Iterator[int]:
    """The level of transaction.version that the cluster has meanwhile."""
    run(set_level(any_bootstrap, request.param))
    yield request.param
    run(set_level(any_bootstrap, 2))


@pytest.fixture
def cluster(any_bootstrap: str, level: int) -> str:
    """The address of a cluster with this level."""
    return any_bootstrap


async def make_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions, 1)


@asynccontextmanager
async def transactional(bootstrap: str, name: str, **options: Any) -> AsyncIterator[Producer]:
    async with Producer(bootstrap, transactional_id=name, **options) as producer:
        yield producer


async def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return what our own reader of committed records sees, once the last markers are written."""
    async with Admin(bootstrap) as admin:
        partitions = (await admin.describe_topic(topic)).partitions
        ends = {TopicPartition(topic, row.index): Start.END for row in partitions}
        while await admin.list_offsets(ends, is_committed=True) != await admin.list_offsets(ends):
            await asyncio.sleep(0.01)  # polls, up to the deadline of `run`
    return await seen_by_headrace(bootstrap, topic)


async def seen_by_headrace(bootstrap: str, topic: str) -> list[bytes | None]:
    async with Consumer(bootstrap, read_committed=True) as consumer:
        await consumer.assign(topic, Start.BEGINNING, until_end=True)
        return [record.value async for record in consumer]


async def everything(bootstrap: str, topic: str) -> list[bytes | None]:
    async with Consumer(bootstrap) as consumer:
        await consumer.assign(topic, Start.BEGINNING, until_end=True)
        return [record.value async for record in consumer]


async def seen_by_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    client = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        isolation_level="read_committed",
    )
    await client.start()
    try:
        client.assign([AioPartition(topic, 0)])
        return [(await client.getone()).value for _ in range(count)]
    finally:
        await client.stop()


def seen_by_confluent(bootstrap: str, topic: str, count: int) -> list[bytes]:
    client = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader-{os.getpid()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        client.assign([ConfluentPartition(topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < count:
            message = client.poll(DEADLINE_SECONDS)
            assert message is not None
            assert message.error() is None
            values.append(message.value())
        return values
    finally:
        client.close()


def test_a_block_commits_and_an_exception_aborts(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        async with transactional(cluster, new_name) as producer:
            for number in range(6):
                try:
                    async with producer.transaction():
                        await producer.send(new_name, b"%d" % number)
                        await producer.send(new_name, b"%d again" % number)
                        if number % 2:
                            raise LookupError(number)
                except LookupError:
                    assert number % 2
            async with producer.transaction():
                placed = await producer.deliver(new_name, b"last")
                assert placed.offset >= 0
        kept = [b"0", b"0 again", b"2", b"2 again", b"4", b"4 again", b"last"]
        assert await committed(cluster, new_name) == kept
        assert await seen_by_aiokafka(cluster, new_name, 7) == kept
        assert await asyncio.to_thread(seen_by_confluent, cluster, new_name, 7) == kept

    run(work())


def test_records_of_many_partitions_are_one_transaction(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name, 5)
        await make_topic(cluster, f"{new_name}-too", 3)
        limits = ProducerSettings(batch_bytes=2000)
        async with transactional(cluster, new_name, limits=limits) as producer:
            for round_number in range(3):
                async with producer.transaction():
                    for number in range(500):
                        value = b"%d-%d" % (round_number, number)
                        await producer.send(new_name, value, partition=number % 5)
                        await producer.send(f"{new_name}-too", value, partition=number % 3)
        wanted = sorted(b"%d-%d" % (each, number) for each in range(3) for number in range(500))
        for topic in (new_name, f"{new_name}-too"):
            found = await committed(cluster, topic)
            assert sorted(value for value in found if value is not None) == wanted

    run(work())


def test_nothing_is_committed_before_the_block_ends(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        async with transactional(cluster, new_name) as producer:
            async with producer.transaction():
                await producer.deliver(new_name, b"one")
                await producer.flush()
                assert await seen_by_headrace(cluster, new_name) == []
                assert await everything(cluster, new_name) == [b"one"]
            assert await seen_by_aiokafka(cluster, new_name, 1) == [b"one"]

    run(work())


def test_a_transaction_without_records_leaves_no_trace(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        async with transactional(cluster, new_name) as producer:
            async with producer.transaction():
                pass
            with pytest.raises(LookupError):
                async with producer.transaction():
                    raise LookupError
            async with producer.transaction():
                await producer.send(new_name, b"one")
        assert await committed(cluster, new_name) == [b"one"]

    run(work())


def test_a_second_producer_with_the_id_shuts_the_first_out(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        first = Producer(cluster, transactional_id=new_name)
        await first.__aenter__()
        with pytest.raises(ProducerFenced) as fenced:
            async with first.transaction():
                await first.deliver(new_name, b"of the first")
                second = Producer(cluster, transactional_id=new_name)
                await second.__aenter__()
        assert fenced.value.code == ErrorCode.PRODUCER_FENCED
        assert new_name in str(fenced.value)
        with pytest.raises(ProducerFenced):
            async with first.transaction():
                pass
        with pytest.raises(ProducerFenced):
            await first.send(new_name, b"outside")
        await first.close()
        async with second, second.transaction():
            await second.send(new_name, b"of the second")
        assert await committed(cluster, new_name) == [b"of the second"]

    run(work())


def test_a_fenced_producer_hears_of_it_while_it_sends(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        first = Producer(cluster, transactional_id=new_name)
        await first.__aenter__()
        with pytest.raises(ProducerFenced):
            async with first.transaction():
                await first.deliver(new_name, b"one")
                async with Producer(cluster, transactional_id=new_name):
                    while True:
                        await first.deliver(new_name, b"two")
        with pytest.raises(ProducerFenced):
            first.transaction()._transactions.check_usable()
        await first.close()
        assert await committed(cluster, new_name) == []

    run(work())


def test_what_a_former_life_left_open_is_aborted(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        former = Producer(cluster, transactional_id=new_name)
        transaction = former.transaction()
        await transaction.__aenter__()
        await former.deliver(new_name, b"left open")
        await former.abandon()
        async with transactional(cluster, new_name) as producer, producer.transaction():
            await producer.send(new_name, b"new")
        assert await seen_by_aiokafka(cluster, new_name, 1) == [b"new"]

    run(work())


def test_a_transaction_that_is_open_for_too_long_is_aborted(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        with pytest.raises(ProducerFenced, match="transaction_timeout_ms"):
            async with (
                Admin(cluster) as admin,
                transactional(cluster, new_name, transaction_timeout_ms=100) as producer,
                producer.transaction(),
            ):
                await producer.deliver(new_name, b"slow")
                while True:
                    described = await admin.describe_transaction(new_name)
                    if described.state == "CompleteAbort":
                        break
                    await asyncio.sleep(0.05)  # polls, up to the deadline of `run`
        assert await committed(cluster, new_name) == []

    run(work())


def test_a_record_that_fails_takes_the_transaction_with_it(cluster: str, new_name: str) -> None:
    async def work() -> None:
        async with Admin(cluster) as admin:
            await admin.create_topic(new_name, 2, 1, configs={"max.message.bytes": "1000"})
        async with transactional(cluster, new_name) as producer:
            with pytest.raises(TransactionAborted) as aborted:
                async with producer.transaction():
                    await producer.send(new_name, b"fine", partition=0)
                    await producer.send(new_name, bytes(5000), partition=1)
            assert isinstance(aborted.value.__cause__, KafkaError)
            assert aborted.value.__cause__.code == ErrorCode.MESSAGE_TOO_LARGE
            # One who has seen the error and goes on is not let off either.
            with pytest.raises(TransactionAborted, match="MESSAGE_TOO_LARGE"):
                async with producer.transaction():
                    await producer.deliver(new_name, b"fine", partition=0)
                    with pytest.raises(KafkaError):
                        await producer.deliver(new_name, bytes(5000), partition=1)
                    with pytest.raises(TransactionAborted):
                        await producer.send(new_name, b"too late", partition=0)
            async with producer.transaction():
                await producer.send(new_name, b"after", partition=0)
        assert await committed(cluster, new_name) == [b"after"]

    run(work())


def test_a_record_that_was_not_accepted_takes_the_transaction_with_it(
    cluster: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        async with transactional(cluster, new_name) as producer:
            with pytest.raises(TransactionAborted, match="there is no 7"):
                async with producer.transaction():
                    await producer.send(new_name, b"fine")
                    with pytest.raises(KafkaError):
                        await producer.send(new_name, b"nowhere", partition=7)
            async with producer.transaction():
                await producer.send(new_name, b"after")
        assert await committed(cluster, new_name) == [b"after"]

    run(work())


def test_a_cancelled_block_aborts_and_is_cancelled(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        async with transactional(cluster, new_name) as producer:
            is_sent = asyncio.Event()

            async def block() -> None:
                async with producer.transaction():
                    await producer.deliver(new_name, b"cancelled")
                    is_sent.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            await is_sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            async with producer.transaction():
                await producer.send(new_name, b"after")
        assert await seen_by_aiokafka(cluster, new_name, 1) == [b"after"]
        assert await everything(cluster, new_name) == [b"cancelled", b"after"]

    run(work())


def test_one_transaction_at_a_time_and_nothing_outside(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        async with transactional(cluster, new_name) as producer:
            with pytest.raises(ValueError, match="within a transaction"):
                await producer.send(new_name, b"outside")
            async with producer.transaction() as open_one:
                with pytest.raises(InvalidTransactionStep, match="one at a time"):
                    async with producer.transaction():
                        pass
                await producer.send(new_name, b"inside")
            with pytest.raises(ValueError, match="not open"):
                await open_one.send_offsets({TopicPartition(new_name, 0): 1}, "group")
            with pytest.raises(InvalidTransactionStep, match="entered once"):
                await open_one.__aenter__()
            with pytest.raises(ValueError, match="within a transaction"):
                await producer.deliver(new_name, b"outside")
        with pytest.raises(ValueError, match="closed"):
            producer.transaction()
        assert await committed(cluster, new_name) == [b"inside"]

    run(work())


def test_offsets_are_committed_with_the_records(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name, 2)
        one, two = TopicPartition(new_name, 0), TopicPartition(new_name, 1)
        group = f"{new_name}-group"
        async with transactional(cluster, new_name) as producer, Admin(cluster) as admin:
            async with producer.transaction() as transaction:
                await producer.send(new_name, b"x", partition=0)
                await transaction.send_offsets({one: 5, two: CommittedOffset(7, -1, "note")}, group)
                await transaction.send_offsets({}, "nobody")
                assert await admin.list_group_offsets(group) == {}
            found = await admin.list_group_offsets(group, [one, two], require_stable=True)
            assert found == {one: CommittedOffset(5), two: CommittedOffset(7, -1, "note")}
            with pytest.raises(LookupError):
                async with producer.transaction() as transaction:
                    await transaction.send_offsets({one: 50}, GroupMetadata(group))
                    raise LookupError
            found = await admin.list_group_offsets(group, [one, two], require_stable=True)
            assert found[one].offset == 5
            async with producer.transaction() as transaction:  # offsets alone
                await transaction.send_offsets({one: 6}, group)
            found = await admin.list_group_offsets(group, [one, two], require_stable=True)
            assert found[one].offset == 6

    run(work())


def test_a_consumer_that_its_group_does_not_know_cannot_commit(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        stranger = GroupMetadata(f"{new_name}-group", 3, "stranger")
        async with transactional(cluster, new_name) as producer:
            with pytest.raises(KafkaError) as refused:
                async with producer.transaction() as transaction:
                    await producer.send(new_name, b"x")
                    await transaction.send_offsets({TopicPartition(new_name, 0): 1}, stranger)
            assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            with pytest.raises(TransactionAborted):
                async with producer.transaction() as transaction:
                    await producer.send(new_name, b"y")
                    with pytest.raises(KafkaError):
                        await transaction.send_offsets({TopicPartition(new_name, 0): 1}, stranger)
            async with producer.transaction():
                await producer.send(new_name, b"z")
        assert await committed(cluster, new_name) == [b"z"]

    run(work())


def test_close_within_a_transaction_aborts_it(cluster: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(cluster, new_name)
        producer = Producer(cluster, transactional_id=new_name)
        with pytest.raises(Exception, match="closed"):
            async with producer.transaction():
                await producer.send(new_name, b"closed")
                await producer.close()
        async with Admin(cluster) as admin:
            described = await admin.describe_transaction(new_name)
            assert described.state in ("Empty", "PrepareAbort", "CompleteAbort")
        assert await committed(cluster, new_name) == []

    run(work())


def test_records_are_transformed_exactly_once(cluster: str, new_name: str) -> None:
    """Consume, transform, produce; the worker dies now and then and goes on from its offsets."""
    source, target, group = f"{new_name}-in", f"{new_name}-out", f"{new_name}-group"
    count = 300
    partition = TopicPartition(source, 0)

    async def live(life: int) -> bool:
        """Work until this life ends or nothing is left."""
        async with (
            transactional(cluster, new_name) as producer,
            Admin(cluster) as admin,
            Consumer(cluster, read_committed=True) as consumer,
        ):
            offsets = await admin.list_group_offsets(group, [partition], require_stable=True)
            start = offsets[partition].offset if partition in offsets else 0
            await consumer.assign(source, start, until_end=True)
            batches = 0
            while records := await _some(consumer, 7 + life):
                batches += 1
                async with producer.transaction() as transaction:
                    for record in records:
                        await producer.send(target, b"done " + (record.value or b""))
                    await transaction.send_offsets({partition: records[-1].offset + 1}, group)
                    if batches == 4:
                        if life % 2:
                            await producer.abandon()  # as if it were gone
                        raise ConnectionAbortedError
            return True

    async def work() -> None:
        await make_topic(cluster, source)
        await make_topic(cluster, target)
        async with Producer(cluster) as producer:
            for number in range(count):
                await producer.send(source, b"%d" % number)
        is_done, lives = False, 0
        while not is_done:
            try:
                is_done = await live(lives)
            except ConnectionAbortedError:
                lives += 1
        assert lives > 3
        wanted = [b"done %d" % number for number in range(count)]
        assert await committed(cluster, target) == wanted
        assert await seen_by_aiokafka(cluster, target, count) == wanted
        assert await asyncio.to_thread(seen_by_confluent, cluster, target, count) == wanted
        assert len(await everything(cluster, target)) > count

    run(work())


def test_members_of_a_group_transform_records_exactly_once(cluster: str, new_name: str) -> None:
    """Two workers share a topic, die now and then, and commit as members of their group."""
    pytest.importorskip("headrace.client.group", reason="this client has no groups yet")
    source, target, group = f"{new_name}-in", f"{new_name}-out", f"{new_name}-group"
    count, random, is_done = 160, Random(7), asyncio.Event()

    member: Any = Consumer  # whose groups may not be there

    async def live(number: int) -> None:
        async with (
            transactional(cluster, f"{new_name}-{number}") as producer,
            member(
                cluster, group=group, reset=Start.BEGINNING, read_committed=True, auto_commit=False
            ) as consumer,
        ):
            await consumer.subscribe([source])
            while not is_done.is_set():
                records = await consumer.poll(100, 20)
                if not records:
                    continue
                async with producer.transaction() as transaction:
                    for record in records:
                        await producer.send(target, record.value, partition=0)
                    ends = {
                        TopicPartition(record.topic, record.partition): record.offset + 1
                        for record in records
                    }
                    await transaction.send_offsets(ends, consumer.group_metadata)
                    if random.random() < 0.2:
                        raise ConnectionAbortedError

    async def work_on(number: int) -> None:
        while not is_done.is_set():
            try:
                await live(number)
            except (ConnectionAbortedError, TransactionAborted, KafkaError):
                deaths.append(number)

    deaths: list[int] = []

    async def work() -> None:
        await make_topic(cluster, source, 4)
        await make_topic(cluster, target)
        async with Producer(cluster) as producer:
            for number in range(count):
                await producer.send(source, b"%d" % number, partition=number % 4)
        workers = [asyncio.create_task(work_on(number)) for number in range(2)]
        while len(await committed(cluster, target)) < count:
            await asyncio.sleep(0.1)  # polls, up to the deadline of `run`
        is_done.set()
        await asyncio.gather(*workers)
        found = await committed(cluster, target)
        assert sorted(int(value or b"") for value in found) == list(range(count))
        assert deaths

    run(work())


async def _some(consumer: Consumer, count: int) -> list[Any]:
    found = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


def test_a_killed_broker_ends_no_transaction(tmp_path: Path) -> None:
    """Killed in the middle of one, and again while it is being committed."""

    async def work() -> None:
        folder = tmp_path / "data"
        node = await asyncio.to_thread(HeadraceProcess, folder)
        port = node.port
        try:
            await make_topic(node.bootstrap, "t", 3)
            async with transactional(node.bootstrap, "id") as producer:
                async with producer.transaction():
                    for number in range(300):
                        await producer.send("t", b"%d" % number, partition=number % 3)
                        if number == 150:
                            await producer.flush()
                            await asyncio.to_thread(node.kill)
                            starting = asyncio.to_thread(HeadraceProcess, folder, port=port)
                            restart = asyncio.create_task(starting)
                    node = await restart
                    await producer.flush()
                    await asyncio.to_thread(node.kill)
                    starting = asyncio.to_thread(HeadraceProcess, folder, port=port)
                    restart = asyncio.create_task(starting)
                node = await restart
                with pytest.raises(LookupError):
                    async with producer.transaction():
                        await producer.deliver("t", b"aborted")
                        raise LookupError
            found = await committed(node.bootstrap, "t")
            assert sorted(int(value or b"") for value in found) == list(range(300))
        finally:
            await asyncio.to_thread(node.kill)

    run(work())
