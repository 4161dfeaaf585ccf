"""Our own client against real brokers: Headrace, and Apache Kafka."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Producer as ConfluentProducer

from headrace.client import (
    Admin,
    ClientSettings,
    Cluster,
    Consumer,
    NewTopic,
    NotReachable,
    Producer,
    Start,
    TopicPartition,
)
from headrace.client.configs import Resource, ResourceType
from headrace.client.fetched import ConsumedRecord
from headrace.client.outcomes import values_of
from headrace.client.settings import ProducerSettings
from headrace.errors import ErrorCode, KafkaError
from tests.clients.awaiting import DEADLINE_SECONDS, run
from tests.headrace_process import HeadraceProcess


async def make_topic(
    bootstrap: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions, 1, configs=configs)


async def read_all(bootstrap: str, topic: str, **options: Any) -> list[ConsumedRecord]:
    async with Consumer(bootstrap, **options) as consumer:
        await consumer.assign(topic, Start.BEGINNING, until_end=True)
        return [record async for record in consumer]


def values(records: list[ConsumedRecord], partition: int = 0) -> list[bytes | None]:
    return [record.value for record in records if record.partition == partition]


async def eventually(find: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while not await find():
        await asyncio.sleep(0.02)  # polls, up to the deadline of `run`


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(
    any_bootstrap: str, new_name: str, compression: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 3)
        async with Producer(any_bootstrap, compression=compression) as producer:
            placed = await producer.deliver(
                new_name, "text", key=b"k", partition=1, headers={"a": b"1"}, timestamp_ms=now_ms
            )
            assert (placed.topic, placed.partition, placed.offset) == (new_name, 1, 0)
            nothing = await producer.deliver(new_name, None, partition=1)
            assert nothing.offset == 1
            for number in range(5000):
                await producer.send(new_name, b"%d" % number, partition=2)
        records = await read_all(any_bootstrap, new_name)
        first, second = (record for record in records if record.partition == 1)
        assert (first.key, first.value, first.headers) == (b"k", b"text", (("a", b"1"),))
        assert first.timestamp == now_ms
        assert (second.key, second.value) == (None, None)
        assert values(records, 2) == [b"%d" % number for number in range(5000)]

    now_ms = int(time.time() * 1000) - 1000
    run(work())


@pytest.mark.parametrize("acks", [0, 1])
def test_records_arrive_with_every_acks(
    any_bootstrap: str, new_name: str, acks: Literal[0, 1]
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with Producer(any_bootstrap, acks=acks) as producer:
            placed = await producer.deliver(new_name, b"one")
            assert placed.offset == (-1 if acks == 0 else 0)

        async def has_arrived() -> bool:
            return values(await read_all(any_bootstrap, new_name)) == [b"one"]

        await eventually(has_arrived)

    run(work())


def test_keys_decide_the_partition_as_in_other_clients(any_bootstrap: str, new_name: str) -> None:
    keys = [b"key-%d" % number for number in range(50)]
    other = ConfluentProducer({"bootstrap.servers": any_bootstrap, "partitioner": "murmur2_random"})

    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 7)
        async with Producer(any_bootstrap) as producer:
            for key in keys:
                await producer.send(new_name, b"ours", key)
        for key in keys:
            other.produce(new_name, b"theirs", key)
        other.flush(DEADLINE_SECONDS)
        records = await read_all(any_bootstrap, new_name)
        ours = {record.key: record.partition for record in records if record.value == b"ours"}
        theirs = {record.key: record.partition for record in records if record.value == b"theirs"}
        assert ours == theirs
        assert len(ours) == len(keys)

    run(work())


def test_batches_that_a_topic_finds_too_large_are_sent_in_parts(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 1, {"max.message.bytes": "5000"})
        async with Producer(any_bootstrap, limits=ProducerSettings(linger_ms=50)) as producer:
            deliveries = [
                await producer.send(new_name, b"%04d" % number * 100) for number in range(100)
            ]
            places = [await delivery for delivery in deliveries]
        assert [place.offset for place in places] == list(range(100))
        records = await read_all(any_bootstrap, new_name)
        assert values(records) == [b"%04d" % number * 100 for number in range(100)]

    run(work())


def test_a_record_that_is_refused_is_told_by_its_delivery_or_by_the_flush(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 1, {"max.message.bytes": "1000"})
        async with Producer(any_bootstrap) as producer:
            with pytest.raises(KafkaError) as refused:
                await producer.deliver(new_name, bytes(2000))
            assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
            await producer.flush()
            await producer.send(new_name, bytes(2000))
            with pytest.raises(KafkaError):
                await producer.flush()
            assert (await producer.deliver(new_name, b"small")).offset == 0

    run(work())


def test_memory_is_bounded_and_nothing_is_lost_by_it(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 2)
        limits = ProducerSettings(memory_bytes=50_000, batch_bytes=8_000, linger_ms=60_000)
        async with Producer(any_bootstrap, limits=limits) as producer:
            for number in range(2000):
                await producer.send(new_name, b"%0100d" % number, partition=number % 2)
                assert producer._accumulator.used_bytes <= 50_000
        records = await read_all(any_bootstrap, new_name)
        assert values(records, 0) == [b"%0100d" % number for number in range(0, 2000, 2)]
        assert values(records, 1) == [b"%0100d" % number for number in range(1, 2000, 2)]

    run(work())


def test_a_topic_that_may_be_created_on_the_way_is(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        async with Producer(any_bootstrap) as producer:
            assert (await producer.deliver(new_name, b"one")).offset == 0

    run(work())


def test_a_consumer_does_not_create_what_it_is_to_read(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        with pytest.raises(KafkaError, match="there is no topic") as missing:
            await read_all(any_bootstrap, new_name)
        assert missing.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with Admin(any_bootstrap) as admin:
            assert new_name not in [topic.name for topic in await admin.list_topics()]

    run(work())


def test_reading_starts_where_it_is_told_to(any_bootstrap: str, new_name: str) -> None:
    base_ms = int(time.time() * 1000) - 100_000

    async def read(start: int | Start, end: int = 10) -> list[bytes | None]:
        async with Consumer(any_bootstrap) as consumer:
            await consumer.assign(new_name, start)
            consumer.stop_at({TopicPartition(new_name, 0): end})
            return [record.value async for record in consumer]

    async def read_from_time(timestamp_ms: int) -> list[bytes | None]:
        async with Consumer(any_bootstrap) as consumer:
            await consumer.assign_from_time(new_name, timestamp_ms, until_end=True)
            return [record.value async for record in consumer]

    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        sent = [b"%d" % number for number in range(10)]
        async with Producer(any_bootstrap) as producer:
            for number, value in enumerate(sent):
                await producer.send(new_name, value, timestamp_ms=base_ms + 1000 * number)
        assert await read(Start.BEGINNING) == sent
        assert await read(Start.END) == []
        assert await read(7) == sent[7:]
        assert await read(3, end=5) == sent[3:5]
        assert await read_from_time(base_ms + 4500) == sent[5:]
        assert await read_from_time(base_ms) == sent
        assert await read_from_time(base_ms + 999_999) == []

    run(work())


def test_seeking_goes_back_and_leaving_a_loop_loses_nothing(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with Producer(any_bootstrap) as producer:
            for number in range(10):
                await producer.send(new_name, b"%d" % number)
        partition = TopicPartition(new_name, 0)
        async with Consumer(any_bootstrap) as consumer:
            await consumer.assign(new_name, Start.BEGINNING, until_end=True)
            async for record in consumer:
                if record.offset == 3:
                    break
            assert consumer.positions[partition] == 4
            assert [record.offset for record in await consumer.poll(records_max=2)] == [4, 5]
            consumer.seek(partition, 1)
            assert consumer.positions[partition] == 1
            assert [record.offset async for record in consumer] == list(range(1, 10))
            assert consumer.is_at_end

    run(work())


def test_a_consumer_waits_for_records_to_come(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 3)
        async with Consumer(any_bootstrap) as consumer, Producer(any_bootstrap) as producer:
            await consumer.assign(new_name, Start.END)
            assert await consumer.poll(timeout_ms=1) == []
            for number in range(5):
                await producer.deliver(new_name, b"%d" % number, partition=number % 3)
                records = await consumer.poll()
                assert [record.value for record in records] == [b"%d" % number]

    run(work())


def test_an_offset_that_does_not_exist_is_an_error_or_a_new_start(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with Producer(any_bootstrap) as producer:
            await producer.deliver(new_name, b"one")
        async with Consumer(any_bootstrap) as consumer:
            await consumer.assign(new_name, 99)
            with pytest.raises(KafkaError, match="has offsets 0 to 1, not 99") as refused:
                await consumer.poll()
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        async with Consumer(any_bootstrap, reset=Start.BEGINNING) as consumer:
            await consumer.assign(new_name, 99)
            assert [record.value for record in await consumer.poll()] == [b"one"]

    run(work())


def test_a_topic_that_is_deleted_ends_its_consumer_with_an_error(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with Consumer(any_bootstrap) as consumer, Admin(any_bootstrap) as admin:
            await consumer.assign(new_name, Start.END)
            waiting = asyncio.create_task(consumer.poll())
            await admin.delete_topic(new_name)
            with pytest.raises(KafkaError, match=new_name):
                await waiting

    run(work())


def test_a_topic_that_is_made_again_is_written_by_the_same_producer(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with Producer(any_bootstrap) as producer, Admin(any_bootstrap) as admin:
            await producer.deliver(new_name, b"old")
            await admin.delete_topic(new_name)

            async def is_made() -> bool:
                outcomes = await admin.create_topics([NewTopic(new_name, 1, 1)])
                return not isinstance(outcomes[new_name], KafkaError)

            await eventually(is_made)
            await producer.deliver(new_name, b"new")
        assert values(await read_all(any_bootstrap, new_name)) == [b"new"]

    run(work())


def test_topics_are_created_described_grown_and_deleted(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            made = await admin.create_topic(new_name, 2, 1, configs={"retention.ms": "1000000"})
            assert (made.partitions, made.replication_factor) == (2, 1)
            outcomes = await admin.create_topics([NewTopic("no good"), NewTopic(new_name)])
            codes = {name: getattr(row, "code", None) for name, row in outcomes.items()}
            assert codes == {
                "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
                new_name: ErrorCode.TOPIC_ALREADY_EXISTS,
            }
            await admin.create_topic(f"{new_name}-not", 1, 1, validate_only=True)
            assert (await admin.describe_topic(new_name)).topic_id == made.topic_id
            await admin.add_partitions(new_name, 4)
            while len((await admin.describe_topic(new_name)).partitions) != 4:
                await asyncio.sleep(0.01)  # Kafka's brokers hear of it a little later
            names = [topic.name for topic in await admin.list_topics()]
            assert new_name in names
            assert f"{new_name}-not" not in names
            deleted = await admin.delete_topics([new_name, f"{new_name}-not"])
            assert deleted[new_name] is None
            assert isinstance(deleted[f"{new_name}-not"], KafkaError)

    run(work())


def test_configs_are_set_and_unset(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        resource = Resource(ResourceType.TOPIC, new_name)
        async with Admin(any_bootstrap) as admin:

            async def retention() -> tuple[str | None, bool]:
                outcomes = await admin.describe_configs([resource], names=["retention.ms"])
                (config,) = values_of(outcomes)[resource]
                return config.value, config.is_default

            default = await retention()
            assert default[1]
            await admin.alter_configs(resource, set={"retention.ms": "12345"})
            await eventually(lambda: _is(retention(), ("12345", False)))
            with pytest.raises(KafkaError):
                await admin.alter_configs(resource, set={"retention.ms": "soon"})
            await admin.alter_configs(resource, unset=["retention.ms"])
            await eventually(lambda: _is(retention(), default))
            described = await admin.describe_configs([resource], with_documentation=True)
            assert all(config.documentation for config in values_of(described)[resource])

    run(work())


async def _is(work: Coroutine[Any, Any, object], wanted: object) -> bool:
    return await work == wanted


def test_offsets_records_disks_and_producers_are_shown(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        partition = TopicPartition(new_name, 0)
        async with Admin(any_bootstrap) as admin, Producer(admin.cluster) as producer:
            for number in range(10):
                await producer.deliver(new_name, b"%d" % number)
            assert values_of(await admin.delete_records({partition: 4})) == {partition: 4}
            begin = values_of(await admin.list_offsets({partition: Start.BEGINNING}))
            end = values_of(await admin.list_offsets({partition: Start.END}))
            assert (begin[partition].offset, end[partition].offset) == (4, 10)
            missing = await admin.list_offsets({TopicPartition(new_name, 9): Start.END})
            assert isinstance(missing[TopicPartition(new_name, 9)], KafkaError)
            (known,) = values_of(await admin.describe_producers([partition]))[partition]
            assert known.last_sequence == 9
            dirs = await admin.describe_log_dirs(partitions=[partition])
            (row,) = [row for found in dirs.values() for one in found for row in one.replicas]
            assert row.partition == partition
            assert row.size_bytes > 0

    run(work())


def test_the_cluster_and_its_quorum_are_shown(any_bootstrap: str) -> None:
    async def work() -> None:
        async with Admin(any_bootstrap) as admin:
            described = await admin.describe_cluster()
            assert [str(node.address) for node in described.nodes] == [any_bootstrap]
            quorum = await admin.describe_quorum()
            assert quorum.leader_id in [member.node_id for member in quorum.voters]

    run(work())


def test_one_address_that_answers_is_enough(any_bootstrap: str) -> None:
    async def work() -> None:
        async with Cluster(f"127.0.0.1:1,{any_bootstrap}") as cluster:
            assert cluster.view.nodes

    run(work())


def test_a_cluster_that_nobody_answers_for_is_named() -> None:
    async def work() -> None:
        with pytest.raises(NotReachable, match=r"127\.0\.0\.1:1: connection refused"):
            await Cluster("127.0.0.1:1").connect()

    run(work())


def test_a_peer_that_says_nothing_is_given_up_in_time() -> None:
    async def work() -> None:
        async def silence(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await finished.wait()
            writer.close()

        finished = asyncio.Event()
        server = await asyncio.start_server(silence, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = ClientSettings(connect_timeout_ms=100)
        with pytest.raises(NotReachable, match=f"{port} did not respond within 100 ms"):
            await Cluster(f"127.0.0.1:{port}", settings).connect()
        finished.set()
        server.close()
        await server.wait_closed()

    run(work())


@pytest.mark.jvm
@pytest.mark.parametrize("any_bootstrap", ["kafka"], indirect=True)
def test_aborted_records_are_left_out_for_who_asks(any_bootstrap: str, new_name: str) -> None:
    def write() -> None:
        producer = ConfluentProducer(
            {"bootstrap.servers": any_bootstrap, "transactional.id": new_name}
        )
        producer.init_transactions(DEADLINE_SECONDS)
        for value, is_kept in ((b"one", True), (b"no", False), (b"two", True), (b"not", False)):
            producer.begin_transaction()
            producer.produce(new_name, value)
            producer.flush(DEADLINE_SECONDS)
            if is_kept:
                producer.commit_transaction(DEADLINE_SECONDS)
            else:
                producer.abort_transaction(DEADLINE_SECONDS)

    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await asyncio.to_thread(write)
        committed = await read_all(any_bootstrap, new_name, read_committed=True)
        assert values(committed) == [b"one", b"two"]
        assert values(await read_all(any_bootstrap, new_name)) == [b"one", b"no", b"two", b"not"]

    run(work())


def test_a_broker_that_restarts_costs_nothing_but_time(tmp_path: Path) -> None:
    """Every record is there once and in order, and a consumer goes on where it was."""
    count = 3000
    node = HeadraceProcess(tmp_path / "data")
    port = node.port
    try:

        async def work() -> None:
            nonlocal node
            bootstrap = node.bootstrap
            await make_topic(bootstrap, "orders", 2)
            async with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
                await consumer.assign("orders", Start.BEGINNING)

                async def produce() -> None:
                    for number in range(count):
                        await producer.send("orders", b"%d" % number, partition=number % 2)
                        if number % 10 == 0:
                            await asyncio.sleep(0.001)  # so that the load outlasts the restarts
                    await producer.flush()

                async def consume() -> list[ConsumedRecord]:
                    records: list[ConsumedRecord] = []
                    while len(records) < count:
                        records += await consumer.poll()
                    return records

                producing = asyncio.create_task(produce())
                consuming = asyncio.create_task(consume())
                for _ in range(2):
                    await asyncio.to_thread(node.stop)
                    node = await asyncio.to_thread(
                        HeadraceProcess, tmp_path / "data", None, port=port
                    )
                await producing
                seen = await consuming
            kept = await read_all(bootstrap, "orders")
            for records in (seen, kept):
                for partition in (0, 1):
                    wanted = [b"%d" % number for number in range(partition, count, 2)]
                    assert values(records, partition) == wanted

        run(work())
    finally:
        node.kill()
