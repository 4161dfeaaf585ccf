"""Requests that name very many partitions: what one turn of the loop has of them."""

from typing import Any

from headrace.broker.handlers.offsets import _ends_of_epochs
from headrace.broker.handlers.producers import _describe_all
from headrace.broker.handlers.records_deletion import _delete_all
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

COUNT = 5000


def test_producers_of_partitions(harness: Any) -> None:
    topic = TopicRequest(name="unknown", partition_indexes=list(range(COUNT)))
    work = _describe_all(harness.broker, DescribeProducersRequest(topics=[topic]))
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_ends_of_leader_epochs(harness: Any) -> None:
    rows = [OffsetForLeaderPartition(partition=index) for index in range(COUNT)]
    topic = OffsetForLeaderTopic(topic="unknown", partitions=rows)
    work = _ends_of_epochs(harness.broker, OffsetForLeaderEpochRequest(topics=[topic]))
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT


def test_deletion_of_records(harness: Any) -> None:
    work = _delete_all(harness.broker, {"unknown": dict.fromkeys(range(COUNT), 1)})
    assert len(assert_slices_are_short(work).topics[0].partitions) == COUNT
