"""Produce: what each partition is answered, and when."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID
from headrace.log.flushing import Flush
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000
LATEST = 13


def batch(
    *values: bytes,
    key: bytes | None = b"key",
    compression: Compression = Compression.NONE,
    **header: Any,
) -> bytes:
    builder = BatchBuilder(compression)
    for value in values or (b"v",):
        builder.append(NOW_MS, key, value)
    return bytes(builder.build(**header))


def produce(
    records: bytes | None,
    *,
    topic: str = "orders",
    topic_id: bytes = ZERO_TOPIC_ID,
    index: int = 0,
    acks: int = -1,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def only(response: Any) -> Any:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_each_version_is_told_where_its_records_are(
    harness: Harness, version: int, acks: int
) -> None:
    topic_id = harness.create_topic("orders")
    request = produce(batch(b"a", b"b"), topic_id=topic_id, acks=acks)
    assert only(harness.ask(request, version)).base_offset == 0
    assert only(harness.ask(request, version)).base_offset == 2


def test_acks_0_gets_no_answer_and_is_in_the_log(harness: Harness) -> None:
    harness.create_topic("orders")
    assert harness.ask(produce(batch(), acks=0), 9) is None
    assert harness.partition("orders", 0).log.end_offset == 1


def test_acks_0_that_fails_ends_the_connection(harness: Harness) -> None:
    assert harness.ask(produce(batch(), acks=0, topic="nowhere"), 9) is None
    assert "acks=0" in harness.peer.closed_because


@pytest.mark.parametrize(
    ("request_of", "version", "code"),
    [
        (lambda: produce(batch(), topic="nowhere"), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: produce(batch(), index=7), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: produce(batch(), topic_id=b"?" * 16), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (lambda: produce(batch(), acks=2), 12, ErrorCode.INVALID_REQUIRED_ACKS),
        (lambda: produce(None), 12, ErrorCode.INVALID_RECORD),
        (lambda: produce(b""), 12, ErrorCode.INVALID_RECORD),
        (lambda: produce(batch() + batch()), 12, ErrorCode.INVALID_RECORD),
        (
            lambda: produce(batch(compression=Compression.ZSTD)),
            6,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ),
        (lambda: produce(batch(b"x" * 2_000_000)), 12, ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "topic",
        "partition",
        "topic id",
        "acks",
        "null",
        "empty",
        "two batches",
        "zstd for an old client",
        "too large",
    ],
)
def test_what_cannot_be_taken_has_the_code_that_kafka_gives(
    harness: Harness, request_of: Any, version: int, code: ErrorCode
) -> None:
    harness.create_topic("orders")
    row = only(harness.ask(request_of(), version))
    assert (ErrorCode(row.error_code), row.base_offset) == (code, -1)
    if version >= 8:
        assert row.error_message


def test_an_old_message_format_is_an_invalid_record(harness: Harness) -> None:
    harness.create_topic("orders")
    old = bytearray(batch())
    old[16] = 1
    row = only(harness.ask(produce(bytes(old)), 12))
    assert ErrorCode(row.error_code) is ErrorCode.INVALID_RECORD


def test_one_bad_partition_does_not_keep_another_from_being_written(harness: Harness) -> None:
    harness.create_topic("orders", partitions=2)
    request = produce(batch())
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=batch()[:-1] + b"?"),
        PartitionProduceData(index=9, records=batch()),
    ]
    (topic,) = harness.ask(request, 12).responses
    codes = [ErrorCode(row.error_code).name for row in topic.partition_responses]
    assert codes == ["NONE", "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION"]


def test_records_without_key_are_named_when_a_compacted_topic_refuses_them(
    harness: Harness,
) -> None:
    harness.create_topic("table", configs={"cleanup.policy": "compact"})
    row = only(harness.ask(produce(batch(b"a", b"b", key=None), topic="table"), 12))
    assert ErrorCode(row.error_code) is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in row.record_errors] == [0, 1]


def test_a_topic_with_append_time_answers_with_that_time(harness: Harness) -> None:
    harness.create_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    harness.clock.offset_ms = 0
    before_ms = harness.clock.now_ms()
    row = only(harness.ask(produce(batch()), 12))
    assert before_ms <= row.log_append_time_ms <= harness.clock.now_ms()


def test_acks_all_is_refused_below_min_insync_replicas_and_acks_1_is_not(harness: Harness) -> None:
    harness.create_topic("orders", configs={"min.insync.replicas": "2"})
    assert only(harness.ask(produce(batch(), acks=-1), 12)).base_offset == 0, "there is only one"
    partition = harness.partition("orders", 0)
    row = harness.topic("orders").partitions[0]

    async def add_replica() -> None:
        partition.become(msgspec.structs.replace(row, replicas=(*row.replicas, 99)), row.leader)

    harness.run(add_replica())
    refused = only(harness.ask(produce(batch(), acks=-1), 12))
    assert ErrorCode(refused.error_code) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert only(harness.ask(produce(batch(), acks=1), 12)).base_offset == 1


def test_a_repeated_batch_of_an_idempotent_producer_is_written_once(harness: Harness) -> None:
    harness.create_topic("orders")
    request = produce(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    offsets = [only(harness.ask(request, 12)).base_offset for _ in range(2)]
    assert offsets == [0, 0]
    assert harness.partition("orders", 0).log.end_offset == 1


def test_with_flush_messages_1_an_answer_means_that_it_is_on_disk(harness: Harness) -> None:
    harness.create_topic("orders", configs={"flush.messages": "1"})
    log = harness.partition("orders", 0).log
    for acks in (1, -1):
        end = only(harness.ask(produce(batch(), acks=acks), 12)).base_offset + 1
        assert log.recovery_point >= end


def test_with_flush_messages_1_a_repeated_record_is_on_disk_when_it_is_answered(
    harness: Harness,
) -> None:
    harness.create_topic("orders", configs={"flush.messages": "1"})
    log = harness.partition("orders", 0).log
    request = produce(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    assert only(harness.ask(request, 12)).base_offset == 0
    log.recovery_point, log.wants_flush = 0, False  # as while a sync runs
    assert only(harness.ask(request, 12)).base_offset == 0
    assert log.recovery_point == 1


def test_with_flush_messages_1_nobody_reads_what_is_not_on_disk(harness: Harness) -> None:
    harness.create_topic("orders", configs={"flush.messages": "1"})
    log = harness.partition("orders", 0).log

    async def watch() -> None:
        asking = asyncio.ensure_future(harness.ask_async(produce(batch()), 12))
        while not asking.done():
            assert log.high_watermark <= log.recovery_point
            await asyncio.sleep(0)
        assert log.high_watermark == log.end_offset == 1

    harness.run(watch())


def test_a_record_that_comes_during_a_sync_shows_nobody_what_is_not_on_disk(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("orders", configs={"flush.messages": "2"})
    log = harness.partition("orders").log
    is_let_go = threading.Event()
    run = Flush.run

    def run_late(flush: Flush) -> None:
        assert is_let_go.wait(10)
        run(flush)

    monkeypatch.setattr(Flush, "run", run_late)

    async def watch() -> None:
        asking = [asyncio.ensure_future(harness.ask_async(produce(batch()), 12)) for _ in "ab"]
        while log.end_offset < 2 or log.wants_flush:
            await asyncio.sleep(0)
        asking.append(asyncio.ensure_future(harness.ask_async(produce(batch()), 12)))
        while log.end_offset < 3:
            await asyncio.sleep(0)
        assert log.high_watermark < 2
        is_let_go.set()
        await asyncio.gather(*asking)
        assert log.high_watermark == 3

    harness.run(watch())


def test_many_at_once_share_a_sync_and_are_all_answered(harness: Harness) -> None:
    harness.create_topic("orders", configs={"flush.messages": "1"})

    async def ask_all() -> list[Any]:
        return await asyncio.gather(*(harness.ask_async(produce(batch()), 12) for _ in range(20)))

    offsets = sorted(only(each).base_offset for each in harness.run(ask_all()))
    assert offsets == list(range(20))
