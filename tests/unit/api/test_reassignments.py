"""Reassignments: other replicas for a partition, what is under way, and how it is called off."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.api import alter_partition_reassignments
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.entries import MigrationAbort
from headrace.server.proposals import PLANNED_AGAIN_MAX
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.unit.harness import Harness


def reassign(
    harness: Harness,
    replicas: list[int] | None,
    *,
    topic: str = "orders",
    index: int = 0,
    **options: Any,
) -> Any:
    version = options.pop("version", 1)
    options.setdefault("timeout_ms", 5000)
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])], **options
    )
    answer = harness.ask(request, version)
    (topic_row,) = answer.responses
    (row,) = topic_row.partitions
    assert (topic_row.name, row.partition_index) == (topic, index)
    return row


def under_way(harness: Harness, topics: dict[str, list[int]] | None = None) -> list[Any]:
    asked = (
        None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )
    answer = harness.ask(ListPartitionReassignmentsRequest(timeout_ms=5000, topics=asked), 0)
    assert answer.error_code == 0
    return [
        (topic.name, row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    ]


def join(harness: Harness, topic_id: TopicId, *isr: int, leader: int | None = None) -> None:
    members = tuple(map(BrokerId, isr))
    change = ChangePartition(topic_id, PartitionIndex(0), isr=members, leader=leader)
    harness.run(harness.broker.quorum.propose(change))


def wait(harness: Harness, is_so: Callable[[], bool]) -> None:
    """Wait for what the controller does by itself."""

    async def until() -> None:
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0.001)

    harness.run(until())


def row_of(harness: Harness, name: str = "orders") -> Any:
    return harness.topic(name).partitions[0]


@pytest.mark.parametrize("version", [0, 1])
def test_the_replicas_that_it_has_are_no_change(harness: Harness, version: int) -> None:
    harness.create_topic("orders")
    before = row_of(harness)
    row = reassign(harness, [harness.broker.node_id], version=version)
    assert (row.error_code, row.error_message) == (ErrorCode.NONE, None)
    assert row_of(harness) == before
    assert under_way(harness) == []


@pytest.mark.parametrize(
    ("replicas", "words"),
    [([99], "99"), ([], "at least one"), (["me", "me"], "only once"), ([-1], "-1")],
)
def test_replicas_that_cannot_be_are_refused(
    harness: Harness, replicas: list[Any], words: str
) -> None:
    harness.create_topic("orders")
    me = harness.broker.node_id
    row = reassign(harness, [me if each == "me" else each for each in replicas])
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in row.error_message


def test_what_is_not_there_cannot_be_reassigned(harness: Harness) -> None:
    harness.create_topic("orders")
    for where in ({"topic": "nope"}, {"index": 9}, {"index": -1}):
        row = reassign(harness, [harness.broker.node_id], **where)
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_is_called_off_where_nothing_is_under_way(harness: Harness) -> None:
    harness.create_topic("orders")
    assert reassign(harness, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_new_replica_is_under_way_until_it_is_called_off(harness: Harness, register: Any) -> None:
    me = harness.broker.node_id
    register(me + 1)
    harness.create_topic("orders")
    assert reassign(harness, [me + 1]).error_code == 0
    expected = [("orders", 0, [me + 1, me], [me + 1], [me])]
    assert under_way(harness) == expected
    assert under_way(harness, {"orders": [0, 7], "nope": [0]}) == expected
    assert under_way(harness, {"nope": [0]}) == []
    assert (row_of(harness).leader, row_of(harness).isr) == (me, (me,))
    assert reassign(harness, None).error_code == 0
    assert under_way(harness) == []
    assert row_of(harness).replicas == (me,)


def test_another_order_or_fewer_replicas_in_sync_are_taken_at_once(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me + 1, me], isr=[me + 1, me], leader=me + 1)
    assert reassign(harness, [me, me + 1]).error_code == 0
    assert (row_of(harness).replicas, row_of(harness).leader) == ((me, me + 1), me + 1)
    assert reassign(harness, [me]).error_code == 0
    row = row_of(harness)
    assert (row.replicas, row.isr, row.leader) == ((me,), (me,), me)
    assert under_way(harness) == []


def test_a_move_ends_when_all_that_were_asked_for_are_in_sync(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    topic_id = place("orders", [me], isr=[me], leader=me)
    assert reassign(harness, [me + 1]).error_code == 0
    join(harness, topic_id, me, me + 1)
    wait(harness, lambda: row_of(harness).replicas == (me + 1,))
    row = row_of(harness)
    # One leader epoch began when it took over, and one when the other left.
    assert (row.isr, row.leader, row.leader_epoch) == ((me + 1,), me + 1, 3)
    assert under_way(harness) == []


def test_some_of_the_replicas_that_are_not_all_in_sync_wait(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    register(me + 2)
    topic_id = place("orders", [me, me + 1, me + 2], isr=[me], leader=me)
    assert reassign(harness, [me, me + 1]).error_code == 0
    assert under_way(harness) == [("orders", 0, [me, me + 1, me + 2], [], [me + 2])]
    join(harness, topic_id, me, me + 1)
    wait(harness, lambda: row_of(harness).replicas == (me, me + 1))


def test_another_reassignment_drops_what_the_former_was_adding(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    for number in (1, 2, 3):
        register(me + number)
    topic_id = place("orders", [me], isr=[me], leader=me)
    assert reassign(harness, [me + 1, me + 2]).error_code == 0
    join(harness, topic_id, me, me + 1)
    assert reassign(harness, [me, me + 3]).error_code == 0
    assert under_way(harness) == [("orders", 0, [me, me + 3], [me + 3], [])]
    assert (row_of(harness).isr, row_of(harness).leader) == ((me,), me)


def test_a_cancellation_that_would_lose_records_is_refused(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    register(me + 2, is_fenced=True)
    topic_id = place("orders", [me], isr=[me], leader=me)
    assert reassign(harness, [me + 1, me + 2]).error_code == 0
    join(harness, topic_id, me, me + 1)
    join(harness, topic_id, me + 1, leader=me + 1)
    row = reassign(harness, None)
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert row_of(harness).adding == (me + 1, me + 2)


def test_the_replication_factor_changes_only_if_the_client_allows_it(
    harness: Harness, register: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    harness.create_topic("orders")
    row = reassign(harness, [me, me + 1], allow_replication_factor_change=False)
    assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(harness, [me, me + 1]).error_code == 0


def test_no_time_is_a_timeout(harness: Harness) -> None:
    harness.create_topic("orders")
    row = reassign(harness, [harness.broker.node_id], timeout_ms=0)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("times", [3, 2 * PLANNED_AGAIN_MAX])
def test_what_another_change_has_overtaken_is_planned_again(
    harness: Harness, register: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The client does not hear that a member joined the ISR, say, while its request was done."""
    me = harness.broker.node_id
    register(me + 1)
    harness.create_topic("orders")
    plan: Any = alter_partition_reassignments.plan_reassignment
    overtaken = 0

    def plan_late(*arguments: Any, **options: Any) -> Any:
        nonlocal overtaken
        change = plan(*arguments, **options)
        overtaken += 1
        epoch = change.expected_partition_epoch - (overtaken <= times)
        return replace(change, expected_partition_epoch=epoch)

    monkeypatch.setattr(alter_partition_reassignments, "plan_reassignment", plan_late)
    code = reassign(harness, [me + 1]).error_code
    assert (code == 0) == bool(under_way(harness)) == (times <= PLANNED_AGAIN_MAX)
    assert overtaken == min(times, PLANNED_AGAIN_MAX) + 1


def test_a_move_that_goes_on_while_it_is_called_off_is_called_off(
    harness: Harness, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How it is undone depends on how far it is."""
    me = harness.broker.node_id
    register(me + 1)
    harness.create_topic("orders")
    assert reassign(harness, [me + 1]).error_code == 0
    image = harness.broker.image
    wait(harness, lambda: image.migration_of_vshard(row_of(harness).vshard_id) is not None)
    plan: Any = alter_partition_reassignments.plan_reassignment
    planned: list[Any] = []

    def plan_late(*arguments: Any, **options: Any) -> Any:
        planned.append(plan(*arguments, **options))
        return planned[-1] if len(planned) > 1 else replace(planned[-1], compensations=())

    monkeypatch.setattr(alter_partition_reassignments, "plan_reassignment", plan_late)
    row = reassign(harness, None)
    assert (row.error_code, row.error_message) == (0, None)
    assert [type(each) for each in planned] == [MigrationAbort] * 2
    assert under_way(harness) == []
