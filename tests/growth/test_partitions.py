"""Requests that name very many partitions: what one turn of the loop has of them."""

from types import SimpleNamespace
from typing import Any

from headrace.api.add_partitions_to_txn import is_large, places_of, refused_of, rows_of
from headrace.api.delete_records import Waits, _delete_all, offsets_of
from headrace.api.describe_producers import _describe_all, active_producers
from headrace.api.list_offsets import wanted_by_time
from headrace.api.offset_for_leader_epoch import _ends_of_epochs
from headrace.api.share_group_state import make_response, read_rows
from headrace.api.write_txn_markers import read_rows as read_markers
from headrace.errors import ErrorCode, KafkaError
from headrace.loop.slices import Slice
from headrace.share.state.calls import WRITE
from headrace.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsTopic,
)
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.write_share_group_state_request import (
    PartitionData,
    StateBatch,
    WriteStateData,
)
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
)
from headrace.wire.messages.write_txn_markers_response import WritableTxnMarkerResult
from tests.growth.slices import assert_slices_are_short
from tests.unit.harness import Harness

COUNT = 5000


def test_producers_of_partitions(harness: Harness) -> None:
    topic = TopicRequest(name="unknown", partition_indexes=list(range(COUNT)))
    work = _describe_all(harness.broker, DescribeProducersRequest(topics=[topic]))
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_producers_of_one_partition() -> None:
    state = SimpleNamespace(
        **dict.fromkeys(("producer_id", "epoch", "last_sequence", "last_timestamp"), 1),
        coordinator_epoch=-1,
        transaction_first_offset=None,
    )
    log: Any = SimpleNamespace(producers=[state] * COUNT)
    assert len(assert_slices_are_short(active_producers(log, Slice()))) == COUNT


def test_ends_of_leader_epochs(harness: Harness) -> None:
    rows = [OffsetForLeaderPartition(partition=index) for index in range(COUNT)]
    topic = OffsetForLeaderTopic(topic="unknown", partitions=rows)
    work = _ends_of_epochs(harness.broker, OffsetForLeaderEpochRequest(topics=[topic]))
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_deletion_of_records(harness: Harness) -> None:
    asked = [DeleteRecordsPartition(index, 1) for index in range(20 * COUNT)]
    reading = offsets_of([DeleteRecordsTopic("unknown", asked)])
    assert len(assert_slices_are_short(reading)["unknown"]) == 20 * COUNT
    work = _delete_all(harness.broker, {"unknown": dict.fromkeys(range(COUNT), 1)}, Waits(), [])
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_partitions_of_a_transaction(harness: Harness) -> None:
    count = 2000
    topics = [AddPartitionsToTxnTopic("one", list(range(count)))]
    topics += [AddPartitionsToTxnTopic(f"topic-{number}", [0]) for number in range(count)]
    assert is_large(topics)
    places = assert_slices_are_short(places_of(topics))
    refused = assert_slices_are_short(refused_of(harness.broker.image, places, is_client=True))
    assert set(refused.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    rows = assert_slices_are_short(rows_of(topics, refused))
    assert sum(len(row.results_by_partition) for row in rows) == 2 * count


def test_markers_of_transactions() -> None:
    one = WritableTxnMarkerTopic("one", list(range(COUNT)))
    markers = [WritableTxnMarker(topics=[one])]
    markers += [WritableTxnMarker(topics=[WritableTxnMarkerTopic("two", [0])])] * COUNT
    results: list[WritableTxnMarkerResult] = []
    assert len(assert_slices_are_short(read_markers(markers, results))) == 2 * COUNT


def test_states_of_share_partitions() -> None:
    count = 1500
    batches = [StateBatch(number, number) for number in range(10)]
    rows = [PartitionData(index, state_batches=batches) for index in range(count)]
    asked = assert_slices_are_short(read_rows(WRITE, "g", [WriteStateData(bytes(16), rows)]))
    answers: list[KafkaError | None] = [KafkaError(ErrorCode.NOT_COORDINATOR, "no")] * count
    response = assert_slices_are_short(make_response(WRITE, asked, answers))
    assert len(response.results[0].partitions) == count


def test_times_that_are_looked_up() -> None:
    topics = [
        ListOffsetsTopic(f"topic-{number}", [ListOffsetsPartition(0, timestamp=number - COUNT)])
        for number in range(2 * COUNT)
    ]
    assert len(assert_slices_are_short(wanted_by_time(topics))) > COUNT
