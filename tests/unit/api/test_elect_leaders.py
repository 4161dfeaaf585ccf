"""ElectLeaders: the preferred replica, or any if there is no other way."""

from typing import Any

import pytest
from msgspec.structs import replace

from headrace.api import elect_leaders
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition, SetConfigs
from headrace.metadata.state import ResourceType
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from tests.unit.harness import Harness

PREFERRED, UNCLEAN = 0, 1


def elect(
    harness: Harness,
    partitions: dict[str, list[int]] | None,
    kind: int = PREFERRED,
    version: int = 2,
    timeout_ms: int = 5000,
) -> Any:
    asked = (
        None
        if partitions is None
        else [TopicPartitions(topic=name, partitions=each) for name, each in partitions.items()]
    )
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=timeout_ms)
    return harness.ask(request, version)


def codes(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, row.partition_id): row.error_code
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


def leader_of(harness: Harness, name: str = "orders") -> int:
    leader: int = harness.topic(name).partitions[0].leader
    return leader


@pytest.mark.parametrize("version", range(3))
def test_a_preferred_leader_needs_no_election(harness: Harness, version: int) -> None:
    harness.create_topic("orders", partitions=2)
    answer = elect(harness, {"orders": [0, 1]}, version=version)
    assert answer.error_code == 0
    assert set(codes(answer).values()) == {ErrorCode.ELECTION_NOT_NEEDED}


def test_the_preferred_replica_is_elected_if_it_is_up_and_in_sync(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me + 1)
    place("behind", [me, me + 1], isr=[me + 1], leader=me + 1)
    answer = elect(harness, {"orders": [0], "behind": [0]})
    assert codes(answer) == {
        ("orders", 0): ErrorCode.NONE,
        ("behind", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    assert answer.replica_election_results[0].partition_result[0].error_message is None
    assert (leader_of(harness), leader_of(harness, "behind")) == (me, me + 1)
    assert harness.partition("orders", 0).is_leader


def test_an_unclean_leader_is_for_partitions_without_one(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1, is_fenced=True)
    place("led", [me], isr=[me], leader=me)
    place("lost", [me + 1, me], isr=[me + 1], leader=-1)
    place("gone", [me + 1], isr=[me + 1], leader=-1)
    answer = elect(harness, {"led": [0], "lost": [0], "gone": [0]}, UNCLEAN)
    assert codes(answer) == {
        ("led", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("lost", 0): ErrorCode.NONE,
        ("gone", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    row = harness.topic("lost").partitions[0]
    assert (row.leader, row.isr) == (me, (me,))


def test_an_eligible_replica_is_elected_before_an_unclean_one(
    harness: Harness, register: Any, place: Any, fence: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    register(me + 2)
    topic_id = place("lost", [me + 2, me, me + 1], isr=[me, me + 1], leader=me + 1)
    fence(me + 1)
    values: dict[str, str | None] = {"min.insync.replicas": "2"}
    first = PartitionIndex(0)
    for change in (
        SetConfigs(ResourceType.TOPIC, "lost", values),
        ChangePartition(topic_id, first, isr=(BrokerId(me + 1),)),
        ChangePartition(topic_id, first, leader=-1),
    ):
        harness.run(harness.broker.quorum.propose(change))
    assert harness.topic("lost").partitions[0].elr == (me,)
    assert codes(elect(harness, {"lost": [0]}, UNCLEAN)) == {("lost", 0): ErrorCode.NONE}
    row = harness.topic("lost").partitions[0]
    assert (row.leader, row.isr, row.elr) == (me, (me,), (me + 1,))


def test_without_a_leader_a_preferred_election_takes_any_that_has_all_records(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1, is_fenced=True)
    place("lost", [me + 1, me], isr=[me + 1, me], leader=-1)
    assert codes(elect(harness, {"lost": [0]})) == {("lost", 0): ErrorCode.NONE}
    assert leader_of(harness, "lost") == me


def test_null_is_every_partition_and_only_those_that_need_it_are_answered(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("calm", [me], isr=[me], leader=me)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me + 1)
    answer = elect(harness, None)
    assert codes(answer) == {("orders", 0): ErrorCode.NONE}
    assert {each.topic for each in answer.replica_election_results} == {"calm", "orders"}
    assert elect(harness, {}).replica_election_results == []


def test_what_is_not_there_has_no_leader_to_elect(harness: Harness) -> None:
    harness.create_topic("orders")
    answer = elect(harness, {"orders": [9, -1], "nope": [0]})
    assert set(codes(answer).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("kind", "version", "timeout_ms", "code"),
    [
        (2, 2, 5000, ErrorCode.INVALID_REQUEST),
        (PREFERRED, 1, 0, ErrorCode.REQUEST_TIMED_OUT),
        (PREFERRED, 0, 0, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_for_each_partition(
    harness: Harness, kind: int, version: int, timeout_ms: int, code: ErrorCode
) -> None:
    harness.create_topic("orders")
    answer = elect(harness, {"orders": [0]}, kind, version, timeout_ms)
    assert codes(answer) == {("orders", 0): code}
    assert answer.error_code == (code if version >= 1 else ErrorCode.NONE)


@pytest.mark.parametrize("by", ["another change", "the same election"])
def test_an_election_that_is_overtaken_is_planned_again(
    harness: Harness, register: Any, place: Any, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me + 1)
    plan: Any = elect_leaders.plan_election
    planned = 0

    def plan_late(*arguments: Any) -> Any:
        nonlocal planned
        planned += 1
        if by == "the same election" and planned > 1:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "it leads")
        change = plan(*arguments)
        if planned == 1:
            change = replace(change, expected_partition_epoch=change.expected_partition_epoch - 1)
        return change

    monkeypatch.setattr(elect_leaders, "plan_election", plan_late)
    assert codes(elect(harness, {"orders": [0]})) == {("orders", 0): ErrorCode.NONE}
    assert planned == 2
