"""Metadata of remote segments on the topic of a real node."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.client import Admin, Consumer, Producer, TopicPartition
from headrace.client.settings import ClientSettings
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import REMOTE_METADATA_TOPIC as TOPIC
from headrace.log.real_disk import RealDisk
from headrace.remote.events import decode_event, encode_event
from headrace.remote.segments import (
    InvalidTransition,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TierError,
    TopicIdPartition,
)
from headrace.testing.broker import TestBroker
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.metadata_service import MetadataService
from headrace.tier.ports import NotReady
from headrace.tier.snapshots import MetadataSnapshots, path_of
from headrace.tier.topic_event_log import TopicEventLog
from tests.unit.remote.segments import ORDERS, partition, segment, update

KEY = ORDERS.key
PARTITIONS = 5
FINISHED = SegmentState.COPY_FINISHED
SETTINGS = ClientSettings(client_id="test", request_timeout_ms=10_000, api_timeout_ms=30_000)


def make_log(bootstrap: str) -> TopicEventLog:
    async def create() -> None:
        async with Admin(bootstrap) as admin:
            try:
                await admin.create_topic(
                    TOPIC,
                    partitions=PARTITIONS,
                    configs={"retention.ms": "-1", "cleanup.policy": "delete"},
                )
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    return TopicEventLog(lambda: bootstrap, create, settings=SETTINGS)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def manager(
    broker: TestBroker,
    *followed: TopicIdPartition,
    folder: Path | None = None,
    wait_ms: int = 30_000,
) -> AsyncIterator[TopicMetadata]:
    log = make_log(broker.bootstrap)
    await log.start()
    snapshots = None if folder is None else MetadataSnapshots(RealDisk(folder))
    metadata = TopicMetadata(log, snapshots, MetadataWaits(consume_wait_ms=wait_ms))
    await metadata.start()
    metadata.follow(followed)
    await until(lambda: all(metadata.is_ready(known.key) for known in followed))
    try:
        yield metadata
    finally:
        await metadata.stop()
        await log.stop()


async def copy(metadata: TopicMetadata, one: RemoteSegment) -> None:
    await metadata.add(one)
    await metadata.update(update(one, FINISHED))


def test_events_are_in_the_topic_where_kafka_looks_for_them(headrace: TestBroker) -> None:
    async def main() -> list[object]:
        async with manager(headrace, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            found = metadata.find(KEY, 0, 50)
            assert found is not None
            assert found.state == FINISHED
            place = metadata.partition_of(KEY)
        async with Consumer(headrace.bootstrap) as consumer:
            await consumer.assign(TOPIC, until_end=True)
            records = [record async for record in consumer]
        assert {record.partition for record in records} == {place}
        assert {record.key for record in records} == {None}
        return [decode_event(record.value or b"") for record in records]

    events = asyncio.run(main())
    assert events == [segment(1, 0, 99), update(segment(1, 0, 99), FINISHED)]
    assert isinstance(events[1], SegmentUpdate)


def test_two_managers_on_one_topic_know_the_same(headrace: TestBroker) -> None:
    others = [partition(index) for index in range(12)]

    async def main() -> None:
        async with manager(headrace, *others) as one, manager(headrace, *others) as other:
            await asyncio.gather(
                *(copy(one, segment(n + 1, 0, 99, of=known)) for n, known in enumerate(others))
            )
            await asyncio.gather(
                *(
                    copy(other, segment(n + 101, 100, 199, of=known))
                    for n, known in enumerate(others)
                )
            )
            for known in others:
                await one.catch_up(known.key)
                assert list(one.segments(known.key)) == list(other.segments(known.key))
                assert one.highest_offset(known.key, 0) == 199
            with pytest.raises(InvalidTransition):
                await one.add(segment(101, 100, 199, of=others[0]))

    asyncio.run(main())


def test_a_change_of_a_partition_that_is_not_followed_is_answered(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace) as metadata:
            await copy(metadata, segment(1, 0, 99))
            await until(lambda: not metadata.assigned)
            metadata.lead(range(PARTITIONS))
            await until(lambda: metadata.is_ready(KEY))
            assert metadata.keys_in(metadata.partition_of(KEY)) == [ORDERS]

    asyncio.run(main())


def test_the_partitions_that_the_topic_has_count(headrace: TestBroker) -> None:
    headrace.create_topic(TOPIC, 3)

    async def main() -> None:
        async with manager(headrace, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            metadata.lead(range(50))
            await until(lambda: metadata.assigned == {0, 1, 2})

    asyncio.run(main())


def test_a_manager_goes_on_after_a_restart_of_the_node(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            await asyncio.to_thread(headrace.stop)
            assert metadata.find(KEY, 0, 50) is not None, "what is known stays known"
            adding = asyncio.create_task(metadata.add(segment(2, 100, 199)))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(headrace.start)
            await adding
            assert len(metadata.segments(KEY)) == 2

    asyncio.run(main())


def test_a_manager_starts_from_its_snapshot_and_reads_only_the_rest(
    headrace: TestBroker, tmp_path: Path
) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS, folder=tmp_path) as metadata:
            for number in range(20):
                await copy(metadata, segment(number + 1, number * 10, number * 10 + 9))
            place = metadata.partition_of(KEY)
            before = list(metadata.segments(KEY))
        assert (tmp_path / path_of(place)).exists()
        # What is before the snapshot cannot be read any more.
        async with Admin(headrace.bootstrap) as admin:
            await admin.delete_records({TopicPartition(TOPIC, place): 40})
        async with manager(headrace, ORDERS, folder=tmp_path) as metadata:
            assert list(metadata.segments(KEY)) == before
            await copy(metadata, segment(21, 200, 209))
            assert metadata.highest_offset(KEY, 0) == 209

    asyncio.run(main())


def test_a_snapshot_of_a_topic_that_was_made_anew_is_not_used(
    headrace: TestBroker, tmp_path: Path
) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS, folder=tmp_path) as metadata:
            await copy(metadata, segment(1, 0, 99))
        async with Admin(headrace.bootstrap) as admin:
            await admin.delete_topic(TOPIC)
        async with manager(headrace, ORDERS, folder=tmp_path) as metadata:
            await metadata.add(segment(2, 0, 9))
            await metadata.add(segment(3, 10, 19))
            assert [known.end_offset for known in metadata.segments(KEY)] == [9, 19]

    asyncio.run(main())


def test_a_topic_that_is_made_anew_under_a_manager_is_noticed(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS, wait_ms=3_000) as metadata:
            await copy(metadata, segment(1, 0, 99))
            async with Admin(headrace.bootstrap) as admin:
                await admin.delete_topic(TOPIC)
                await admin.create_topic(TOPIC, partitions=PARTITIONS)
            async with asyncio.timeout(60):
                await metadata.log_replaced.wait()
            assert not metadata.is_ready(KEY)
            with pytest.raises(NotReady, match="anew"):
                await metadata.add(segment(2, 100, 199))
            async with Consumer(headrace.bootstrap) as consumer:
                await consumer.assign(TOPIC, until_end=True)
                assert [record async for record in consumer] == []

    asyncio.run(main())


def test_a_topic_that_is_gone_is_not_created_by_a_change(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS, wait_ms=3_000) as metadata:
            await copy(metadata, segment(1, 0, 99))
            async with Admin(headrace.bootstrap) as admin:
                await admin.delete_topic(TOPIC)
                for number in range(2):
                    with pytest.raises((NotReady, TierError)):
                        await metadata.add(segment(number + 2, 100, 199))
                assert TOPIC not in {topic.name for topic in await admin.list_topics()}

    asyncio.run(main())


def test_a_service_begins_again_on_a_topic_that_was_made_anew(headrace: TestBroker) -> None:
    async def main() -> None:
        service = MetadataService(lambda: make_log(headrace.bootstrap))
        service.metadata.follow([ORDERS])
        service.start()
        await until(lambda: service.metadata.is_ready(KEY))
        await service.metadata.add(segment(1, 0, 99))
        former = service.manager
        async with Admin(headrace.bootstrap) as admin:
            await admin.delete_topic(TOPIC)
            await admin.create_topic(TOPIC, partitions=2)
        await until(
            lambda: service.manager not in (former, None) and service.metadata.is_ready(KEY)
        )
        await service.metadata.add(segment(2, 100, 199))
        assert [known.start_offset for known in service.metadata.segments(KEY)] == [100]
        await service.stop()

    asyncio.run(main())


def test_a_record_that_is_no_event_is_passed_over(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS) as metadata:
            async with Producer(headrace.bootstrap) as producer:
                await producer.deliver(TOPIC, b"garbage", partition=metadata.partition_of(KEY))
            await copy(metadata, segment(1, 0, 99))
            assert metadata.find(KEY, 0, 50) is not None
            assert metadata.refused_count == 1

    asyncio.run(main())


def test_an_event_of_a_later_version_stops_its_partition(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS) as metadata:
            await copy(metadata, segment(1, 0, 99))
            async with Producer(headrace.bootstrap) as producer:
                later = b"\x02\x00\x00 of a later version"
                await producer.deliver(TOPIC, later, partition=metadata.partition_of(KEY))
            await until(lambda: not metadata.is_ready(KEY))
            with pytest.raises(NotReady, match="offset 2"):
                metadata.find(KEY, 0, 50)

    asyncio.run(main())


def test_a_record_without_a_value_is_no_event_and_does_no_harm(headrace: TestBroker) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS) as metadata:
            place = metadata.partition_of(KEY)
            async with Producer(headrace.bootstrap) as producer:
                await producer.deliver(TOPIC, None, partition=place)
            await copy(metadata, segment(1, 0, 99))
            assert len(metadata.segments(KEY)) == 1

    asyncio.run(main())


def test_a_transaction_marker_at_the_end_does_not_keep_a_partition_from_being_ready(
    headrace: TestBroker,
) -> None:
    async def main() -> None:
        async with manager(headrace, ORDERS) as metadata:
            place = metadata.partition_of(KEY)
        async with (
            Producer(headrace.bootstrap, transactional_id="restore") as producer,
            producer.transaction(),
        ):
            await producer.send(TOPIC, encode_event(segment(1, 0, 99)), partition=place)
        async with manager(headrace, ORDERS) as metadata:
            assert len(metadata.segments(KEY)) == 1
            await metadata.catch_up(KEY)

    asyncio.run(main())


def test_a_service_comes_up_when_its_node_does(headrace: TestBroker, tmp_path: Path) -> None:
    async def main() -> None:
        bootstrap = headrace.bootstrap
        await asyncio.to_thread(headrace.stop)
        service = MetadataService(
            lambda: make_log(bootstrap), MetadataSnapshots(RealDisk(tmp_path))
        )
        service.metadata.follow([ORDERS])
        service.start()
        with pytest.raises(NotReady):
            service.metadata.find(KEY, 0, 0)
        await asyncio.to_thread(headrace.start)
        await until(lambda: service.metadata.is_ready(KEY))
        await service.metadata.add(segment(1, 0, 99))
        assert service.manager is not None
        await service.stop()
        with pytest.raises(NotReady):
            service.metadata.find(KEY, 0, 0)

    asyncio.run(main())
