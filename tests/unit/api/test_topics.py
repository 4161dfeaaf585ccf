"""CreateTopics and DeleteTopics: what is refused and why, and what is there afterwards."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID, TopicName
from headrace.metadata.state import ResourceType
from headrace.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from tests.unit.harness import Harness

NO_DELETION = [{"delete.topic.enable": "false"}]


def topic(
    name: str = "orders",
    partitions: int = 1,
    factor: int = 1,
    *,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def create(
    harness: Harness, *topics: CreatableTopic, version: int = 7, **options: Any
) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), **options)
    rows: list[Any] = harness.ask(request, version).topics
    return rows


def delete(harness: Harness, *states: DeleteTopicState, timeout_ms: int = 5000) -> list[Any]:
    request = DeleteTopicsRequest(topics=list(states), timeout_ms=timeout_ms)
    rows: list[Any] = harness.ask(request, 6).responses
    return rows


def names(harness: Harness) -> list[str]:
    return [each.name for each in harness.broker.image.topics()]


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_served_when_its_client_hears_of_it(
    harness: Harness, version: int
) -> None:
    (row,) = create(harness, topic(partitions=3), version=version)
    assert (row.error_code, row.error_message) == (ErrorCode.NONE, None)
    for index in range(3):
        assert harness.partition(TopicName("orders"), index).is_leader
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (3, 1)
    if version >= 7:
        assert row.topic_id == harness.topic("orders").topic_id


@pytest.mark.parametrize("harness", [{"num.partitions": "4"}], indirect=True)
def test_minus_one_is_the_number_that_the_broker_has_set(harness: Harness) -> None:
    (row,) = create(harness, topic(partitions=-1, factor=-1))
    assert (row.num_partitions, row.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..'"),
        (topic("../x"), ErrorCode.INVALID_TOPIC_EXCEPTION, "allowed"),
        (topic("käse"), ErrorCode.INVALID_TOPIC_EXCEPTION, "käse"),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "249"),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "metadata log"),
        (topic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "old"),
        (topic("old", configs={"retention.ms": "x"}), ErrorCode.TOPIC_ALREADY_EXISTS, "old"),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "a.b"),
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS, "0 partitions"),
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS, "-2"),
        (topic(partitions=0, factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "factor 0"),
        (topic(factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR, "-2"),
        (topic(factor=2), ErrorCode.INVALID_REPLICATION_FACTOR, "1 broker is"),
        (topic(partitions=10_001), ErrorCode.POLICY_VIOLATION, "10000"),
        (
            topic(partitions=0, configs={"retention.ms": "x"}),
            ErrorCode.INVALID_CONFIG,
            "retention.ms",
        ),
        (topic(configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (topic(configs={"no.such.config": "1"}), ErrorCode.INVALID_CONFIG, "no.such.config"),
        (topic(partitions=1, factor=-1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "-1"),
        (topic(partitions=-1, factor=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "-1"),
    ],
    ids=lambda value: None if isinstance(value, str | ErrorCode) else f"{value.name[:20]}",
)
def test_what_cannot_be_created_is_refused_as_kafka_does(
    harness: Harness, asked: CreatableTopic, code: ErrorCode, words: str
) -> None:
    harness.create_topic("old")
    harness.create_topic("a.b")
    (row,) = create(harness, asked)
    assert row.error_code == code
    assert words in row.error_message
    assert row.topic_id == ZERO_TOPIC_ID
    assert names(harness) == ["old", "a.b"]


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ({0: [99]}, "99 is not registered"),
        ({0: [-1]}, "-1 is not registered"),
        ({0: []}, "at least one"),
        ({1: []}, "0, 1, 2"),
        ({0: ["me", "me"]}, "only once"),
        ({0: ["me"], 2: ["me"]}, "0, 1, 2"),
    ],
)
def test_brokers_that_a_partition_cannot_have_are_refused(
    harness: Harness, assignments: dict[int, list[Any]], words: str
) -> None:
    me = harness.broker.node_id
    chosen = {
        index: [me if each == "me" else each for each in brokers]
        for index, brokers in assignments.items()
    }
    (row,) = create(harness, topic(partitions=-1, factor=-1, assignments=chosen))
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in row.error_message


def test_brokers_that_are_named_get_the_partitions(harness: Harness) -> None:
    me = int(harness.broker.node_id)
    chosen = {1: [me], 0: [me]}
    (row,) = create(harness, topic(partitions=-1, factor=-1, assignments=chosen))
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)


def test_good_topics_are_created_beside_bad_ones_and_each_name_has_one_row(
    harness: Harness,
) -> None:
    rows = create(harness, topic("good"), topic("twice"), topic("bad name"), topic("twice"))
    assert {row.name: row.error_code for row in rows} == {
        "good": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert len(rows) == 3
    assert names(harness) == ["good"]


def test_too_many_partitions_in_all_refuse_the_whole_request(harness: Harness) -> None:
    rows = create(harness, topic("a", 6000), topic("b", 6000))
    assert [row.error_code for row in rows] == [ErrorCode.POLICY_VIOLATION] * 2
    assert not names(harness)


def test_validate_only_answers_as_if_and_creates_nothing(harness: Harness) -> None:
    rows = create(harness, topic(partitions=2), topic("bad name"), validate_only=True)
    assert [row.error_code for row in rows] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert rows[0].num_partitions == 2
    assert not names(harness)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_is_a_timeout_before_anything_is_done(harness: Harness, timeout_ms: int) -> None:
    (row,) = create(harness, topic(), timeout_ms=timeout_ms)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not names(harness)


def test_configs_come_back_with_where_they_are_from_as_they_were_written(harness: Harness) -> None:
    (row,) = create(harness, topic(configs={"retention.ms": " 100 ", "cleanup.policy": "compact"}))
    rows = {each.name: each for each in row.configs}
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == (" 100 ", 1)
    assert rows["cleanup.policy"].config_source == 1
    assert (rows["segment.bytes"].value, rows["segment.bytes"].config_source) == ("1073741824", 5)
    assert "internal.segment.bytes" not in rows
    kept = harness.broker.image.configs(ResourceType.TOPIC, "orders")
    assert kept == {"retention.ms": " 100 ", "cleanup.policy": "compact"}


def test_two_topics_of_a_request_do_not_get_the_same_id(harness: Harness) -> None:
    rows = create(harness, topic("a"), topic("b"))
    assert len({row.topic_id for row in rows} | {ZERO_TOPIC_ID}) == 3


def test_a_topic_created_by_another_in_between_is_told_so(harness: Harness) -> None:
    async def race() -> list[Any]:

        request = CreateTopicsRequest(topics=[topic()])
        return await asyncio.gather(*(harness.ask_async(request, 7) for _ in range(3)))

    codes = sorted(answer.topics[0].error_code for answer in harness.run(race()))
    assert codes == [0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.TOPIC_ALREADY_EXISTS]


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(harness: Harness, version: int) -> None:
    harness.create_topic("orders")
    request = DeleteTopicsRequest(topic_names=["orders", "nope", "nope"], timeout_ms=5000)
    rows = harness.ask(request, version).responses
    assert {row.name: row.error_code for row in rows} == {
        "orders": ErrorCode.NONE,
        "nope": ErrorCode.INVALID_REQUEST,
    }
    assert not names(harness)
    assert harness.broker.replicas.find(TopicName("orders"), 0) is None


def test_topics_are_deleted_by_id_and_named_in_the_answer(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    known, unknown, neither = delete(
        harness,
        DeleteTopicState(topic_id=topic_id),
        DeleteTopicState(topic_id=b"?" * 16),
        DeleteTopicState(),
    )
    assert (known.error_code, known.name, known.topic_id) == (0, "orders", topic_id)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert (neither.error_code, neither.name) == (ErrorCode.INVALID_REQUEST, None)
    assert not names(harness)


def test_a_topic_named_in_two_ways_is_not_deleted(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    by_name, by_id = DeleteTopicState(name="orders"), DeleteTopicState(topic_id=topic_id)
    for states in (
        [by_name, by_name],
        [by_id, by_id],
        [by_name, by_id],
        [DeleteTopicState(name="orders", topic_id=topic_id)],
    ):
        (row,) = delete(harness, *states)
        assert row.error_code == ErrorCode.INVALID_REQUEST
    assert names(harness) == ["orders"]


def test_an_unknown_topic_is_not_deleted_and_no_time_is_a_timeout(harness: Harness) -> None:
    harness.create_topic("orders")
    (row,) = delete(harness, DeleteTopicState(name="nope"))
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = delete(harness, DeleteTopicState(name="orders"), timeout_ms=0)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert names(harness) == ["orders"]


@pytest.mark.parametrize("harness", NO_DELETION, indirect=True)
@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_nothing_is_deleted_where_that_is_disabled(
    harness: Harness, version: int, code: ErrorCode
) -> None:
    harness.create_topic("orders")
    request = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=5000)
    (row,) = harness.ask(request, version).responses
    assert row.error_code == code
    assert names(harness) == ["orders"]


def test_a_topic_created_again_has_another_id_and_no_configs_of_the_former(
    harness: Harness,
) -> None:
    (first,) = create(harness, topic(configs={"retention.ms": "1"}))
    delete(harness, DeleteTopicState(name="orders"))
    (second,) = create(harness, topic())
    assert first.topic_id != second.topic_id
    assert not harness.broker.image.configs(ResourceType.TOPIC, "orders")


def test_of_names_that_collide_one_is_created_whichever_client_comes_first(
    harness: Harness,
) -> None:
    async def race() -> list[Any]:
        requests = [CreateTopicsRequest([topic(name)]) for name in ("a.b", "a_b", "ab")]
        answers = await asyncio.gather(*(harness.ask_async(each, 7) for each in requests))
        return [answer.topics[0] for answer in answers]

    rows = harness.run(race())
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [row.error_code for row in rows] == [ErrorCode.NONE, refused, ErrorCode.NONE]
    assert "a.b" in rows[1].error_message
    assert names(harness) == ["a.b", "ab"]
    delete(harness, DeleteTopicState(name="a.b"))
    (row,) = create(harness, topic("a_b"))
    assert row.error_code == ErrorCode.NONE
