"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets and DeleteGroups."""

from typing import Any

import pytest

from headrace.api import describe_share_group_offsets
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, SharePartitionKey
from headrace.loop.slices import SLICE_UNITS
from headrace.records.builder import BatchBuilder
from headrace.server.gathering import NAMES_AT_ONCE
from headrace.share.durable import StateWrite
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from tests.growth.slices import finish_measured
from tests.unit.api.test_many_names import ask_watched
from tests.unit.api.test_share_groups import (
    SETTINGS,
    _call,
    _load,
    beat,
    group,
    settled,
    wait_until,
)
from tests.unit.harness import Harness

RECORDS = 10
pytestmark = pytest.mark.parametrize("harness", [SETTINGS], indirect=True)


@pytest.fixture
def node(harness: Harness) -> Any:
    """Have group `g`, which was in a topic `in` of three partitions; the first has ten records."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.run(_load(harness))
    harness.create_topic("in", 3)
    batch = BatchBuilder()
    for number in range(RECORDS):
        batch.append(1000, None, b"%d" % number)
    partition = harness.partition("in", 0)
    harness.run(
        _call(lambda: partition.append(memoryview(batch.build()), 1000, needs_replicas=False))
    )
    settled(harness)
    beat(harness, -1)
    return harness


def offsets(
    node: Harness, topics: list[tuple[str, list[int]]] | None = None, group_id: str = "g"
) -> Any:
    rows = None
    if topics is not None:
        rows = [DescribeShareGroupOffsetsRequestTopic(*topic) for topic in topics]
    row = DescribeShareGroupOffsetsRequestGroup(group_id, rows)
    return node.ask(DescribeShareGroupOffsetsRequest([row]), 1).groups[0]


def starts_and_lags(row: Any) -> dict[str, list[tuple[int, int, int]]]:
    return {
        topic.topic_name: [
            (each.partition_index, each.start_offset, each.lag) for each in topic.partitions
        ]
        for topic in row.topics
    }


def alter(node: Harness, *starts: tuple[int, int], topic: str = "in", group_id: str = "g") -> Any:
    rows = [AlterShareGroupOffsetsRequestPartition(*each) for each in starts]
    topics = [AlterShareGroupOffsetsRequestTopic(topic, rows)]
    return node.ask(AlterShareGroupOffsetsRequest(group_id, topics), 0)


def delete(node: Harness, *topics: str, group_id: str = "g") -> Any:
    rows = [DeleteShareGroupOffsetsRequestTopic(each) for each in topics]
    return node.ask(DeleteShareGroupOffsetsRequest(group_id, rows), 0)


def write(node: Harness, index: int, start_offset: int, complete_count: int) -> None:
    key = SharePartitionKey("g", node.topic("in").topic_id, PartitionIndex(index))
    state = StateWrite(-1, -1, start_offset, complete_count, ())
    answers: list[Any] = []
    node.run(_call(lambda: node.broker.persister.write_state(key, state, answers.append)))
    wait_until(node, lambda: answers)
    assert answers == [None]


# Describing


def test_offsets_that_nobody_has_resolved_are_unknown(node: Harness) -> None:
    assert starts_and_lags(offsets(node)) == {"in": [(0, -1, -1), (1, -1, -1), (2, -1, -1)]}


def test_lag_counts_what_is_left_to_be_done(node: Harness) -> None:
    write(node, 0, 4, 3)
    write(node, 1, 0, -1)
    found = starts_and_lags(offsets(node, [("in", [0, 1])]))
    assert found == {"in": [(0, 4, RECORDS - 4 - 3), (1, 0, -1)]}


def test_what_is_not_there_has_no_offset_and_no_error(node: Harness) -> None:
    row = offsets(node, [("none", [0]), ("in", [7])])
    assert starts_and_lags(row) == {"none": [(0, -1, -1)], "in": [(7, -1, -1)]}
    assert all(each.error_code == 0 for topic in row.topics for each in topic.partitions)
    assert starts_and_lags(offsets(node, [("in", [0])], "nobody")) == {"in": [(0, -1, -1)]}
    assert offsets(node, None, "nobody").topics == []
    assert offsets(node, None, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_state_that_cannot_be_read_is_its_partitions_error(node: Harness) -> None:
    node.broker.persister = Refusing(node.broker.persister, "read_summary")
    row = offsets(node, [("in", [0])])
    (partition,) = row.topics[0].partitions
    assert partition.error_code == ErrorCode.NOT_COORDINATOR
    assert (partition.start_offset, partition.lag) == (-1, -1)


# Altering


def test_altered_offsets_are_where_the_group_begins(node: Harness) -> None:
    answer = alter(node, (0, 6), (2, 0))
    assert answer.error_code == ErrorCode.NONE
    assert [each.error_code for each in answer.responses[0].partitions] == [0, 0]
    assert starts_and_lags(offsets(node)) == {"in": [(0, 6, 4), (1, -1, -1), (2, 0, 0)]}
    assert group(node).states.initializing == {}


def test_partitions_that_cannot_be_altered_are_named(node: Harness) -> None:
    codes = [
        each.error_code for each in alter(node, (7, 1), (0, -2), (1, 5)).responses[0].partitions
    ]
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert codes == [unknown, invalid, ErrorCode.NONE]
    (row,) = alter(node, (0, 1), topic="none").responses
    assert (row.topic_id, row.partitions[0].error_code) == (bytes(16), unknown)


def test_state_that_cannot_begin_is_its_partitions_error(node: Harness) -> None:
    node.broker.persister = Refusing(node.broker.persister, "initialize", index=1)
    codes = [each.error_code for each in alter(node, (0, 1), (1, 1)).responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
    assert starts_and_lags(offsets(node))["in"][:2] == [(0, 1, 9), (1, -1, -1)]


def test_group_that_is_none_begins_where_it_is_told_to(node: Harness) -> None:
    assert alter(node, (0, 3), group_id="new").error_code == ErrorCode.NONE
    assert starts_and_lags(offsets(node, None, "new")) == {"in": [(0, 3, 7)]}
    listed = node.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert {row.group_id: row.group_state for row in listed} == {"g": "Empty", "new": "Empty"}


def test_groups_with_members_or_without_a_name_are_refused(node: Harness) -> None:
    beat(node, 0, ["in"])
    assert alter(node, (0, 3)).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete(node, "in").error_code == ErrorCode.NON_EMPTY_GROUP
    assert alter(node, (0, 3), group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert delete(node, "in", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert delete(node, "in", group_id="none").error_code == ErrorCode.GROUP_ID_NOT_FOUND


# Deleting


def test_deleted_offsets_are_gone_and_begin_anew_with_the_next_member(node: Harness) -> None:
    alter(node, (0, 6))
    done, unknown = delete(node, "in", "none", "in").responses
    assert (done.topic_name, done.topic_id, done.error_code) == ("in", node.topic("in").topic_id, 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offsets(node).topics == []
    assert starts_and_lags(offsets(node, [("in", [0])])) == {"in": [(0, -1, -1)]}
    beat(node, 0, ["in"])
    wait_until(node, lambda: group(node).states.initialized)
    assert starts_and_lags(offsets(node))["in"][0] == (0, -1, -1)


def test_state_that_cannot_be_deleted_is_its_topics_error_and_may_be_tried_again(
    node: Harness,
) -> None:
    persister = node.broker.persister
    node.broker.persister = Refusing(persister, "delete", index=1)
    (row,) = delete(node, "in").responses
    assert row.error_code == ErrorCode.NOT_COORDINATOR
    node.broker.persister = persister
    (row,) = delete(node, "in").responses
    assert row.error_code == ErrorCode.NONE
    assert group(node).states.deleting == {}


def test_deleted_group_leaves_no_states_behind(node: Harness) -> None:
    alter(node, (0, 6))
    answer = node.ask(DeleteGroupsRequest(groups_names=["g", "none"]), 2)
    codes = {row.group_id: row.error_code for row in answer.results}
    assert codes == {"g": ErrorCode.NONE, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert node.ask(ListGroupsRequest(), 5).groups == []
    assert starts_and_lags(offsets(node, [("in", [0])])) == {"in": [(0, -1, -1)]}


def test_group_whose_states_cannot_be_deleted_stays(node: Harness) -> None:
    persister = node.broker.persister
    node.broker.persister = Refusing(persister, "delete")
    (row,) = node.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert row.error_code == ErrorCode.NOT_COORDINATOR
    node.broker.persister = persister
    (row,) = node.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert row.error_code == ErrorCode.NONE


def test_group_with_members_is_not_deleted_and_keeps_its_states(node: Harness) -> None:
    alter(node, (0, 6))
    beat(node, 0, ["in"])
    (row,) = node.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert row.error_code == ErrorCode.NON_EMPTY_GROUP
    assert starts_and_lags(offsets(node))["in"][0] == (0, 6, 4)


class Refusing:
    """A persister that refuses one kind of call, for one partition or for all."""

    def __init__(self, persister: Any, call: str, index: int | None = None) -> None:
        self._persister, self._call, self._index = persister, call, index

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._persister, name)

        def refuse(key: SharePartitionKey, *arguments: Any) -> None:
            if self._index in (None, key.partition):
                arguments[-1](KafkaError(ErrorCode.NOT_COORDINATOR, "not here"))
            else:
                ask(key, *arguments)

        return refuse if name == self._call else ask


# Very many partitions

MANY = 4 * NAMES_AT_ONCE


def test_very_many_offsets_are_set_and_deleted_in_slices(node: Harness) -> None:
    node.create_topic("wide", MANY)
    rows = [AlterShareGroupOffsetsRequestPartition(index, index) for index in range(MANY + 1)]
    asked = AlterShareGroupOffsetsRequest("h", [AlterShareGroupOffsetsRequestTopic("wide", rows)])
    response, turns = ask_watched(node, asked, 0)
    (topic,) = response.responses
    assert [each.partition_index for each in topic.partitions] == [*range(MANY + 1)]
    assert {each.error_code for each in topic.partitions[:MANY]} == {ErrorCode.NONE}
    assert topic.partitions[MANY].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert turns >= MANY // NAMES_AT_ONCE
    (described,) = offsets(node, group_id="h").topics
    assert [each.start_offset for each in described.partitions] == [*range(MANY)]

    removed = DeleteShareGroupOffsetsRequest("h", [DeleteShareGroupOffsetsRequestTopic("wide")])
    response, turns = ask_watched(node, removed, 0)
    assert response.responses[0].error_code == ErrorCode.NONE
    assert turns >= MANY // NAMES_AT_ONCE
    assert offsets(node, group_id="h").topics == []


def test_very_many_offsets_are_described_in_slices(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_share_group_offsets, "finish", finish_measured)
    count = 10 * SLICE_UNITS
    topics = [DescribeShareGroupOffsetsRequestTopic("in", [*range(count)])]
    row = DescribeShareGroupOffsetsRequestGroup("g", topics)
    response = node.ask(DescribeShareGroupOffsetsRequest([row]), 1)
    (topic,) = response.groups[0].topics
    assert [each.partition_index for each in topic.partitions] == [*range(count)]
