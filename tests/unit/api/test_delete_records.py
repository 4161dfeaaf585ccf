"""DeleteRecords: where a log begins afterwards, and whose records stay."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId
from headrace.log import checkpoints
from headrace.metadata.ddl import ChangePartition
from headrace.records.builder import BatchBuilder
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.unit.followers import Follower, create_replicated, register_broker, rows
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000


@pytest.fixture
def orders(harness: Harness) -> Any:
    for name, policy in (("orders", "delete"), ("kept", "compact"), ("both", "compact,delete")):
        harness.create_topic(name, configs={"cleanup.policy": policy})
        append(harness, name, 5)
    return harness


def append(harness: Harness, topic: str, count: int) -> None:
    async def run() -> None:
        for _ in range(count):
            builder = BatchBuilder()
            builder.append(NOW_MS, b"key", b"value")
            partition = harness.partition(topic, 0)
            partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)

    harness.run(run())


def delete(
    harness: Harness, *offsets: int, topic: str = "orders", index: int = 0, version: int = 2
) -> tuple[int, int]:
    """Give error and low watermark."""
    partitions = [DeleteRecordsPartition(partition_index=index, offset=each) for each in offsets]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000
    )
    (answer,) = harness.ask(request, version).topics
    (row,) = answer.partitions
    assert (answer.name, row.partition_index) == (topic, index)
    return row.error_code, row.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_log_begins_at_the_offset(orders: Any, version: int) -> None:
    assert delete(orders, 3, version=version) == (0, 3)
    assert orders.broker.replicas.find("orders", 0).log.start_offset == 3


def test_minus_one_stands_for_the_high_watermark(orders: Any) -> None:
    assert delete(orders, -1) == (0, 5)


def test_what_is_deleted_already_stays_so(orders: Any) -> None:
    delete(orders, 3)
    assert delete(orders, 1) == (0, 3)


@pytest.mark.parametrize("offset", [6, -2])
def test_an_offset_beyond_the_high_watermark_is_out_of_range(orders: Any, offset: int) -> None:
    assert delete(orders, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_records_of_a_topic_that_is_only_compacted_stay(orders: Any) -> None:
    assert delete(orders, 1, topic="kept") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(orders, 1, topic="both") == (0, 1)


def test_what_does_not_exist_is_unknown(orders: Any) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(orders, 0, topic="nothing") == unknown
    assert delete(orders, 0, index=7) == unknown


def test_of_two_offsets_for_a_partition_the_last_counts(orders: Any) -> None:
    assert delete(orders, 4, 2) == (0, 2)


def test_a_crash_would_not_bring_deleted_records_back(orders: Any) -> None:
    delete(orders, 3)
    starts = checkpoints.load(
        orders.broker.folder.disk, checkpoints.LOG_STARTS, checkpoints.parse_offsets
    )
    assert starts["orders", 0] == 3


# Followers


@pytest.fixture
def shared(harness: Harness) -> Follower:
    """A partition whose follower has everything."""
    epoch = register_broker(harness, 7)
    topic_id = create_replicated(harness, "orders", (1, 7), configs={"cleanup.policy": "delete"})
    append(harness, "orders", 5)
    follower = Follower(harness, 7, epoch, topic_id)
    follower.fetch({0: 5})
    return follower


def deletion(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    topics = [DeleteRecordsTopic(name="orders", partitions=asked)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def outcome(response: Any) -> tuple[int, int]:
    row = response.topics[0].partitions[0]
    return row.error_code, row.low_watermark


@pytest.mark.parametrize("offset", [3, -1])
def test_records_are_deleted_when_the_followers_have_deleted_them(
    shared: Follower, offset: int
) -> None:
    harness, start = shared.harness, 5 if offset == -1 else offset

    async def run() -> Any:
        fetching = await shared.wait()
        deleting = asyncio.ensure_future(harness.ask_async(deletion(offset, 60_000), 2))
        (row,) = rows(await fetching).values()  # the new start does not wait
        assert row.log_start_offset == start
        assert not deleting.done()
        await shared.ask({0: 5}, start=start)
        return await deleting

    assert outcome(harness.run(run())) == (0, start)
    assert not harness.partition("orders").produce_waiters


def test_followers_that_take_long_are_waited_for_no_longer_than_asked(shared: Follower) -> None:
    answer = shared.harness.ask(deletion(3, 10), 2)
    assert outcome(answer) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert shared.harness.partition("orders").log.start_offset == 3
    assert not shared.harness.partition("orders").produce_waiters


def test_a_leader_that_is_none_any_more_waits_for_nobody(shared: Follower) -> None:
    harness = shared.harness

    async def run() -> Any:
        deleting = asyncio.ensure_future(harness.ask_async(deletion(3, 60_000), 2))
        while not harness.partition("orders").produce_waiters:
            await asyncio.sleep(0)
        change = ChangePartition(
            TopicId(shared.topic_id), PartitionIndex(0), leader=BrokerId(shared.node)
        )
        await harness.broker.quorum.propose(change)
        return await deleting

    assert outcome(harness.run(run())) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
