"""What administrators ask of transactions, and the markers that they write."""

import errno
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.api import list_transactions
from headrace.errors import ErrorCode
from headrace.groups.regular_expressions import matching_topics
from headrace.log.flushing import Flush
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.api.transactional_producer import (
    NAME,
    TransactionalProducer,
    begin,
    pass_time,
)
from tests.unit.harness import Harness

OK = ErrorCode.NONE


def mark(harness: Harness, producer: Any, topic: str, *indexes: int, **change: Any) -> list[int]:
    """Abort what a producer has open in partitions; give the codes."""
    fields: dict[str, Any] = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    marker = WritableTxnMarker(
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        **(fields | change),
    )
    (row,) = harness.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    assert row.producer_id == marker.producer_id
    return [each.error_code for each in row.topics[0].partitions]


def test_a_marker_ends_what_is_open_in_a_partition(harness: Harness) -> None:
    producer = begin(harness, "orders")
    producer.produce("orders", 0, 1)
    log = harness.partition("orders", 0).log
    assert log.last_stable_offset == 0
    codes = mark(harness, producer, "orders", 0, 9)
    assert codes == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert log.last_stable_offset == 2
    assert harness.partition("orders", 1).log.last_stable_offset == 0


def test_with_flush_messages_1_a_marker_that_the_disk_loses_is_refused(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(harness, "orders")
    producer.produce("orders", 0)
    log = harness.partition("orders").log
    log.change_settings(replace(log.settings, flush_messages=1))

    def fail(flush: Flush) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(Flush, "run", fail)
    assert mark(harness, producer, "orders", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"transaction_version": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_epoch": 0}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_epoch": -1}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_marker_that_is_not_meant_for_what_is_open_is_refused(
    harness: Harness, change: dict[str, int], code: ErrorCode
) -> None:
    producer = begin(harness, "orders")
    producer.init()
    producer.produce("orders", 0)
    assert mark(harness, producer, "orders", 0, **change) == [code]
    assert harness.partition("orders", 0).log.last_stable_offset == 0


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(harness: Harness) -> None:
    producer = begin(harness, "orders")
    producer.produce("orders", 0)
    assert mark(harness, producer, "orders", 0, coordinator_epoch=5) == [OK]
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(harness, producer, "orders", 0, coordinator_epoch=4) == [fenced]


def test_no_markers_are_no_rows(harness: Harness) -> None:
    assert harness.ask(WriteTxnMarkersRequest(), 1).markers == []
    marker = WritableTxnMarker(producer_id=1)
    assert harness.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers == []


def test_each_id_is_described_or_said_to_be_unknown(harness: Harness) -> None:
    begin(harness)
    request = DescribeTransactionsRequest(transactional_ids=[NAME, "nobody", ""])
    rows = harness.ask(request, 0).transaction_states
    assert [(row.transactional_id, row.error_code) for row in rows] == [
        (NAME, OK),
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
    assert (rows[0].transaction_state, rows[0].transaction_start_time_ms) == ("Empty", -1)
    assert harness.ask(DescribeTransactionsRequest(), 0).transaction_states == []


def test_transactions_are_listed_by_what_is_asked_for(harness: Harness) -> None:
    producer = begin(harness, "orders")
    other = TransactionalProducer(harness, "other")
    other.init()
    other.produce("orders", 0)

    def ask(version: int = 2, **wanted: Any) -> list[str]:
        answer = harness.ask(ListTransactionsRequest(**wanted), version)
        assert answer.error_code == OK
        return sorted(row.transactional_id for row in answer.transaction_states)

    for version in range(3):
        assert ask(version) == ["other", NAME]
    assert ask(state_filters=["Ongoing"]) == ["other"]
    assert ask(state_filters=["Dead"]) == []
    assert ask(state_filters=["nonsense"]) == []
    assert ask(producer_id_filters=[producer.id]) == [NAME]
    pass_time(harness, 5000)
    assert ask(state_filters=["Ongoing"], duration_filter=4000) == ["other"]
    assert ask(state_filters=["Ongoing"], duration_filter=50_000) == []
    assert ask(transactional_id_pattern="o.*r") == ["other"]
    assert ask(transactional_id_pattern="the") == []
    assert ask(transactional_id_pattern="") == ["other", NAME]


def test_what_is_no_state_or_pattern_is_said(harness: Harness) -> None:
    begin(harness)
    answer = harness.ask(ListTransactionsRequest(state_filters=["Empty", "x", "x"]), 0)
    assert answer.unknown_state_filters == ["x"]
    answer = harness.ask(ListTransactionsRequest(transactional_id_pattern="(?=a)"), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_takes_long_is_matched_in_a_thread(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(harness, "orders")
    names = [f"{number}-".ljust(300, "x") for number in range(20)]
    for name in names:
        TransactionalProducer(harness, name).init()
    threads: list[int] = []

    def noted(pattern: str, some: list[str]) -> frozenset[str]:
        threads.append(threading.get_ident())
        return matching_topics(pattern, some)

    monkeypatch.setattr(list_transactions, "matching_topics", noted)

    def ask(pattern: str) -> list[str]:
        threads.clear()
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        rows = harness.ask(request, 2).transaction_states
        return sorted(row.transactional_id for row in rows)

    assert ask(".*x") == sorted(names)
    assert set(threads) == {threading.get_ident()}
    assert ask("(.?){900}x") == sorted(names)
    assert len(threads) > 1
    assert threading.get_ident() not in threads
