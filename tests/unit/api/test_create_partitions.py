"""CreatePartitions: a topic grows, and only grows."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.topics.validation import INTERNAL_TOPICS
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.unit.harness import Harness


def topic(name: str, count: int, brokers: list[list[int]] | None = None) -> CreatePartitionsTopic:
    assignments = (
        None
        if brokers is None
        else [CreatePartitionsAssignment(broker_ids=each) for each in brokers]
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


def grow(harness: Harness, *topics: CreatePartitionsTopic, version: int = 3, **options: Any) -> Any:
    options.setdefault("timeout_ms", 5000)
    request = CreatePartitionsRequest(topics=list(topics), **options)
    return harness.ask(request, version).results


def count_of(harness: Harness, name: str = "orders") -> int:
    return len(harness.topic(name).partitions)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_are_served_when_the_client_hears_of_them(
    harness: Harness, version: int
) -> None:
    harness.create_topic("orders")
    (row,) = grow(harness, topic("orders", 3), version=version)
    assert (row.name, row.error_code, row.error_message) == ("orders", 0, None)
    assert harness.partition("orders", 2).is_leader


def test_brokers_may_be_named_for_the_new_partitions(harness: Harness) -> None:
    harness.create_topic("orders")
    me = harness.broker.node_id
    (row,) = grow(harness, topic("orders", 3, [[me], [me]]))
    assert row.error_code == 0
    assert count_of(harness) == 3


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (topic("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope"),
        (topic("orders", 2), ErrorCode.INVALID_PARTITIONS, "only grow"),
        (topic("orders", 1), ErrorCode.INVALID_PARTITIONS, "only grow"),
        (topic("orders", 0), ErrorCode.INVALID_PARTITIONS, "only grow"),
        (topic("orders", -1), ErrorCode.INVALID_PARTITIONS, "only grow"),
        (topic("orders", 10_003), ErrorCode.POLICY_VIOLATION, "10000"),
        (topic("orders", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "10000"),
        (topic("orders", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "for 1"),
        (topic("orders", 4, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "for 0"),
        (topic("orders", 3, [[99]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "99"),
        (topic("orders", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "at least one"),
    ],
)
def test_what_cannot_grow_is_refused_as_kafka_does(
    harness: Harness, asked: CreatePartitionsTopic, code: ErrorCode, words: str
) -> None:
    harness.create_topic("orders", partitions=2)
    (row,) = grow(harness, asked)
    assert row.error_code == code
    assert words in row.error_message
    assert count_of(harness) == 2


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_internal_topics_do_not_grow(harness: Harness, name: str) -> None:
    """Committed offsets, or the events of the tier, would be looked for where they are not."""
    harness.create_topic(name, partitions=3)
    (row,) = grow(harness, topic(name, 6))
    assert row.error_code == ErrorCode.INVALID_PARTITIONS
    assert "keeps its number of partitions" in row.error_message
    assert count_of(harness, name) == 3


def test_partitions_of_a_topic_have_as_many_replicas_each(harness: Harness, register: Any) -> None:
    me = harness.broker.node_id
    register(me + 1)
    harness.create_topic("orders")
    (row,) = grow(harness, topic("orders", 2, [[me, me + 1]]))
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_is_not_grown_onto_a_broker_that_is_down_alone(
    harness: Harness, register: Any
) -> None:
    down = harness.broker.node_id + 1
    register(down, is_fenced=True)
    harness.create_topic("orders")
    (row,) = grow(harness, topic("orders", 2, [[down]]))
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "up" in row.error_message


def test_a_name_that_comes_twice_is_refused_and_the_others_grow(harness: Harness) -> None:
    for name in ("a", "b"):
        harness.create_topic(name)
    rows = grow(harness, topic("a", 2), topic("a", 3), topic("b", 2))
    assert [(row.name, row.error_code) for row in rows] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert (count_of(harness, "a"), count_of(harness, "b")) == (1, 2)


def test_validate_only_and_no_time_change_nothing(harness: Harness) -> None:
    harness.create_topic("orders")
    (row,) = grow(harness, topic("orders", 2), validate_only=True)
    assert row.error_code == ErrorCode.NONE
    (row,) = grow(harness, topic("orders", 2), timeout_ms=0)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert count_of(harness) == 1


@pytest.mark.parametrize(
    ("counts", "codes"),
    [
        ((4, 4), [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]),
        ((4, 6), [ErrorCode.NONE, ErrorCode.NONE]),
        ((6, 4), [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]),
    ],
)
def test_of_two_clients_at_once_the_second_is_judged_by_what_the_first_did(
    harness: Harness, counts: tuple[int, int], codes: list[ErrorCode]
) -> None:
    harness.create_topic("orders", partitions=2)

    async def grow_twice() -> list[Any]:
        requests = [CreatePartitionsRequest([topic("orders", each)], 5000) for each in counts]
        answers = await asyncio.gather(*(harness.ask_async(each, 3) for each in requests))
        return [answer.results[0] for answer in answers]

    rows = harness.run(grow_twice())
    assert [row.error_code for row in rows] == codes
    assert "retry" not in (rows[1].error_message or "")
    assert count_of(harness) == max(counts)
