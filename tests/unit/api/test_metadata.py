"""Metadata: which topics, where their leaders are, and what is created on the way."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID
from headrace.metadata.state import ResourceType
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.unit.harness import Harness

LATEST = 13
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
NOT_ASKED = -(2**31)


def by_name(*names: str | None, **options: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)


def by_id(*ids: bytes) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    )


def rows(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(LATEST + 1))
def test_every_version_finds_the_leader_of_a_topic(harness: Harness, version: int) -> None:
    harness.create_topic("orders", partitions=2)
    answer = harness.ask(by_name("orders"), version)
    me = harness.broker.node_id
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (me, "127.0.0.1", harness.node.listeners[0].port)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "orders")
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.leader_id, partition.replica_nodes) == (me, [me])
        assert (partition.isr_nodes, partition.offline_replicas) == ([me], [])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    if version >= 1:
        assert answer.controller_id == me
    if version >= 2:
        assert answer.cluster_id == harness.broker.image.state.cluster_id
    if version >= 10:
        assert topic.topic_id == harness.topic("orders").topic_id


def test_null_is_all_topics_and_an_empty_list_is_none_but_in_version_0(harness: Harness) -> None:
    harness.create_topic("a")
    harness.create_topic("b")
    assert sorted(rows(harness.ask(MetadataRequest(topics=None), LATEST))) == ["a", "b"]
    assert rows(harness.ask(MetadataRequest(topics=[]), 1)) == {}
    assert sorted(rows(harness.ask(MetadataRequest(topics=[]), 0))) == ["a", "b"]


def test_a_name_asked_for_twice_is_answered_once(harness: Harness) -> None:
    harness.create_topic("orders")
    assert len(harness.ask(by_name("orders", "orders"), LATEST).topics) == 1


def test_topics_are_found_by_id(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    known, unknown = harness.ask(by_id(topic_id, b"?" * 16), LATEST).topics
    assert (known.error_code, known.name, known.topic_id) == (0, "orders", topic_id)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (unknown.name, unknown.topic_id) == (None, b"?" * 16)


def test_one_id_makes_names_without_one_be_passed_over(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    request = by_id(topic_id)
    assert request.topics is not None
    request.topics.append(MetadataRequestTopic(name="new"))
    assert rows(harness.ask(request, 12)) == {"orders": 0}
    assert not harness.has_topic("new")


@pytest.mark.parametrize("version", [10, 11])
def test_ids_in_versions_that_cannot_ask_by_them_are_refused(
    harness: Harness, version: int
) -> None:
    topic_id = harness.create_topic("orders")
    answer = harness.ask(by_id(topic_id), version)
    (row,) = answer.topics
    assert (row.error_code, row.name, row.topic_id) == (ErrorCode.INVALID_REQUEST, "", topic_id)
    assert answer.brokers == []


def test_neither_name_nor_id_is_refused(harness: Harness) -> None:
    assert rows(harness.ask(by_id(ZERO_TOPIC_ID), LATEST)) == {None: ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("harness", [{"num.partitions": "3"}], indirect=True)
def test_a_topic_is_created_on_demand_and_served_at_once(harness: Harness) -> None:
    (row,) = harness.ask(by_name("new"), LATEST).topics
    assert (row.error_code, len(row.partitions)) == (0, 3)
    assert harness.partition("new", 2).is_leader


def test_clients_that_demand_the_same_topic_at_once_get_the_same_one(harness: Harness) -> None:
    async def ask_all() -> list[Any]:
        return await asyncio.gather(*(harness.ask_async(by_name("new"), LATEST) for _ in range(5)))

    ids = {answer.topics[0].topic_id for answer in harness.run(ask_all())}
    assert ids == {harness.topic("new").topic_id}


def test_names_that_cannot_be_created_are_told_apart(harness: Harness) -> None:
    harness.create_topic("a.b")
    answer = harness.ask(by_name("bad name", "", ".", "x" * 250, "a_b", "__cluster_metadata"), 9)
    assert rows(answer) == {
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        ".": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [each.name for each in harness.broker.image.topics()] == ["a.b"]


def test_a_client_that_forbids_creation_gets_none(harness: Harness) -> None:
    answer = harness.ask(by_name("new", allow_auto_topic_creation=False), LATEST)
    assert rows(answer) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not harness.has_topic("new")


@pytest.mark.parametrize("harness", [{"auto.create.topics.enable": "false"}], indirect=True)
def test_a_broker_that_forbids_creation_creates_none(harness: Harness) -> None:
    assert rows(harness.ask(by_name("new"), LATEST)) == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert not harness.has_topic("new")


@pytest.mark.parametrize(
    "harness",
    [{"offsets.topic.num.partitions": "2", "offsets.topic.replication.factor": "1"}],
    indirect=True,
)
def test_the_topic_of_groups_is_created_as_its_settings_say(harness: Harness) -> None:
    (row,) = harness.ask(by_name("__consumer_offsets"), LATEST).topics
    assert (row.error_code, row.is_internal, len(row.partitions)) == (0, True, 2)
    configs = harness.broker.image.configs(ResourceType.TOPIC, "__consumer_offsets")
    assert configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_the_topics_of_coordinators_are_internal_before_they_exist(harness: Harness) -> None:
    (row,) = harness.ask(
        by_name("__transaction_state", allow_auto_topic_creation=False), LATEST
    ).topics
    assert (row.error_code, row.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


def test_authorised_operations_are_given_on_request_only(harness: Harness) -> None:
    harness.create_topic("orders")
    asked = by_name(
        "orders",
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = harness.ask(asked, 8)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    answer = harness.ask(by_name("orders"), 8)
    assert answer.cluster_authorized_operations == NOT_ASKED
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED


def test_brokers_are_named_by_the_listener_that_the_client_came_through(
    harness: Harness, register: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1, rack="b")
    register(me + 2, listener="INTERNAL")
    register(me + 3, is_fenced=True)
    answer = harness.ask(MetadataRequest(topics=[]), LATEST)
    assert [(each.node_id, each.rack) for each in answer.brokers] == [(me, None), (me + 1, "b")]
    assert (answer.brokers[1].host, answer.brokers[1].port) == (f"host{me + 1}", 9000 + me + 1)


def test_a_leader_that_is_down_or_not_on_the_listener_is_none_for_the_client(
    harness: Harness, register: Any, place: Any, fence: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1, listener="INTERNAL")
    register(me + 2)
    place("elsewhere", [me + 1, me], isr=[me + 1, me], leader=me + 1)
    place("down", [me + 2, me], isr=[me + 2, me], leader=me + 2)
    place("nobody", [me], isr=[me], leader=-1)
    fence(me + 2)

    def first(name: str, version: int) -> Any:
        return harness.ask(by_name(name), version).topics[0].partitions[0]

    for name, code in (
        ("elsewhere", ErrorCode.LISTENER_NOT_FOUND),
        ("down", ErrorCode.LEADER_NOT_AVAILABLE),
        ("nobody", ErrorCode.LEADER_NOT_AVAILABLE),
    ):
        row = first(name, LATEST)
        assert (row.error_code, row.leader_id, row.leader_epoch) == (code, -1, 1)
    assert first("elsewhere", LATEST).offline_replicas == [me + 1]
    assert first("elsewhere", 5).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert first("down", 0).replica_nodes == [me], "clients of version 0 connect to all they see"


def test_a_follower_that_is_down_is_offline(harness: Harness, register: Any, place: Any) -> None:
    me = harness.broker.node_id
    register(me + 1, is_fenced=True)
    place("orders", [me, me + 1], isr=[me], leader=me)
    row = harness.ask(by_name("orders"), LATEST).topics[0].partitions[0]
    assert (row.error_code, row.leader_id) == (0, me)
    assert (row.replica_nodes, row.isr_nodes) == ([me, me + 1], [me])
    assert row.offline_replicas == [me + 1]
    row = harness.ask(by_name("orders"), 0).topics[0].partitions[0]
    assert (row.error_code, row.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [me])
