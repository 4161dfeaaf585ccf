"""DescribeTopicPartitions: page by page, in the order of names."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition, SetConfigs
from headrace.metadata.state import ResourceType
from headrace.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.unit.harness import Harness


def ask(
    harness: Harness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return harness.ask(request, 0)


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(each.name, [row.partition_index for row in each.partitions]) for each in answer.topics]


def next_page(answer: Any) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def topics(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        harness.create_topic(name, partitions=3)


@pytest.mark.usefixtures("topics")
def test_topics_come_in_the_order_of_names_each_once(harness: Harness) -> None:
    every = [("a", [0, 1, 2]), ("b", [0, 1, 2]), ("c", [0, 1, 2])]
    assert shown(ask(harness)) == every
    assert shown(ask(harness, "c", "a", "b", "a")) == every


@pytest.mark.usefixtures("topics")
def test_a_partition_is_described_in_full(harness: Harness) -> None:
    me = harness.broker.node_id
    (topic,) = ask(harness, "a").topics
    assert (topic.topic_authorized_operations, topic.is_internal) == (3576, False)
    row = topic.partitions[0]
    assert (row.error_code, row.leader_id, row.leader_epoch) == (0, me, 0)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([me], [me], [])
    assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9])
def test_page_by_page_every_partition_is_seen_once(harness: Harness, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        answer = ask(harness, "a", "b", "c", limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in shown(answer) for index in indexes]
        assert 1 <= len(page) <= limit
        seen += page
        cursor = next_page(answer)
        if cursor is None:
            break
    assert seen == [(name, index) for name in "abc" for index in range(3)]


@pytest.mark.usefixtures("topics")
def test_a_full_page_points_to_the_next_topic(harness: Harness) -> None:
    assert next_page(ask(harness, "a", "b", limit=3)) == ("b", 0)
    assert next_page(ask(harness, "a", limit=3)) is None
    assert next_page(ask(harness, "a", "nope", limit=3)) == ("nope", 0)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("limit", [0, -1])
def test_there_is_always_room_for_one_partition(harness: Harness, limit: int) -> None:
    answer = ask(harness, "a", limit=limit)
    assert shown(answer) == [("a", [0])]
    assert next_page(answer) == ("a", 1)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("harness", [{"max.request.partition.size.limit": "2"}], indirect=True)
def test_the_broker_bounds_what_a_client_may_want(harness: Harness) -> None:
    assert shown(ask(harness, "a", limit=1000)) == [("a", [0, 1])]


@pytest.mark.usefixtures("topics")
def test_a_cursor_goes_on_where_it_points(harness: Harness) -> None:
    assert shown(ask(harness, cursor=("b", 2))) == [("b", [2]), ("c", [0, 1, 2])]
    assert shown(ask(harness, cursor=("aa", 2))) == [("b", [0, 1, 2]), ("c", [0, 1, 2])]
    assert shown(ask(harness, "a", "b", cursor=("a", 99))) == [("a", []), ("b", [0, 1, 2])]


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("cursor", [("zz", 0), ("b", 0), ("a", -1)])
def test_a_cursor_that_points_nowhere_is_refused(harness: Harness, cursor: tuple[str, int]) -> None:
    answer = ask(harness, "a", "c", cursor=cursor)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]


def test_topics_that_are_not_there_are_told_apart_from_those_that_cannot_be(
    harness: Harness,
) -> None:
    answer = ask(harness, "nope", "bad name", "")
    assert {each.name: each.error_code for each in answer.topics} == {
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert not harness.has_topic("nope")


def test_eligible_leaders_and_the_last_one_are_shown(
    harness: Harness, register: Any, place: Any, fence: Any
) -> None:
    me, first = harness.broker.node_id, PartitionIndex(0)
    register(me + 1)
    register(me + 2)
    topic_id = place("orders", [me + 2, me + 1], isr=[me + 2, me + 1], leader=me + 2)
    fence(me + 2)
    values: dict[str, str | None] = {"min.insync.replicas": "2"}
    for change in (
        SetConfigs(ResourceType.TOPIC, "orders", values),
        ChangePartition(topic_id, first, isr=(BrokerId(me + 2),)),
        ChangePartition(topic_id, first, leader=-1),
    ):
        harness.run(harness.broker.quorum.propose(change))
    row = ask(harness, "orders").topics[0].partitions[0]
    assert (row.eligible_leader_replicas, row.last_known_elr) == ([me + 1], [me + 2])
    assert (row.isr_nodes, row.offline_replicas) == ([me + 2], [me + 2])
