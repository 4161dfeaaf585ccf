"""One node with a tier: what clients see of records that left the disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin, Resource, ResourceType, TopicPartition
from headrace.client.outcomes import values_of
from headrace.log.lookup import SpecialTimestamp
from headrace.testing.broker import TestBroker
from tests.tier.brokers import COUNT, VALUES, fill, local_files, objects, tiered_broker, until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with tiered_broker(tmp_path) as running:
        yield running


def test_every_record_is_read_from_the_tier_and_the_disk(
    broker: TestBroker, tmp_path: Path
) -> None:
    fill(broker, tmp_path)
    assert [record.value for record in broker.consume("orders")] == VALUES
    for start in (0, 1, 57, COUNT - 1):
        assert [record.value for record in broker.consume("orders", start)] == VALUES[start:]


def test_a_restart_and_a_kill_change_nothing(broker: TestBroker, tmp_path: Path) -> None:
    fill(broker, tmp_path)
    broker.restart()
    assert [record.value for record in broker.consume("orders")] == VALUES
    broker.crash()
    broker.start()
    assert [record.value for record in broker.consume("orders")] == VALUES
    broker.produce("orders", b"more")
    assert broker.consume("orders")[-1].offset == COUNT


def test_offsets_by_name_and_by_time(broker: TestBroker, tmp_path: Path) -> None:
    fill(broker, tmp_path)
    records = broker.consume("orders")

    async def offsets() -> dict[int, int]:
        async with Admin(broker.bootstrap) as admin:
            return {
                special: (await list_one(admin, "orders", special)) for special in SpecialTimestamp
            }

    found = broker.run(offsets())
    local_start = int(local_files(tmp_path, "orders")[0].removesuffix(".log"))
    assert found[SpecialTimestamp.EARLIEST] == 0
    assert found[SpecialTimestamp.LATEST] == COUNT
    assert found[SpecialTimestamp.EARLIEST_LOCAL] == local_start
    assert found[SpecialTimestamp.LATEST_TIERED] == local_start - 1
    assert found[SpecialTimestamp.EARLIEST_PENDING_UPLOAD] == local_start

    async def by_time() -> None:
        async with Admin(broker.bootstrap) as admin:
            for record in (records[0], records[40], records[200], records[-1]):
                first = next(each for each in records if each.timestamp >= record.timestamp)
                assert await list_one(admin, "orders", record.timestamp) == first.offset

    broker.run(by_time())


def test_deleting_the_topic_empties_the_store(broker: TestBroker, tmp_path: Path) -> None:
    fill(broker, tmp_path)

    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topics(["orders"])

    broker.run(delete())
    until(lambda: not objects(tmp_path, ".log"), "the deletion of the objects")
    until(lambda: not objects(tmp_path, ".index"), "the deletion of the indexes")


def test_retention_deletes_from_the_store(broker: TestBroker, tmp_path: Path) -> None:
    fill(broker, tmp_path)
    before = len(objects(tmp_path))

    async def shrink() -> None:
        async with Admin(broker.bootstrap) as admin:
            topic = Resource(ResourceType.TOPIC, "orders")
            await admin.alter_configs(topic, set={"retention.bytes": "3000"})

    broker.run(shrink())
    until(lambda: len(objects(tmp_path)) < before - 2, "the expiry")
    until(lambda: broker.consume("orders")[0].offset > 0, "the move of the start")
    left = broker.consume("orders")
    assert [record.value for record in left] == VALUES[left[0].offset :]


def test_records_that_are_deleted_leave_the_store(broker: TestBroker, tmp_path: Path) -> None:
    fill(broker, tmp_path)

    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            values_of(await admin.delete_records({TopicPartition("orders", 0): 150}))

    broker.run(delete())
    assert [record.value for record in broker.consume("orders")] == VALUES[150:]
    names = [each.rpartition("/")[2] for each in objects(tmp_path)]
    until(
        lambda: len(objects(tmp_path)) < len(names),
        "the deletion of segments before the log's start",
    )


async def list_one(admin: Admin, topic: str, timestamp: int) -> int:
    key = TopicPartition(topic, 0)
    return values_of(await admin.list_offsets({key: timestamp}))[key].offset
