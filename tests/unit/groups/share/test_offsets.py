"""What tools do with the offsets of share groups, and with the groups."""

from typing import Any

import pytest

from headrace.coordinator.machine import Outcome, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import GroupFilter, delete_group, delete_offsets, list_groups
from headrace.groups.kinds import Committer
from headrace.groups.offsets.commits import Commit, commit_offsets
from headrace.groups.share.offsets import (
    begin_alteration,
    begin_deletion,
    begin_group_deletion,
    known_offsets,
    note_deleted,
)
from headrace.groups.state import GroupsState
from tests.unit.groups.share.share_world import ShareWorld, share_words


@pytest.fixture
def world() -> ShareWorld:
    world = ShareWorld()
    world.add_topic("t", 2)
    world.add_topic("u", 1)
    return world


@pytest.fixture
def left(world: ShareWorld) -> ShareWorld:
    """Have group `g`, which read t and u, and which nobody is in any more."""
    world.share_beat("m", 0, ["t", "u"])
    world.settle()
    world.share_beat("m", -1)
    return world


def ignore(_: object) -> None:
    """Nobody waits."""


def known(world: ShareWorld, group_id: str = "g") -> dict[str, list[int]]:
    found = world.do(known_offsets(world.machine.state, group_id, ignore))
    return {topic.name: list(topic.partitions) for topic in found}


def code_of(operation: Any, state: GroupsState, *args: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        operation(state, *args, ignore)
    return refused.value.code


# Looking


def test_offsets_are_known_of_partitions_whose_states_began(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    assert known(world) == {}
    world.settle()
    assert known(world) == {"t": [0, 1]}


def test_nothing_is_known_of_what_is_no_share_group(world: ShareWorld) -> None:
    world.join("m", "t", group_id="consumers")
    assert known(world, "consumers") == known(world, "none") == {}


# Setting


def test_offsets_are_set_in_the_epoch_of_the_group(left: ShareWorld) -> None:
    begun = left.do(begin_alteration(left.machine.state, "g", {"t": {1: 7}}, ignore))
    ((key, state_epoch, start_offset),) = begun
    assert (key.partition, state_epoch, start_offset) == (1, left.share_group().epoch, 7)
    assert left.states("initializing") == {"t": [1]}
    assert left.states("initialized") == {"t": [0, 1], "u": [0]}
    left.beginnings = begun
    left.begin_states()
    assert left.states("initializing") == {}


def test_offsets_of_what_does_not_exist_are_passed_over(left: ShareWorld) -> None:
    offsets = {"none": {0: 1}, "t": {2: 1, -1: 1}}
    before = len(left.log)
    assert left.do(begin_alteration(left.machine.state, "g", offsets, ignore)) == []
    assert len(left.log) == before


def test_offsets_of_a_group_that_is_none_begin_it(world: ShareWorld) -> None:
    world.do(begin_alteration(world.machine.state, "new", {"t": {0: 3}}, ignore))
    row = world.share_describe("new")
    assert (row.group_state, row.group_epoch, row.assignment_epoch) == ("Empty", 1, 1)
    world.restart()
    assert world.share_describe("new").group_epoch == 1


def test_offsets_of_a_group_with_members_are_not_touched(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    state = world.machine.state
    assert code_of(begin_alteration, state, "g", {"t": {0: 1}}) == ErrorCode.NON_EMPTY_GROUP
    assert code_of(begin_deletion, state, "g", ["t"]) == ErrorCode.NON_EMPTY_GROUP
    assert code_of(begin_group_deletion, state, "g") == ErrorCode.NON_EMPTY_GROUP


def test_groups_of_other_kinds_are_not_found(world: ShareWorld) -> None:
    world.join("m", "t", group_id="consumers")
    state = world.machine.state
    assert code_of(begin_alteration, state, "consumers", {}) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(begin_deletion, state, "consumers", []) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(begin_deletion, state, "none", []) == ErrorCode.GROUP_ID_NOT_FOUND


# Deleting


def test_deleted_offsets_are_on_their_way_until_their_states_are_gone(left: ShareWorld) -> None:
    found = left.do(begin_deletion(left.machine.state, "g", ["t", "none"], ignore))
    assert [(topic.name, topic.partitions) for topic in found] == [("t", (0, 1))]
    assert list(left.share_group().states.deleting.values()) == ["t"]
    assert known(left) == {"u": [0]}
    left.do(note_deleted(left.machine.state, "g", [left.topic_id("t")], ignore))
    assert left.share_group().states.deleting == {}
    assert known(left) == {"u": [0]}


def test_deletion_that_failed_half_way_is_done_again(left: ShareWorld) -> None:
    left.do(begin_deletion(left.machine.state, "g", ["t"], ignore))
    before = len(left.log)
    (topic,) = left.do(begin_deletion(left.machine.state, "g", ["t"], ignore))
    assert topic.partitions == (0, 1)
    assert len(left.log) == before


def test_topic_that_is_wanted_again_while_it_is_deleted_begins_anew(left: ShareWorld) -> None:
    left.do(begin_deletion(left.machine.state, "g", ["u"], ignore))
    left.share_beat("m", 0, ["u"])
    assert left.share_group().states.deleting == {}
    left.do(note_deleted(left.machine.state, "g", [left.topic_id("u")], ignore))
    left.settle()
    assert left.share_held("m") == {"u": [0]}


def test_nothing_is_noted_for_a_group_that_went_meanwhile(world: ShareWorld) -> None:
    outcome = note_deleted(world.machine.state, "gone", [world.topic_id("t")], ignore)
    assert outcome == Outcome(replies=(told(ignore, None),))


def test_a_group_is_deleted_after_its_states(left: ShareWorld) -> None:
    before = len(left.log)
    found = left.do(begin_group_deletion(left.machine.state, "g", ignore))
    assert {topic.name: topic.partitions for topic in found} == {"t": (0, 1), "u": (0,)}
    left.do(delete_group(left.machine.state, "g", ignore))
    assert share_words(left.log[before:]) == [
        "+StatePartitionMetadata",
        "-TargetAssignmentMetadata",
        "-StatePartitionMetadata",
        "-Metadata",
    ]
    left.restart()
    assert left.machine.state.groups == {}


def test_groups_of_other_kinds_have_no_states_to_delete(world: ShareWorld) -> None:
    world.join("m", "t", group_id="consumers")
    assert world.do(begin_group_deletion(world.machine.state, "consumers", ignore)) == []
    assert world.do(begin_group_deletion(world.machine.state, "none", ignore)) == []


# Groups of all kinds


def test_share_groups_are_listed(left: ShareWorld) -> None:
    left.share_beat("m", 0, ["t"], group_id="h")
    rows = left.do(list_groups(left.machine.state, GroupFilter(), ignore))
    assert [tuple(row) for row in rows] == [
        ("g", "share", "Empty", "share"),
        ("h", "share", "Stable", "share"),
    ]
    wanted = GroupFilter(frozenset({"stable"}), frozenset({"share"}))
    (row,) = left.do(list_groups(left.machine.state, wanted, ignore))
    assert row.group_id == "h"


def test_share_groups_commit_no_offsets(left: ShareWorld) -> None:
    with pytest.raises(KafkaError) as refused:
        commit_offsets(left.machine.state, Commit("g", [], Committer()), left.now_ms, ignore)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(delete_offsets, left.machine.state, "g", []) == ErrorCode.GROUP_ID_NOT_FOUND
