"""Groups that turn from one protocol to the other while in use. As seen of Kafka 4.3.1."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.leave import leave
from headrace.groups.consumer.members import MemberState
from headrace.groups.consumer.offsets import validate_offset_commit, validate_offset_fetch
from headrace.wire.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from tests.unit.groups.consumer.consumer_world import words
from tests.unit.groups.mixed_world import MixedWorld, assigned, read_assigned, subscribed

LEFT, LEFT_STATIC = -1, -2
UPGRADE_RECORDS = [
    "-GroupMetadata",
    *["+MemberMetadata"] * 2,
    "+Metadata",
    *["+TargetAssignmentMember"] * 2,
    "+TargetAssignmentMetadata",
    *["+CurrentMemberAssignment"] * 2,
    "+MemberMetadata",
    "+Metadata",
    *["+TargetAssignmentMember"] * 2,
    "+TargetAssignmentMetadata",
    "+CurrentMemberAssignment",
]


@pytest.fixture
def world() -> MixedWorld:
    return MixedWorld()


# To the consumer protocol


def test_a_heartbeat_turns_a_classic_group_into_a_consumer_group(world: MixedWorld) -> None:
    a, b = world.classic_group([0, 1, 2], [3])
    generation, written = world.group().generation, len(world.log)
    joined = world.beat("c", 0)
    assert joined.answer.member_epoch == generation + 1
    assert joined.answer.assignment.topic_partitions == []
    assert words(world.log[written:]) == UPGRADE_RECORDS
    assert (world.held(a), world.held(b)) == ([0, 1, 2], [3])
    member = world.consumers.members[a]  # type: ignore[index]
    assert (member.epoch, member.topic_names, member.client_id) == (generation, ("t",), "m0")
    assert member.is_classic
    assert not world.consumers.members["c"].is_classic  # type: ignore[index]


def test_an_eager_member_is_told_to_join_gives_up_everything_and_gets_its_part(
    world: MixedWorld,
) -> None:
    a, _ = world.classic_group([0, 1, 2], [3])
    generation = world.group().generation
    world.beat("c", 0)
    assert world.heartbeat(a, generation).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync(a, generation).code == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.rejoin(a)
    assert again.answer.generation_id == generation + 1
    assert (again.answer.leader, again.answer.members) == ("", [])
    assert again.answer.protocol_name == "range"
    share = world.synced(a, generation + 1)["t"]
    assert len(share) == 2
    assert world.heartbeat(a, generation + 1).code == ErrorCode.NONE
    got = world.beat("c", generation + 1).answer.assignment.topic_partitions[0].partitions
    assert set(got) | set(share) == {0, 1, 2}


def test_a_cooperative_member_keeps_its_generation_until_it_gave_up_what_it_has_to(
    world: MixedWorld,
) -> None:
    (a,) = world.classic_group([0, 1, 2, 3])
    world.beat("c", 0)
    first = world.rejoin(a, [0, 1, 2, 3])
    assert first.answer.generation_id == 1
    kept = world.synced(a, 1)["t"]
    assert len(kept) == 2
    assert world.held(a) == [0, 1, 2, 3]
    assert world.heartbeat(a, 1).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat("c", 2).answer.assignment is None
    second = world.rejoin(a, kept)
    assert second.answer.generation_id == 2
    assert world.synced(a, 2)["t"] == kept
    assert world.beat("c", 2).answer.assignment is not None


def test_a_classic_member_is_told_to_join_when_what_it_waits_for_is_free(
    world: MixedWorld,
) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3).answer.member_id
    assert world.synced(a, 3) == {}
    assert world.heartbeat(a, 3).code == ErrorCode.NONE
    kept = world.beat("c", 2).answer.assignment.topic_partitions[0].partitions
    assert world.heartbeat(a, 3).code == ErrorCode.NONE
    world.beat("c", 2, {"t": kept})
    assert world.heartbeat(a, 3).code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.rejoin(a).answer.generation_id == 3
    assert sorted([*world.synced(a, 3)["t"], *kept]) == [0, 1, 2, 3]
    assert world.heartbeat(a, 3).code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_assignment_has_the_version_that_the_member_speaks(
    world: MixedWorld, version: int
) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3, embedded=version).answer.member_id
    embedded = bytes(world.sync(a, 3).answer.assignment)
    assert int.from_bytes(embedded[:2], "big") == version
    assert read_assigned(embedded) == {}


def test_members_that_wait_in_a_rebalance_are_told_to_join_again(world: MixedWorld) -> None:
    a, _ = world.classic_group([0, 1], [2, 3])
    waiting = world.join("m0", a, protocols=(("range", subscribed("t")),))
    assert not waiting.is_answered
    world.beat("c", 0)
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(world.machine.waiting()) == []
    assert world.rejoin(a).code == ErrorCode.NONE


def test_a_member_that_waits_for_its_assignment_is_told_to_join_again(world: MixedWorld) -> None:
    ids = world.classic_group([0, 1], [2, 3])
    joins = [world.join("m", each, protocols=(("range", subscribed("t")),)) for each in ids]
    follower = next(each for each in ids if each != joins[0].answer.leader)
    waiting = world.sync(follower, joins[0].answer.generation_id)
    world.beat("c", 0)
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_in_its_first_rebalance_is_turned_too(world: MixedWorld) -> None:
    slow = MixedWorld(group_initial_rebalance_delay_ms=3000)
    waiting = slow.enter("m", protocols=(("range", subscribed("t")),))
    assert not waiting.is_answered
    assert slow.beat("c", 0).answer.member_epoch == 2
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    (a,) = (each for each in slow.consumers.members if each != "c")
    assert slow.rejoin(a).answer.generation_id == 2


def test_an_id_that_was_given_out_before_is_honoured(world: MixedWorld) -> None:
    given = world.join("m").answer.member_id
    world.beat("c", 0)
    assert world.rejoin(given).answer.member_id == given


def test_a_refused_heartbeat_leaves_the_classic_group_as_it_was(world: MixedWorld) -> None:
    a, _ = world.classic_group([0, 1], [2, 3])
    waiting = world.join("m0", a, protocols=(("range", subscribed("t")),))
    before = len(world.log)
    assert world.beat("c", 0, subscribed_topic_regex="(").code == (
        ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    assert world.is_classic
    assert not waiting.is_answered
    assert len(world.log) == before


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_without_upgrade_leaves_classic_groups_alone(policy: str) -> None:
    world = MixedWorld(group_consumer_migration_policy=policy)
    (a,) = world.classic_group([0, 1, 2, 3])
    assert world.beat("c", 0).code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat(a, 1).code == ErrorCode.NONE


def test_a_group_of_workers_is_no_consumer_group(world: MixedWorld) -> None:
    world.classic_group([0], protocol_type="connect")
    assert world.beat("c", 0).code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_more_members_than_a_consumer_group_takes_is_left_alone() -> None:
    world = MixedWorld(group_consumer_max_size=1)
    world.classic_group([0, 1], [2, 3])
    assert world.beat("c", 0).code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("what", ["subscription", "assignment"])
def test_a_group_that_says_what_cannot_be_read_is_left_alone(world: MixedWorld, what: str) -> None:
    said = b"\0" if what == "subscription" else subscribed("t")
    call = world.enter("m", protocols=(("range", said),))
    world.wait(0)
    member_id = call.answer.member_id
    row = b"\0" if what == "assignment" else assigned({"t": [0]})
    assert world.sync(member_id, 1, {member_id: row}).code == ErrorCode.NONE
    assert world.beat("c", 0).code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat(member_id, 1).code == ErrorCode.NONE


# Classic members of a consumer group


def test_a_new_classic_member_fetches_its_id_first(world: MixedWorld) -> None:
    world.beat("c", 0)
    given = world.rejoin("")
    assert given.code == ErrorCode.MEMBER_ID_REQUIRED
    assert given.answer.member_id not in world.consumers.members
    assert world.rejoin(given.answer.member_id).answer.generation_id == 3


def test_classic_members_need_a_protocol_in_common(world: MixedWorld) -> None:
    world.beat("c", 0)
    world.rejoin("", version=3, protocol="range")
    assert world.rejoin("", protocol="other").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    both = (("other", subscribed("t")), ("range", subscribed("t")))
    assert world.join("x", version=3, protocols=both).code == ErrorCode.NONE
    foreign = world.rejoin("", protocol_type="connect")
    assert foreign.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_subscription_that_cannot_be_read_is_refused(world: MixedWorld) -> None:
    world.beat("c", 0)
    for said in (b"", b"\0\1\0\0", b"\xff\xff\0\0\0\0"):
        refused = world.join("x", version=3, protocols=(("range", said),))
        assert refused.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(world.consumers.members) == ["c"]


def test_a_disabled_policy_keeps_classic_members_out_of_consumer_groups() -> None:
    world = MixedWorld(group_consumer_migration_policy="Disabled")
    world.beat("c", 0)
    assert world.rejoin("").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_classic_member() -> None:
    world = MixedWorld(group_consumer_max_size=1)
    world.beat("c", 0)
    assert world.rejoin("").code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_who_is_not_in_the_group_by_the_classic_protocol_is_told_so(world: MixedWorld) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3).answer.member_id
    assert world.heartbeat("c", 2).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("nobody", 2).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("c", 2).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, 2).code == ErrorCode.ILLEGAL_GENERATION
    assert world.sync(a, 4).code == ErrorCode.ILLEGAL_GENERATION
    for protocol in (("consumer", "other"), ("connect", "range")):
        assert world.sync(a, 3, protocol=protocol).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_offsets_are_for_the_generation_of_a_classic_member(world: MixedWorld) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3).answer.member_id
    group = world.consumers
    assert validate_offset_commit(group, a, 3, version=2) is None
    validate_offset_fetch(group, a, 3)
    for generation in (-1, 2, 4):
        with pytest.raises(KafkaError) as refused:
            validate_offset_commit(group, a, generation)
        assert refused.value.code == ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(KafkaError) as refused:
            validate_offset_fetch(group, a, generation)
        assert refused.value.code == ErrorCode.ILLEGAL_GENERATION


def test_a_member_may_change_its_protocol_and_keep_its_id(world: MixedWorld) -> None:
    (a,) = world.classic_group([0, 1, 2, 3])
    turned = world.beat(a, 0)
    assert turned.answer.member_epoch == 1
    assert turned.answer.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert world.heartbeat(a, 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.rejoin(a, [0, 1, 2, 3]).answer.generation_id == 1
    assert world.heartbeat(a, 1).code == ErrorCode.NONE


# Time


def test_a_silent_classic_member_is_missed_after_its_own_session_timeout(
    world: MixedWorld,
) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3, session_ms=10_000).answer.member_id
    world.sync(a, 3)
    world.wait(9_999)
    assert a in world.consumers.members
    world.wait(1)
    assert a not in world.consumers.members


def test_classic_members_are_missed_after_an_upgrade_and_after_a_restart_too(
    world: MixedWorld,
) -> None:
    a, b = world.classic_group([0, 1], [2, 3])
    world.beat("c", 0)
    world.wait(5_000)
    world.restart()
    world.wait(9_999)
    assert {a, b} <= world.consumers.members.keys()
    world.wait(1)
    assert list(world.consumers.members) == ["c"]


def test_a_member_that_does_not_join_in_time_is_taken_out(world: MixedWorld) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3, rebalance_ms=4_000).answer.member_id
    world.sync(a, 3)
    world.beat("d", 0)
    for _ in range(4):
        assert world.heartbeat(a, 3).code == ErrorCode.REBALANCE_IN_PROGRESS
        world.wait(1_000)
    assert world.heartbeat(a, 3).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_never_asks_for_its_assignment_is_taken_out(world: MixedWorld) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3, rebalance_ms=4_000).answer.member_id
    world.wait(3_999)
    assert world.heartbeat(a, 3).code == ErrorCode.NONE
    world.wait(1)
    assert world.heartbeat(a, 3).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_joins_and_asks_in_time_stays(world: MixedWorld) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3, rebalance_ms=4_000).answer.member_id
    world.sync(a, 3)
    world.beat("d", 0)
    assert world.heartbeat(a, 3).code == ErrorCode.REBALANCE_IN_PROGRESS
    generation = world.rejoin(a, rebalance_ms=4_000).answer.generation_id
    world.sync(a, generation)
    world.wait(8_000)
    assert a in world.consumers.members


def test_a_slow_cooperative_member_has_until_its_rebalance_timeout_from_when_it_was_told(
    world: MixedWorld,
) -> None:
    (a,) = world.classic_group([0, 1, 2, 3], rebalance_ms=8_000)
    world.beat("c", 0)
    world.rejoin(a, [0, 1, 2, 3], rebalance_ms=8_000)
    world.sync(a, 1)
    assert world.consumers.members[a].state is MemberState.UNREVOKED_PARTITIONS  # type: ignore[index]
    for _ in range(2):
        assert world.heartbeat(a, 1).code == ErrorCode.REBALANCE_IN_PROGRESS
        world.wait(4_000)
    assert list(world.consumers.members) == ["c"]


# To the classic protocol


def test_when_the_last_consumer_leaves_the_classic_members_rebalance_among_themselves(
    world: MixedWorld,
) -> None:
    a, b = world.classic_group([0, 1], [2, 3])
    world.beat("c", 0)
    written = len(world.log)
    assert world.beat("c", LEFT).code == ErrorCode.NONE
    assert words(world.log[written:]) == [
        *["-CurrentMemberAssignment"] * 3,
        *["-TargetAssignmentMember"] * 3,
        "-TargetAssignmentMetadata",
        *["-MemberMetadata"] * 3,
        "-PartitionMetadata",
        "-Metadata",
        "+GroupMetadata",
    ]
    value = world.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    group = world.group()
    assert (value.generation, value.protocol_type, value.protocol) == (2, "consumer", "range")
    assert group.generation == 2
    assert group.state_name == "PreparingRebalance"
    assert world.heartbeat(a, 1).code == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(a, 2).code == ErrorCode.REBALANCE_IN_PROGRESS
    joins = [world.rejoin(each) for each in (a, b)]
    assert {call.answer.generation_id for call in joins} == {3}
    assert sum(len(call.answer.members) for call in joins) == 2


def test_the_last_consumer_to_fall_silent_turns_the_group_back(world: MixedWorld) -> None:
    world.beat("c", 0)
    a = world.rejoin("", version=3).answer.member_id
    world.sync(a, 3)
    for _ in range(9):
        world.wait(5_000)
        world.heartbeat(a, 3)
    assert world.is_classic
    assert list(world.group().members) == [a]


def test_a_group_that_cannot_be_written_as_a_classic_one_stays_what_it_is(
    world: MixedWorld,
) -> None:
    a, b = world.classic_group([0, 1], [2, 3])
    world.beat("c", 0)
    former = world.consumers
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="c")])
    leave(world.machine.state, request, world.now_ms, print)  # and nothing of it is written
    assert world.consumers is former
    assert set(former.members) == {a, b, "c"}
    world.leave(("c", None))
    assert world.is_classic


def test_a_classic_group_that_was_a_consumer_group_is_the_same_after_a_restart(
    world: MixedWorld,
) -> None:
    a, b = world.classic_group([0, 1], [2, 3])
    world.beat("c", 0)
    world.beat("c", LEFT)
    target = {each.member_id: each.assignment for each in world.group().members.values()}
    world.restart()
    group = world.group()
    assert (group.state_name, group.generation, set(group.members)) == ("Stable", 2, {a, b})
    assert {each.member_id: each.assignment for each in group.members.values()} == target
    world.wait(9_999)
    assert set(group.members) == {a, b}
    world.wait(1)
    assert not group.members


def test_members_of_a_group_that_turned_back_offer_all_that_they_did(world: MixedWorld) -> None:
    both = (("range", subscribed("t")), ("sticky", subscribed("t")))
    world.beat("c", 0)
    world.join("x", version=3, protocols=both)
    world.beat("c", LEFT)
    other = world.join("y", version=3, protocols=(("sticky", subscribed("t")),))
    assert not other.is_answered
    assert len(world.group().members) == 2


def test_a_policy_without_downgrade_leaves_the_classic_members_in_a_consumer_group() -> None:
    world = MixedWorld(group_consumer_migration_policy="upgrade")
    (a,) = world.classic_group([0, 1, 2, 3])
    world.beat("c", 0)
    world.beat("c", LEFT)
    assert world.heartbeat(a, 1).code == ErrorCode.REBALANCE_IN_PROGRESS
    generation = world.rejoin(a).answer.generation_id
    assert world.synced(a, generation) == {"t": [0, 1, 2, 3]}


def test_the_last_member_leaves_an_empty_consumer_group_behind(world: MixedWorld) -> None:
    world.beat("c", 0)
    world.beat("c", LEFT)
    assert world.consumers.is_empty


def test_members_of_either_protocol_leave_by_leave_group(world: MixedWorld) -> None:
    a, b = world.classic_group([0, 1], [2, 3])
    world.beat("c", 0)
    left = world.leave((b, None), ("nobody", None))
    codes = [each.error_code for each in left.answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.consumers.epoch == 3
    world.leave(("c", None))
    assert world.is_classic
    assert list(world.group().members) == [a]


# Static members


def test_a_static_member_restarts_with_the_other_protocol_and_keeps_its_part(
    world: MixedWorld,
) -> None:
    world.beat("c", 0)
    a = world.join(
        "x", instance="i", version=9, protocols=(("range", subscribed("t")),)
    ).answer.member_id
    world.beat("c", 2, {"t": [0, 1]})
    world.rejoin(a, instance="i")
    share = world.synced(a, 3, instance="i")["t"]
    taken = world.beat("b", 0, instance_id="i")
    assert taken.answer.assignment.topic_partitions[0].partitions == share
    assert world.consumers.epoch == 3
    assert world.heartbeat(a, 3, instance="i").code == ErrorCode.FENCED_INSTANCE_ID
    assert world.beat("d", 0, instance_id="i").code == ErrorCode.UNRELEASED_INSTANCE_ID
    back = world.rejoin("", instance="i")
    assert back.answer.generation_id == 3
    assert world.synced(back.answer.member_id, 3, instance="i")["t"] == share


def test_a_classic_process_with_the_id_of_a_former_one_is_fenced(world: MixedWorld) -> None:
    world.beat("c", 0)
    world.rejoin("", instance="i")
    fenced = world.rejoin("other", instance="i")
    assert (fenced.code, fenced.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "")
    assert world.rejoin("other", instance="j").code == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_last_consumer_comes_back_as_a_classic_member_nobody_else_notices(
    world: MixedWorld,
) -> None:
    world.beat("c", 0, instance_id="i")
    a = world.rejoin("", version=3).answer.member_id
    world.beat("c", 2, {"t": [0, 1]}, instance_id="i")
    world.rejoin(a)
    mine = world.synced(a, 3)["t"]
    back = world.rejoin("", instance="i").answer
    assert world.is_classic
    assert world.group().state_name == "Stable"
    theirs = world.synced(back.member_id, back.generation_id, instance="i")["t"]
    assert sorted(mine + theirs) == [0, 1, 2, 3]
    assert world.heartbeat(a, 3).code == ErrorCode.NONE


def test_when_it_comes_back_before_all_have_their_part_the_group_rebalances(
    world: MixedWorld,
) -> None:
    world.beat("c", 0, instance_id="i")
    a = world.rejoin("", version=3).answer.member_id
    assert world.synced(a, 3) == {}
    world.rejoin("", instance="i")
    assert world.is_classic
    assert world.heartbeat(a, 3).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_only_member_comes_back_as_a_classic_member(world: MixedWorld) -> None:
    world.beat("c", 0, instance_id="i")
    world.beat("c", LEFT_STATIC, instance_id="i")
    back = world.rejoin("", instance="i").answer
    assert world.is_classic
    assert world.synced(back.member_id, back.generation_id, instance="i") == {"t": [0, 1, 2, 3]}
