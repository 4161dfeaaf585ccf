"""Requests that name very many partitions: what one turn of the loop has of them."""

from headrace.api.delete_records import Waits, _delete_all
from headrace.api.describe_producers import _describe_all
from headrace.api.offset_for_leader_epoch import _ends_of_epochs
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.growth.slices import assert_slices_are_short
from tests.unit.harness import Harness

COUNT = 5000


def test_producers_of_partitions(harness: Harness) -> None:
    topic = TopicRequest(name="unknown", partition_indexes=list(range(COUNT)))
    work = _describe_all(harness.broker, DescribeProducersRequest(topics=[topic]))
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_ends_of_leader_epochs(harness: Harness) -> None:
    rows = [OffsetForLeaderPartition(partition=index) for index in range(COUNT)]
    topic = OffsetForLeaderTopic(topic="unknown", partitions=rows)
    work = _ends_of_epochs(harness.broker, OffsetForLeaderEpochRequest(topics=[topic]))
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_deletion_of_records(harness: Harness) -> None:
    work = _delete_all(harness.broker, {"unknown": dict.fromkeys(range(COUNT), 1)}, Waits())
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT
