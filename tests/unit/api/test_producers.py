"""InitProducerId and DescribeProducers: new ids, and what a partition knows of their holders."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


def init(
    harness: Harness,
    transactional_id: str | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    producer: tuple[int, int] = (-1, -1),
    version: int = 5,
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    request.producer_id, request.producer_epoch = producer
    answer = harness.ask(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_call_gives_a_new_producer(harness: Harness, version: int) -> None:
    assert init(harness, version=version) == (0, 0, 0)
    assert init(harness, version=version) == (0, 1, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 2**31 - 1])
def test_without_transactions_any_timeout_will_do(harness: Harness, timeout_ms: int) -> None:
    assert init(harness, timeout_ms=timeout_ms) == (0, 0, 0)


def test_a_producer_that_names_itself_gets_another_id(harness: Harness) -> None:
    assert init(harness, producer=(99, 3)) == (0, 0, 0)


@pytest.mark.parametrize("transactional_id", [None, "payments"])
@pytest.mark.parametrize("producer", [(5, -1), (-1, 0)])
def test_an_id_without_its_epoch_is_no_request(
    harness: Harness, transactional_id: str | None, producer: tuple[int, int]
) -> None:
    refused = (ErrorCode.INVALID_REQUEST, -1, -1)
    assert init(harness, transactional_id, producer=producer) == refused


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", TIMEOUT_MS, ErrorCode.INVALID_REQUEST),
        ("payments", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("payments", 2**31 - 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("payments", TIMEOUT_MS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_transactional_id_is_checked_before_there_is_a_coordinator(
    harness: Harness, transactional_id: str, timeout_ms: int, code: ErrorCode
) -> None:
    assert init(harness, transactional_id, timeout_ms=timeout_ms) == (code, -1, -1)


def append(
    harness: Harness, *timestamps: int, sequence: int, is_transactional: bool = False
) -> None:
    async def run() -> None:
        builder = BatchBuilder()
        for timestamp in timestamps:
            builder.append(timestamp, b"key", b"value")
        batch = builder.build(
            producer_id=7 + is_transactional,
            producer_epoch=2,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        partition = harness.partition("orders", 0)
        partition.append(memoryview(batch), NOW_MS, needs_replicas=False)

    harness.run(run())


def describe(harness: Harness, topic: str, *indexes: int) -> list[Any]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=list(indexes))]
    )
    (answer,) = harness.ask(request, 0).topics
    assert answer.name == topic
    assert [row.partition_index for row in answer.partitions] == list(indexes)
    rows: list[Any] = answer.partitions
    return rows


def test_a_partition_tells_what_it_knows_of_its_producers(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    append(harness, NOW_MS, NOW_MS + 1, sequence=0)
    append(harness, NOW_MS + 5, sequence=2)
    append(harness, NOW_MS, sequence=0, is_transactional=True)
    first, second = describe(harness, "orders", 0, 1)
    assert (first.error_code, first.error_message) == (0, None)
    assert second.active_producers == []
    idempotent, transactional = first.active_producers
    assert (idempotent.producer_id, idempotent.producer_epoch) == (7, 2)
    assert (idempotent.last_sequence, idempotent.last_timestamp) == (2, NOW_MS + 5)
    assert idempotent.coordinator_epoch == -1
    assert idempotent.current_txn_start_offset == -1
    assert (transactional.producer_id, transactional.current_txn_start_offset) == (8, 3)


def test_producers_of_what_does_not_exist_are_unknown(harness: Harness) -> None:
    harness.create_topic("orders")
    (row,) = describe(harness, "orders", 7)
    assert (row.error_code, row.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    (row,) = describe(harness, "nothing", 0)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nothing" in row.error_message
    (row,) = describe(harness, "../x", 0)
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "../x" in row.error_message


def test_a_partition_that_is_asked_for_twice_is_described_once(harness: Harness) -> None:
    harness.create_topic("orders", partitions=2)
    topics = [TopicRequest(name="orders", partition_indexes=[1, 0, 1])] * 2
    answer = harness.ask(DescribeProducersRequest(topics=topics), 0)
    assert [[row.partition_index for row in each.partitions] for each in answer.topics] == [[1, 0]]
