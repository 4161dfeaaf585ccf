"""Requests of tools that name very many things: what they cost the loop before anything is done."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace import config
from headrace.api.describe_topic_partitions import describe_topic_partitions
from headrace.api.list_groups import _in_small_letters, _response
from headrace.api.list_transactions import _filter
from headrace.api.offset_delete import OFFSETS_AT_ONCE, _existing, _offset_slices, _rows
from headrace.errors import ErrorCode
from headrace.groups.administration import GroupRow
from headrace.metadata.image import Image
from headrace.txn.state import Status
from headrace.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.growth.slices import assert_slices_are_short

MANY = 20_000


class Counted(str):
    """A name whose comparisons are counted, as those of `sorted` otherwise are not."""

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)


@pytest.mark.parametrize("topics", [1, MANY])
@pytest.mark.parametrize("exists", [True, False])
def test_no_deletion_of_very_many_offsets_holds_the_loop(topics: int, exists: bool) -> None:
    each = [OffsetDeleteRequestPartition(index) for index in range(MANY // topics)]
    asked = [OffsetDeleteRequestTopic(f"topic-{number}", each) for number in range(topics)]
    found = SimpleNamespace(partitions=range(MANY // topics if exists else 0))
    image: Any = SimpleNamespace(topic=lambda name: found)
    existing = assert_slices_are_short(_existing(image, asked))
    parts = assert_slices_are_short(_offset_slices(existing))
    if exists:
        assert {sum(len(indexes) for _, indexes in part) for part in parts} == {OFFSETS_AT_ONCE}
    rows = assert_slices_are_short(_rows(asked, existing, set()))
    assert sum(len(row.partitions) for row in rows) == MANY
    code = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {row.error_code for each in rows for row in each.partitions} == {code}


def test_no_filter_of_very_many_transactions_holds_the_loop() -> None:
    labels = ["Ongoing", *map(str, range(MANY)), *map(str, range(MANY))]
    body = ListTransactionsRequest(
        state_filters=labels, producer_id_filters=list(range(MANY)), duration_filter=-1
    )
    wanted, unknown = assert_slices_are_short(_filter(body))
    assert wanted.statuses == {Status.ONGOING}
    assert (len(wanted.producer_ids), len(unknown)) == (MANY, MANY)


def test_no_list_of_very_many_groups_holds_the_loop() -> None:
    names = assert_slices_are_short(_in_small_letters([f"State-{each}" for each in range(MANY)]))
    assert len(names) == MANY
    listed: Any = [[GroupRow(f"group-{each}", "", "Empty", "classic")] * 500 for each in range(40)]
    assert len(assert_slices_are_short(_response(listed)).groups) == MANY


@pytest.mark.parametrize("cursor", [None, Cursor("a0", 0), Cursor("a0", -1)])
def test_no_description_of_very_many_topics_holds_the_loop(cursor: Cursor | None) -> None:
    names = [Counted(f"a{number * 7919 % MANY}") for number in range(MANY)]
    broker: Any = SimpleNamespace(
        image=Image(), settings={config.MAX_REQUEST_PARTITION_SIZE_LIMIT: 2000}
    )
    body = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name) for name in names], cursor=cursor
    )
    request: Any = SimpleNamespace(body=body, peer=SimpleNamespace(listener=""))
    response = assert_slices_are_short(describe_topic_partitions(broker, request))
    assert [topic.name for topic in response.topics] == sorted(names)
