"""Requests that name thousands of groups or transactions: others on the loop get their turns."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.api import committed_offsets, delete_groups, describe_groups, offset_fetch
from headrace.api.committed_offsets import OFFSETS_AT_ONCE
from headrace.api.leave_group import MEMBERS_AT_ONCE
from headrace.coordinator.machine import Outcome
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import delete_group, describe_group
from headrace.groups.offsets.expiry import TOMBSTONES_AT_ONCE
from headrace.groups.state import GroupsState
from headrace.loop.slices import SLICE_UNITS
from headrace.server.gathering import NAMES_AT_ONCE
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.growth.slices import finish_measured
from tests.unit.harness import Harness

COUNT = 1000
NAMES = [f"name {number}" for number in range(COUNT)]
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("harness", [SETTINGS], indirect=True),
]


@pytest.fixture(autouse=True)
def coordinators(harness: Harness) -> None:
    """Have coordinators of groups and of transactions, loaded."""
    for key_type in range(2):
        harness.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)

    async def load() -> None:
        for coordinator in (harness.broker.groups, harness.broker.transactions):
            for shard in coordinator:
                await shard.loaded()

    harness.run(load())


def ask_watched(harness: Harness, body: Any, version: int) -> tuple[Any, int]:
    """Send a request; return the response, and how many turns others on the loop had meanwhile."""

    async def ask() -> tuple[Any, int]:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        other = asyncio.get_running_loop().create_task(take_turns())
        response = await harness.ask_async(body, version)
        other.cancel()
        return response, turns

    result: tuple[Any, int] = harness.run(ask())
    return result


REQUESTS: list[tuple[Callable[[], Any], int, str, ErrorCode]] = [
    (lambda: DeleteGroupsRequest(NAMES), 2, "results", ErrorCode.GROUP_ID_NOT_FOUND),
    (lambda: DescribeGroupsRequest(NAMES), 6, "groups", ErrorCode.GROUP_ID_NOT_FOUND),
    (
        lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(each) for each in NAMES]),
        9,
        "groups",
        ErrorCode.NONE,
    ),
    (lambda: ConsumerGroupDescribeRequest(NAMES), 1, "groups", ErrorCode.GROUP_ID_NOT_FOUND),
    (lambda: ShareGroupDescribeRequest(NAMES), 1, "groups", ErrorCode.GROUP_ID_NOT_FOUND),
    (lambda: FindCoordinatorRequest(coordinator_keys=NAMES), 6, "coordinators", ErrorCode.NONE),
    (
        lambda: DescribeTransactionsRequest(NAMES),
        0,
        "transaction_states",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ),
]


@pytest.mark.parametrize(("make", "version", "rows", "code"), REQUESTS)
def test_many_names_are_answered_in_slices_and_in_order(
    harness: Harness, make: Callable[[], Any], version: int, rows: str, code: ErrorCode
) -> None:
    response, turns = ask_watched(harness, make(), version)
    answered = getattr(response, rows)
    assert len(answered) == COUNT
    assert {each.error_code for each in answered} == {code}
    names = [
        getattr(each, "group_id", None)
        or getattr(each, "transactional_id", None)
        or getattr(each, "key", None)
        for each in answered
    ]
    assert names == NAMES
    assert turns >= COUNT // NAMES_AT_ONCE


def test_a_group_that_is_named_often_is_deleted_and_answered_once(harness: Harness) -> None:
    response, turns = ask_watched(harness, DeleteGroupsRequest(["g"] * COUNT), 2)
    assert [each.group_id for each in response.results] == ["g"]
    assert turns < COUNT // NAMES_AT_ONCE


def test_a_group_that_is_named_often_is_described_once_and_shown_as_often(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []

    def counted(state: GroupsState, group_id: str, *arguments: Any) -> Outcome:
        described.append(group_id)
        return describe_group(state, group_id, *arguments)

    monkeypatch.setattr(describe_groups, "describe_group", counted)
    response = harness.ask(DescribeGroupsRequest(["g", "h"] * COUNT), 6)
    assert [each.group_id for each in response.groups] == ["g", "h"] * COUNT
    assert described == ["g", "h"]


def test_many_transactions_of_brokers_are_answered_in_slices(harness: Harness) -> None:
    asked = [AddPartitionsToTxnTransaction(transactional_id=each) for each in NAMES]
    response, turns = ask_watched(harness, AddPartitionsToTxnRequest(asked), 5)
    assert [each.transactional_id for each in response.results_by_transaction] == NAMES
    assert turns >= COUNT // NAMES_AT_ONCE


def test_many_markers_are_written_in_slices(harness: Harness) -> None:
    topic = WritableTxnMarkerTopic("nowhere", [0])
    asked = [WritableTxnMarker(producer_id=each, topics=[topic]) for each in range(COUNT)]
    response, turns = ask_watched(harness, WriteTxnMarkersRequest(asked), 2)
    assert len(response.markers) == COUNT
    assert turns >= COUNT // NAMES_AT_ONCE


def commit(harness: Harness, group_id: str, partition_count: int) -> None:
    partitions = [OffsetCommitRequestPartition(index, 5) for index in range(partition_count)]
    topic = OffsetCommitRequestTopic(name="orders", partitions=partitions)
    row = harness.ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), 9).topics[0]
    assert row.partitions[0].error_code == ErrorCode.NONE


def test_all_groups_are_listed_whatever_slices_they_are_in(harness: Harness) -> None:
    harness.create_topic("orders")
    for number in range(20):
        commit(harness, f"group {number}", 1)
    response, _ = ask_watched(harness, ListGroupsRequest(), 5)
    assert {each.group_id for each in response.groups} == {f"group {n}" for n in range(20)}
    response, _ = ask_watched(harness, ListGroupsRequest(states_filter=["Stable"]), 5)
    assert response.groups == []
    assert ask_watched(harness, ListTransactionsRequest(), 2)[0].transaction_states == []


def test_a_group_with_many_offsets_is_deleted_in_slices_and_answered_once_it_is_gone(
    harness: Harness,
) -> None:
    count = 2 * TOMBSTONES_AT_ONCE + 1
    harness.create_topic("orders", count)
    commit(harness, "g", count)
    response, _ = ask_watched(harness, DeleteGroupsRequest(["g"]), 2)
    assert response.results[0].error_code == ErrorCode.NONE
    assert not [
        each for shard in harness.broker.groups for each in shard.machine.state.offsets.groups()
    ]


def test_a_commit_of_very_many_offsets_is_committed_in_slices_and_answered_as_one(
    harness: Harness,
) -> None:
    count = 2 * OFFSETS_AT_ONCE + 1
    harness.create_topic("orders", count)
    partitions = [OffsetCommitRequestPartition(index, index) for index in range(count + 1)]
    partitions[7].committed_metadata = "x" * 5000
    topic = OffsetCommitRequestTopic(name="orders", partitions=partitions)
    response, turns = ask_watched(harness, OffsetCommitRequest(group_id="g", topics=[topic]), 9)
    codes = {each.partition_index: each.error_code for each in response.topics[0].partitions}
    assert codes[7] == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes[count] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {code for index, code in codes.items() if index not in {7, count}} == {ErrorCode.NONE}
    assert turns >= count // OFFSETS_AT_ONCE
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    (row,) = harness.ask(asked, 9).groups
    fetched = {each.partition_index: each.committed_offset for each in row.topics[0].partitions}
    assert fetched == {index: index for index in range(count) if index != 7}


MANY = 3 * SLICE_UNITS


@pytest.mark.parametrize("version", [7, 9, 10])
@pytest.mark.parametrize("names_all", [False, True])
def test_very_many_offsets_are_fetched_in_slices_and_in_order(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, version: int, names_all: bool
) -> None:
    monkeypatch.setattr(offset_fetch, "finish", finish_measured)
    topic_id = harness.create_topic("orders", 600)
    commit(harness, "g", 600)
    indexes = [*range(MANY)][::-1]
    if version == 7:
        topics = [OffsetFetchRequestTopic("orders", indexes), OffsetFetchRequestTopic("no", [0])]
        asked = OffsetFetchRequest("g", None if names_all else topics)
        found = harness.ask(asked, version).topics
    else:
        rows = [
            OffsetFetchRequestTopics("orders", topic_id, indexes),
            OffsetFetchRequestTopics("no", b"n" * 16, [0]),
        ]
        group = OffsetFetchRequestGroup("g", topics=None if names_all else rows)
        (answered,) = harness.ask(OffsetFetchRequest(groups=[group]), version).groups
        found = answered.topics
    fetched = [(each.partition_index, each.committed_offset) for each in found[0].partitions]
    if names_all:
        assert len(found) == 1
        assert fetched == [(index, 5) for index in range(600)]
        return
    assert fetched == [(index, 5 if index < 600 else -1) for index in indexes]
    (unknown,) = found[1].partitions
    code = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else ErrorCode.NONE
    assert (unknown.committed_offset, unknown.error_code) == (-1, code)


def test_very_many_partitions_that_do_not_exist_are_answered_in_slices(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_offsets, "finish", finish_measured)
    harness.create_topic("orders", 1)
    partitions = [OffsetCommitRequestPartition(index, 5) for index in range(MANY)]
    topic = OffsetCommitRequestTopic(name="orders", partitions=partitions)
    (row,) = harness.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 9).topics
    codes = {each.partition_index: each.error_code for each in row.partitions}
    assert codes.pop(0) == ErrorCode.NONE
    assert len(codes) == MANY - 1
    assert set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_very_many_members_leave_in_slices_and_are_answered_in_order(harness: Harness) -> None:
    names = [MemberIdentity(member_id=each) for each in NAMES * 2]
    response, turns = ask_watched(harness, LeaveGroupRequest(group_id="g", members=names), 5)
    assert [each.member_id for each in response.members] == NAMES * 2
    assert {each.error_code for each in response.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert turns >= len(names) // MEMBERS_AT_ONCE


def test_very_many_offsets_are_deleted_in_slices(harness: Harness) -> None:
    count = 2 * OFFSETS_AT_ONCE + 1
    harness.create_topic("orders", count)
    commit(harness, "g", count)
    partitions = [OffsetDeleteRequestPartition(index) for index in range(count)]
    topic = OffsetDeleteRequestTopic("orders", partitions)
    response, _ = ask_watched(harness, OffsetDeleteRequest("g", [topic]), 0)
    assert response.error_code == ErrorCode.NONE
    assert {each.error_code for each in response.topics[0].partitions} == {ErrorCode.NONE}
    assert not [
        each for shard in harness.broker.groups for each in shard.machine.state.offsets.groups()
    ]


def test_a_group_whose_deletion_failed_on_its_way_takes_commits_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("orders", 2 * TOMBSTONES_AT_ONCE)
    commit(harness, "g", 2 * TOMBSTONES_AT_ONCE)
    calls: list[str] = []

    def fail_later(state: GroupsState, group_id: str, *arguments: Any) -> Outcome:
        calls.append(group_id)
        if len(calls) > 1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it does not fit")
        return delete_group(state, group_id, *arguments)

    monkeypatch.setattr(delete_groups, "delete_group", fail_later)
    response, _ = ask_watched(harness, DeleteGroupsRequest(["g"]), 2)
    assert [each.error_code for each in response.results] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert calls == ["g", "g"]
    commit(harness, "g", 1)
