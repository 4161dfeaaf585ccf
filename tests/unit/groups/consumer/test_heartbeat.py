"""Consumer groups: joining, leaving, assignment, revocation, fencing. As seen of Kafka 4.3.1."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.groups.consumer.members import MemberState
from headrace.groups.offsets.store import CommittedOffset
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from tests.unit.groups.consumer.consumer_world import INTERVAL_MS, World, words

SESSION_MS = 45_000


@pytest.fixture
def world() -> World:
    world = World()
    world.add_topic("t", 4)
    world.add_topic("u", 2)
    return world


def settled(world: World, **members: dict[str, list[int]]) -> None:
    """Have everybody report what it reads until nothing changes any more."""
    owned = dict(members)
    for _ in range(10):
        world.pass_time(INTERVAL_MS)
        before = len(world.log)
        for member_id, reads in owned.items():
            epoch = world.group().members[member_id].epoch  # type: ignore[index]
            answer = world.beat(member_id, epoch, reads)
            owned[member_id] = world.assigned(answer) or world.held(member_id)
        if len(world.log) == before:
            return
    raise AssertionError("it does not settle")


def two_members(world: World) -> None:
    """Have m with t-0 and t-1, n with t-2 and t-3, both stable in epoch 3."""
    world.join("m", "t")
    world.join("n", "t")
    settled(world, m={"t": [0, 1, 2, 3]}, n={})


# Joining


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    answer = world.join("m", "t", "u")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert world.assigned(answer) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    assert words(world.log) == [
        "+MemberMetadata",
        "+Metadata",
        "+TargetAssignmentMember",
        "+TargetAssignmentMetadata",
        "+CurrentMemberAssignment",
    ]
    assert world.describe().group_state == "Stable"


def test_a_member_of_the_first_version_may_leave_its_id_to_the_coordinator(world: World) -> None:
    assert world.join("", "t", version=0).member_id == "new-1"


def test_a_heartbeat_that_changes_nothing_writes_and_tells_nothing(world: World) -> None:
    world.join("m", "t")
    before = len(world.log)
    answer = world.beat("m", 2)
    assert (answer.member_epoch, answer.assignment, len(world.log)) == (2, None, before)


def test_a_member_that_says_everything_is_told_everything(world: World) -> None:
    world.join("m", "t")
    everything: dict[str, Any] = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 60_000}
    assert world.assigned(world.beat("m", 2, {"t": [0]}, **everything)) == {"t": [0, 1, 2, 3]}
    assert world.beat("m", 2, **everything).assignment is None


def test_a_member_that_comes_soon_after_another_waits_for_the_next_assignment(
    world: World,
) -> None:
    world.join("m", "t")
    answer = world.join("n", "t")
    assert (answer.member_epoch, world.assigned(answer)) == (2, {})
    assert world.describe().group_state == "Assigning"
    world.pass_time(INTERVAL_MS)
    assert world.beat("n", 2).member_epoch == 3
    assert world.describe().group_state == "Reconciling"


def test_a_group_may_have_an_assignment_interval_of_its_own(world: World) -> None:
    world.configure("g", consumer_assignment_interval_ms="0")
    world.join("m", "t")
    assert world.join("n", "t").member_epoch == 3


def test_a_group_may_have_a_heartbeat_interval_within_the_bounds_of_the_node(
    world: World,
) -> None:
    world.configure("g", consumer_heartbeat_interval_ms="7000")
    assert world.join("m", "t").heartbeat_interval_ms == 7000
    world.configure("g", consumer_heartbeat_interval_ms="1")
    assert world.beat("m", 2).heartbeat_interval_ms == 5000


def test_a_group_takes_as_many_members_as_it_may_have() -> None:
    world = World(group_consumer_max_size=1)
    world.add_topic("t", 4)
    world.join("m", "t")
    assert world.join("m", "t").member_epoch == 2
    refused = world.refusal("n", 0, {}, subscribed_topic_names=["t"], rebalance_timeout_ms=1)
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_of_offsets_alone_becomes_a_consumer_group(world: World) -> None:
    world.machine.state.offsets.put("g", ("t", 0), CommittedOffset(1))
    world.join("m", "t")
    assert world.log[0].key == GroupMetadataKey(group="g")
    assert world.log[0].value is None
    assert world.group().members


# Revocation


def test_a_partition_is_given_up_before_another_gets_it(world: World) -> None:
    world.join("m", "t")
    world.join("n", "t")
    world.pass_time(INTERVAL_MS)
    told = world.beat("m", 2, {"t": [0, 1, 2, 3]})
    assert (told.member_epoch, world.assigned(told)) == (2, {"t": [0, 1]})
    assert world.group().members["m"].state is MemberState.UNREVOKED_PARTITIONS  # type: ignore[index]
    waiting = world.beat("n", 2)
    assert (waiting.member_epoch, world.held("n")) == (3, {})

    still = world.beat("m", 2)
    assert (still.member_epoch, still.assignment) == (2, None)
    assert world.beat("n", 3).assignment is None

    done = world.beat("m", 2, {"t": [0, 1]})
    assert (done.member_epoch, done.assignment) == (3, None)
    got = world.beat("n", 3)
    assert (got.member_epoch, world.assigned(got)) == (3, {"t": [2, 3]})
    assert world.describe().group_state == "Stable"


def test_who_still_may_read_a_partition_is_shown_with_it(world: World) -> None:
    world.join("m", "t")
    world.join("n", "t")
    world.pass_time(INTERVAL_MS)
    world.beat("m", 2)
    shown = {member.member_id: member for member in world.describe().members}
    assert [each.partitions for each in shown["m"].assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert [each.partitions for each in shown["m"].target_assignment.topic_partitions] == [[0, 1]]
    assert shown["n"].assignment.topic_partitions == []


def test_a_member_that_does_not_give_up_in_time_is_removed(world: World) -> None:
    world.join("m", "t", rebalance_timeout_ms=5000)
    world.join("n", "t")
    world.pass_time(INTERVAL_MS)
    world.beat("m", 2)
    world.pass_time(4999)
    world.beat("m", 2)
    world.pass_time(1)
    assert world.refusal_code("m", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.assigned(world.beat("n", 2)) == {"t": [0, 1, 2, 3]}


def test_a_member_that_gives_up_in_time_stays(world: World) -> None:
    world.join("m", "t", rebalance_timeout_ms=5000)
    world.join("n", "t")
    world.pass_time(INTERVAL_MS)
    world.beat("m", 2)
    world.beat("m", 2, {"t": [0, 1]})
    world.pass_time(10_000)
    assert world.beat("m", 3).error_code == 0


def test_what_a_member_unsubscribes_from_is_revoked_before_the_next_assignment(
    world: World,
) -> None:
    world.join("m", "t", "u")
    answer = world.beat("m", 2, subscribed_topic_names=["t"])
    assert (answer.member_epoch, world.assigned(answer)) == (2, {"t": [0, 1, 2, 3]})
    assert world.group().members["m"].revoking  # type: ignore[index]
    done = world.beat("m", 2, {"t": [0, 1, 2, 3]})
    assert (done.member_epoch, done.assignment) == (2, None)
    assert not world.group().members["m"].revoking  # type: ignore[index]
    world.pass_time(INTERVAL_MS)
    assert world.beat("m", 2, {"t": [0, 1, 2, 3]}).member_epoch == 3


# Fencing


def test_only_the_epoch_of_a_member_is_accepted(world: World) -> None:
    two_members(world)
    assert world.refusal_code("m", 4) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.refusal_code("m", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.refusal_code("x", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.refusal_code("m", 3, group_id="other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.refusal_code("m", -1, group_id="other") is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_whose_answer_was_lost_may_repeat_its_heartbeat(world: World) -> None:
    two_members(world)
    assert world.beat("m", 2, {"t": [0, 1]}).member_epoch == 3
    assert world.refusal_code("m", 2, {"t": [0, 1, 2]}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_is_silent_for_a_session_is_removed(world: World) -> None:
    two_members(world)
    world.pass_time(SESSION_MS - 1)
    world.beat("n", 3)
    world.pass_time(1)
    assert world.refusal_code("m", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.assigned(world.beat("n", 3)) == {"t": [0, 1, 2, 3]}


def test_a_group_may_have_a_session_of_its_own(world: World) -> None:
    world.configure("g", consumer_session_timeout_ms="50000")
    world.join("m", "t")
    world.pass_time(49_999)
    assert world.beat("m", 2).error_code == 0


# Leaving


def test_what_a_member_leaves_goes_to_the_others(world: World) -> None:
    two_members(world)
    before = len(world.log)
    answer = world.beat("m", -1)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", -1, 0)
    assert words(world.log[before:]) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "+Metadata",
    ]
    assert world.refusal_code("m", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    world.pass_time(INTERVAL_MS)
    assert world.assigned(world.beat("n", 3)) == {"t": [0, 1, 2, 3]}


def test_a_group_that_everybody_left_is_empty_and_goes_on_with_its_epochs(world: World) -> None:
    world.join("m", "t")
    world.beat("m", -1)
    assert world.describe().group_state == "Empty"
    assert (world.group().epoch, world.group().metadata_hash) == (3, 0)
    world.pass_time(INTERVAL_MS)
    assert world.join("m", "t").member_epoch == 4


# Static members


def test_a_static_member_comes_back_to_what_it_had_and_disturbs_nobody(world: World) -> None:
    world.join("m", "t", instance_id="i")
    world.join("n", "t")
    settled(world, m={"t": [0, 1, 2, 3]}, n={})
    epoch = world.group().epoch
    assert world.beat("m", -2, instance_id="i").member_epoch == -2
    again = world.join("m2", "t", instance_id="i")
    assert (again.member_id, again.member_epoch, world.assigned(again)) == (
        "m2",
        epoch,
        {"t": [0, 1]},
    )
    assert world.group().epoch == epoch
    assert world.beat("n", epoch).assignment is None


def test_a_static_member_that_came_back_under_another_id_is_fenced_under_the_old_one(
    world: World,
) -> None:
    world.join("m", "t", instance_id="i")
    world.beat("m", -2, instance_id="i")
    world.join("m2", "t", instance_id="i")
    for epoch in (2, -1, -2):
        assert world.refusal_code("m", epoch, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_is_not_given_to_two(world: World) -> None:
    world.join("m", "t", instance_id="i")
    fields = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 1, "instance_id": "i"}
    assert world.refusal_code("n", 0, {}, **fields) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.refusal_code("m", 2, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_within_its_session_is_removed(
    world: World,
) -> None:
    world.join("m", "t", instance_id="i")
    world.pass_time(1000)
    world.beat("m", -2, instance_id="i")
    assert world.refusal_code("m", 2, instance_id="i") is ErrorCode.FENCED_MEMBER_EPOCH
    world.pass_time(SESSION_MS - 1000)
    assert world.group().is_empty


def test_a_static_member_may_leave_for_good(world: World) -> None:
    world.join("m", "t", instance_id="i")
    world.beat("m", -1, instance_id="i")
    assert world.group().is_empty


# Topics


def test_partitions_that_a_topic_gets_are_assigned(world: World) -> None:
    world.join("m", "t")
    world.pass_time(INTERVAL_MS)
    world.grow_topic("t", 1)
    answer = world.beat("m", 2)
    assert (answer.member_epoch, world.assigned(answer)) == (3, {"t": [0, 1, 2, 3, 4]})


def test_a_topic_that_is_deleted_is_taken_away(world: World) -> None:
    world.join("m", "t", "u")
    world.pass_time(INTERVAL_MS)
    world.remove_topic("u")
    answer = world.beat("m", 2)
    assert (answer.member_epoch, world.assigned(answer)) == (2, {"t": [0, 1, 2, 3]})
    assert world.beat("m", 2, {"t": [0, 1, 2, 3]}).member_epoch == 3


def test_a_topic_that_comes_later_is_assigned(world: World) -> None:
    assert world.assigned(world.join("m", "later")) == {}
    world.pass_time(INTERVAL_MS)
    world.add_topic("later", 2)
    assert world.assigned(world.beat("m", 2)) == {"later": [0, 1]}


def test_another_rack_begins_another_epoch(world: World) -> None:
    world.join("m", "t")
    world.pass_time(INTERVAL_MS)
    world.set_rack("r")
    assert world.beat("m", 2).member_epoch == 3


def test_changes_of_topics_that_nobody_wants_are_not_noticed(world: World) -> None:
    world.join("m", "t")
    before = len(world.log)
    world.grow_topic("u", 1)
    assert (world.beat("m", 2).member_epoch, len(world.log)) == (2, before)


# Patterns


def test_a_pattern_stands_for_all_topics_that_it_matches_as_a_whole(world: World) -> None:
    world.add_topic("ut", 1)
    answer = world.join("m", subscribed_topic_regex="u.*")
    assert (answer.member_epoch, world.assigned(answer)) == (2, {"u": [0, 1], "ut": [0]})
    assert world.group().is_subscribed_to("ut")
    assert not world.group().is_subscribed_to("t")


def test_names_and_a_pattern_go_together(world: World) -> None:
    assert world.assigned(world.join("m", "t", subscribed_topic_regex="u")) == {
        "t": [0, 1, 2, 3],
        "u": [0, 1],
    }


def test_a_topic_that_comes_later_is_found_by_its_pattern(world: World) -> None:
    world.join("m", subscribed_topic_regex="u.*")
    world.add_topic("u2", 1)
    assert world.beat("m", 2).assignment is None
    world.pass_time(10_000)
    assert world.assigned(world.beat("m", 2)) == {"u": [0, 1], "u2": [0]}


def test_a_pattern_that_nobody_has_any_more_is_forgotten(world: World) -> None:
    world.join("m", subscribed_topic_regex="u.*")
    world.pass_time(INTERVAL_MS)
    answer = world.beat("m", 2, subscribed_topic_regex="", subscribed_topic_names=["t"])
    assert world.assigned(answer) == {}
    assert world.group().patterns == {}
    assert world.assigned(world.beat("m", 2, {})) == {"t": [0, 1, 2, 3]}
    world.beat("m", -1)
    assert "-RegularExpression" in words(world.log)


@pytest.mark.parametrize("pattern", ["(", r"\1", "(?<=x)y", "(?P<n", "a{1001}", "x" * 40_000])
def test_what_is_no_pattern_is_refused(world: World, pattern: str) -> None:
    fields = {"subscribed_topic_regex": pattern, "rebalance_timeout_ms": 1}
    assert world.refusal_code("m", 0, {}, **fields) is ErrorCode.INVALID_REGULAR_EXPRESSION


# Assignors


def test_the_assignor_that_most_members_want_is_used(world: World) -> None:
    world.add_topic("v", 2)
    world.configure("g", consumer_assignment_interval_ms="0")
    world.join("m", "u", "v", server_assignor="range")
    assert world.describe().assignor_name == "range"
    world.join("n", "u", "v", server_assignor="range")
    settled(world, m={"u": [0, 1], "v": [0, 1]}, n={})
    assert (world.held("m"), world.held("n")) == ({"u": [0], "v": [0]}, {"u": [1], "v": [1]})


def test_another_assignor_alone_begins_no_epoch(world: World) -> None:
    world.join("m", "t", server_assignor="range")
    world.pass_time(INTERVAL_MS)
    assert world.beat("m", 2, server_assignor="uniform").member_epoch == 2
    assert world.describe().assignor_name == "uniform"


# What is written


def test_a_restart_gives_the_same_group(world: World) -> None:
    two_members(world)
    world.join("s", "t", "u", instance_id="i")
    world.join("p", subscribed_topic_regex="u.*")
    world.pass_time(INTERVAL_MS)
    world.beat("m", 3)
    before = world.group()
    shown = world.describe()
    world.restart()
    after = world.group()
    assert world.describe() == shown
    assert (after.members, after.targets, after.owners) == (
        before.members,
        before.targets,
        before.owners,
    )
    assert (after.patterns, after.static_members) == (before.patterns, before.static_members)
    assert world.beat("m", 3, {"t": [0]}).error_code == 0


def test_members_that_are_loaded_have_a_session_from_then_on(world: World) -> None:
    two_members(world)
    world.restart()
    world.pass_time(SESSION_MS - 1)
    world.beat("m", 3)
    world.pass_time(1)
    assert list(world.group().members) == ["m"]


def test_a_revocation_that_is_loaded_has_its_deadline(world: World) -> None:
    world.join("m", "t", rebalance_timeout_ms=5000)
    world.join("n", "t")
    world.pass_time(INTERVAL_MS)
    world.beat("m", 2)
    world.restart()
    world.pass_time(5000)
    assert list(world.group().members) == ["n"]


# Who joins between two targets


def test_who_joins_between_two_targets_asks_again_when_the_next_is_due(world: World) -> None:
    world.join("m", "t")
    world.pass_time(300)
    answer = world.join("n", "t")
    assert (world.assigned(answer), answer.heartbeat_interval_ms) == ({}, INTERVAL_MS - 300)
    world.pass_time(INTERVAL_MS - 300)
    answer = world.beat("n", answer.member_epoch, {})
    assert answer.heartbeat_interval_ms == 5000
    assert world.group().assignment_epoch == world.group().epoch


def test_who_has_partitions_keeps_its_interval_while_a_target_is_due(world: World) -> None:
    answer = world.join("m", "t")
    world.join("n", "t")
    assert world.beat("m", answer.member_epoch).heartbeat_interval_ms == 5000


def test_members_keep_their_interval_as_in_kafka_if_told_so() -> None:
    world = World(headrace_group_first_assignment_wait_ms=0)
    world.add_topic("t", 4)
    world.join("m", "t")
    assert world.join("n", "t").heartbeat_interval_ms == 5000
