"""Share groups: joining, staying, leaving, being fenced. As seen of Kafka 4.3.1."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.offsets.store import CommittedOffset
from headrace.groups.state import GroupId
from tests.unit.groups.share.share_world import ShareWorld, share_words

SESSION_MS = 45_000


@pytest.fixture
def world() -> ShareWorld:
    world = ShareWorld()
    world.add_topic("t", 4)
    world.add_topic("u", 2)
    return world


# Joining


def test_the_first_member_gets_partitions_when_their_states_have_begun(world: ShareWorld) -> None:
    answer = world.share_beat("m", 0, ["t"])
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert world.share_assigned(answer) == {}
    assert share_words(world.log) == [
        "+MemberMetadata",
        "+Metadata",
        "+TargetAssignmentMember",
        "+TargetAssignmentMetadata",
        "+CurrentMemberAssignment",
        "+StatePartitionMetadata",
    ]
    world.begin_states()
    world.pass_time(1000)
    answer = world.share_beat("m", 2)
    assert (answer.member_epoch, world.share_assigned(answer)) == (3, {"t": [0, 1, 2, 3]})


def test_a_heartbeat_that_changes_nothing_writes_and_tells_nothing(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    before = len(world.log)
    answer = world.share_beat("m", 3)
    assert (answer.member_epoch, answer.assignment, len(world.log)) == (3, None, before)


def test_a_member_that_says_what_it_wants_is_told_what_it_has(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    before = len(world.log)
    assert world.share_assigned(world.share_beat("m", 3, ["t"])) == {"t": [0, 1, 2, 3]}
    assert len(world.log) == before


def test_members_outnumbering_partitions_share_them(world: ShareWorld) -> None:
    for number in range(5):
        world.share_beat(f"m{number}", 0, ["u"])
    world.settle()
    held = [world.share_held(f"m{number}")["u"] for number in range(5)]
    assert sorted(map(len, held)) == [1, 1, 1, 1, 2]
    assert all(sum(index in each for each in held) == 3 for index in range(2))


def test_a_member_goes_straight_to_the_target_while_others_still_have_its_partitions(
    world: ShareWorld,
) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    world.pass_time(1000)
    answer = world.share_beat("n", 0, ["t"])
    given = world.share_assigned(answer)
    assert answer.member_epoch == 4
    assert given is not None
    assert len(given["t"]) == 2
    assert world.share_held("m") == {"t": [0, 1, 2, 3]}
    world.share_beat("m", 3)
    assert sorted(world.share_held("m")["t"] + given["t"]) == [0, 1, 2, 3]


def test_known_member_that_joins_again_is_taken_back_as_it_was(world: ShareWorld) -> None:
    # Crabka 0.3.6 refuses it until its session ends.
    world.share_beat("m", 0, ["t"])
    world.settle()
    before = len(world.log)
    answer = world.share_beat("m", 0, ["t"])
    assert (answer.member_epoch, len(world.log)) == (3, before)
    assert world.share_assigned(answer) == {"t": [0, 1, 2, 3]}


def test_a_topic_named_twice_is_wanted_once(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t", "t"])
    assert world.share_describe().members[0].subscribed_topic_names == ["t"]


# What it wants


def test_another_subscription_is_another_epoch(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    world.pass_time(1000)
    answer = world.share_beat("m", 3, ["t", "u"])
    assert (answer.member_epoch, world.share_assigned(answer)) == (4, {"t": [0, 1, 2, 3]})
    world.settle()
    assert world.share_held("m") == {"t": [0, 1, 2, 3], "u": [0, 1]}


def test_an_unsubscribed_topic_goes_at_once_though_no_target_is_due(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t", "u"])
    world.settle()
    world.share_beat("n", 0, ["t"])
    epoch = world.share_group().members["m"].epoch  # type: ignore[index]
    answer = world.share_beat("m", epoch, ["u"])
    assert world.share_assigned(answer) is not None
    assert "t" not in world.share_held("m")


def test_a_new_rack_is_written_and_no_new_epoch(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    before = len(world.log)
    assert world.share_beat("m", 3, rack="r").member_epoch == 3
    assert share_words(world.log[before:]) == ["+MemberMetadata"]
    assert world.share_describe().members[0].rack_id == "r"


def test_assignments_are_computed_once_an_interval(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    world.pass_time(1000)
    assert world.share_beat("n", 0, ["t"]).member_epoch == 4
    answer = world.share_beat("o", 0, ["t"])
    assert (answer.member_epoch, world.share_assigned(answer)) == (4, {})
    row = world.share_describe()
    assert (row.group_epoch, row.assignment_epoch) == (5, 4)
    world.pass_time(1000)
    answer = world.share_beat("o", 4)
    assert (answer.member_epoch, len((world.share_assigned(answer) or {})["t"])) == (5, 1)


def test_the_interval_is_the_groups_own(world: ShareWorld) -> None:
    world.configure("g", share_assignment_interval_ms="0")
    world.share_beat("m", 0, ["t"])
    world.settle()
    assert world.share_beat("n", 0, ["t"]).member_epoch == 4
    assert world.share_beat("o", 0, ["t"]).member_epoch == 5


# Topics


def test_new_partitions_and_topics_are_noticed_by_heartbeats(world: ShareWorld) -> None:
    # Crabka 0.3.6 looks at topics only when members change.
    world.share_beat("m", 0, ["t", "later"])
    world.settle()
    world.grow_topic("t", 1)
    world.settle()
    assert world.share_held("m") == {"t": [0, 1, 2, 3, 4]}
    world.add_topic("later", 1)
    world.settle()
    assert world.share_held("m") == {"later": [0], "t": [0, 1, 2, 3, 4]}
    world.remove_topic("t")
    world.settle()
    assert world.share_held("m") == {"later": [0]}


def test_a_change_of_foreign_topics_is_none(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    before = len(world.log)
    world.grow_topic("u", 1)
    assert world.share_beat("m", 3).member_epoch == 3
    assert len(world.log) == before


# Leaving


def test_a_member_that_leaves_is_gone_and_the_others_take_over(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.share_beat("n", 0, ["t"])
    world.settle()
    before = len(world.log)
    answer = world.share_beat("n", -1)
    assert (answer.member_id, answer.member_epoch) == ("n", -1)
    assert answer.heartbeat_interval_ms == 0
    assert share_words(world.log[before:]) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "+Metadata",
    ]
    world.settle()
    assert world.share_held("m") == {"t": [0, 1, 2, 3]}


def test_an_emptied_group_keeps_its_states(world: ShareWorld) -> None:
    # Crabka 0.3.6 deletes them with the last member.
    world.share_beat("m", 0, ["t"])
    world.settle()
    world.share_beat("m", -1)
    row = world.share_describe()
    assert (row.group_state, row.group_epoch, row.members) == ("Empty", 4, [])
    assert world.states("initialized") == {"t": [0, 1, 2, 3]}
    answer = world.share_beat("n", 0, ["t"])
    assert (answer.member_epoch, world.share_assigned(answer)) == (5, {"t": [0, 1, 2, 3]})
    assert world.beginnings == []


def test_a_silent_member_is_gone_after_its_session(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    world.pass_time(SESSION_MS - 1)
    assert world.share_describe().members
    world.pass_time(1)
    assert world.share_describe().members == []
    assert world.share_refusal("m", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    for _ in range(3):
        world.pass_time(SESSION_MS - 1)
        world.share_beat("m", 3)


def test_a_session_is_as_long_as_the_group_says_within_what_the_node_allows() -> None:
    world = ShareWorld(group_share_min_session_timeout_ms=45_000)
    world.add_topic("t", 1)
    world.configure("g", share_session_timeout_ms="50000", share_heartbeat_interval_ms="7000")
    assert world.share_beat("m", 0, ["t"]).heartbeat_interval_ms == 7000
    world.pass_time(49_999)
    assert world.share_describe().members
    world.pass_time(1)
    assert not world.share_describe().members


# Refusals


def test_epochs_ahead_and_too_far_behind_are_fenced(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.settle()
    world.pass_time(1000)
    world.share_beat("m", 3, ["u"])
    assert world.share_refusal("m", 5) == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.share_refusal("m", 2) == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.share_refusal("m", 2, ["u"]) == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.share_beat("m", 3).member_epoch == 4, "an answer was lost"


def test_strangers_are_unknown_members(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    assert world.share_refusal("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.share_refusal("x", -1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_who_joins_begins_a_group(world: ShareWorld) -> None:
    assert world.share_refusal("m", 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.share_refusal("m", -1) == ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError) as refused:
        world.share_describe()
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "fields"),
    [
        ("", 0, ["t"], {}),
        ("  ", 0, ["t"], {}),
        ("m", 0, ["t"], {"group_id": " "}),
        ("m", 0, ["t"], {"rack": ""}),
        ("m", 0, [], {}),
        ("m", 0, None, {}),
        ("m", -2, None, {}),
    ],
)
def test_heartbeats_that_no_group_could_take_are_invalid(
    world: ShareWorld,
    member_id: str,
    epoch: int,
    topics: list[str] | None,
    fields: dict[str, str],
) -> None:
    code = world.share_refusal(member_id, epoch, topics, **fields)
    assert code == ErrorCode.INVALID_REQUEST


def test_a_full_group_takes_nobody_but_its_own_members() -> None:
    # Crabka 0.3.6 has the setting and does not look at it.
    world = ShareWorld(group_share_max_size=2)
    world.add_topic("t", 1)
    world.share_beat("a", 0, ["t"])
    world.share_beat("b", 0, ["t"])
    assert world.share_refusal("c", 0, ["t"]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.share_beat("b", 0, ["t"])
    world.share_beat("a", -1)
    world.share_beat("c", 0, ["t"])


def test_the_name_of_another_kind_of_group_is_taken(world: ShareWorld) -> None:
    world.join("m", "t", group_id="consumers")
    state = world.machine.state
    state.groups[GroupId("classic")] = ClassicGroup(GroupId("classic"))
    state.offsets.put("offsets", ("t", 0), CommittedOffset(1))
    for name in ("consumers", "classic", "offsets"):
        assert world.share_refusal("m", 0, ["t"], group_id=name) == ErrorCode.GROUP_ID_NOT_FOUND
    world.share_beat("m", 0, ["t"])
    with pytest.raises(KafkaError) as refused:
        world.join("m", "t")
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


# Restarts


def test_a_loaded_group_is_the_same_and_its_members_have_new_sessions(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"], rack="r")
    world.share_beat("n", 0, ["t", "u"])
    world.settle()
    before = world.share_group()
    world.pass_time(SESSION_MS - 1)
    world.restart()
    after = world.share_group()
    assert (after.members, after.targets, after.states) == (
        before.members,
        before.targets,
        before.states,
    )
    world.pass_time(SESSION_MS - 1)
    written = len(world.log)
    epoch = before.epoch
    assert world.share_beat("m", epoch).member_epoch == epoch
    assert len(world.log) == written
