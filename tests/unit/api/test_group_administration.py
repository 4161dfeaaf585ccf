"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
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
from tests.unit.harness import Harness

pytestmark = pytest.mark.parametrize(
    "harness", [{"offsets.topic.num.partitions": "3"}], indirect=True
)
GROUPS = [f"group-{number}" for number in range(5)]
ALL_OPERATIONS = 3400
NOT_ASKED = -(2**31)


@pytest.fixture
def groups(harness: Harness) -> list[str]:
    """Have groups on several partitions that committed offsets for the topic `a`."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.run(_load(harness))
    harness.create_topic("a", 3)
    for name in GROUPS:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        topics = [OffsetCommitRequestTopic(name="a", partitions=partitions)]
        harness.ask(OffsetCommitRequest(group_id=name, topics=topics), 9)
    return GROUPS


async def _load(harness: Harness) -> None:
    for shard in harness.broker.groups:
        await shard.loaded()


def listed(harness: Harness, version: int = 5, **filters: Any) -> list[str]:
    answer = harness.ask(ListGroupsRequest(**filters), version)
    assert answer.error_code == ErrorCode.NONE
    return sorted(row.group_id for row in answer.groups)


@pytest.mark.parametrize("version", range(6))
def test_groups_of_all_partitions_are_listed(
    harness: Harness, groups: list[str], version: int
) -> None:
    assert listed(harness, version) == groups
    row = harness.ask(ListGroupsRequest(), version).groups[0]
    assert row.group_state == ("Empty" if version >= 4 else "")
    assert row.group_type == ("classic" if version >= 5 else "")


def test_the_case_of_filters_does_not_matter(harness: Harness, groups: list[str]) -> None:
    assert listed(harness, states_filter=["EMPTY"]) == groups
    assert listed(harness, states_filter=["empty"], types_filter=["Classic"]) == groups
    assert listed(harness, states_filter=["Stable", "nonsense"]) == []
    assert listed(harness, types_filter=["consumer"]) == []


def test_without_the_topic_of_groups_there_are_none(harness: Harness) -> None:
    assert listed(harness) == []
    (row,) = harness.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (result,) = harness.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(7))
def test_what_is_no_group_is_dead_and_since_version_6_not_found(
    harness: Harness, groups: list[str], version: int
) -> None:
    group, nothing = harness.ask(DescribeGroupsRequest(groups=[groups[0], "no"]), version).groups
    assert (group.group_state, group.error_code, group.members) == ("Empty", 0, [])
    assert (nothing.group_id, nothing.group_state) == ("no", "Dead")
    if version < 6:
        assert nothing.error_code == ErrorCode.NONE
    else:
        assert nothing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert nothing.error_message == "Group no not found."


def test_authorized_operations_are_told_who_asks(harness: Harness, groups: list[str]) -> None:
    for wanted, operations in ((True, ALL_OPERATIONS), (False, NOT_ASKED)):
        request = DescribeGroupsRequest(groups=[groups[0]], include_authorized_operations=wanted)
        (row,) = harness.ask(request, 5).groups
        assert row.authorized_operations == operations


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_each_for_itself_and_once(
    harness: Harness, groups: list[str], version: int
) -> None:
    names = [groups[0], "nope", groups[1], groups[0]]
    results = harness.ask(DeleteGroupsRequest(groups_names=names), version).results
    assert [(row.group_id, row.error_code) for row in results] == [
        (groups[0], 0),
        ("nope", ErrorCode.GROUP_ID_NOT_FOUND),
        (groups[1], 0),
    ]
    assert listed(harness) == groups[2:]


def test_deleted_groups_are_gone_after_a_restart(harness: Harness, groups: list[str]) -> None:
    harness.ask(DeleteGroupsRequest(groups_names=groups[:2]), 2)
    harness.restart()
    harness.run(_load(harness))
    assert listed(harness) == groups[2:]


def delete_offsets(harness: Harness, group_id: str, *topics: tuple[str, list[int]]) -> Any:
    return harness.ask(
        OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[OffsetDeleteRequestPartition(partition_index=x) for x in indexes],
                )
                for name, indexes in topics
            ],
        ),
        0,
    )


def test_offsets_are_deleted_where_there_is_a_partition(
    harness: Harness, groups: list[str]
) -> None:
    answer = delete_offsets(harness, groups[0], ("a", [0, 9, 1]), ("nope", [0]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == ErrorCode.NONE
    assert [
        (row.name, [(each.partition_index, each.error_code) for each in row.partitions])
        for row in answer.topics
    ] == [("a", [(9, unknown), (0, 0), (1, 0)]), ("nope", [(0, unknown)])]
    assert groups[0] not in listed(harness)


@pytest.mark.parametrize(
    ("group_id", "code"),
    [("", ErrorCode.INVALID_GROUP_ID), ("nope", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_offsets_of_no_group_are_refused_as_a_whole(
    harness: Harness, groups: list[str], group_id: str, code: ErrorCode
) -> None:
    answer = delete_offsets(harness, group_id, ("a", [0]))
    assert (answer.error_code, answer.topics) == (code, [])
