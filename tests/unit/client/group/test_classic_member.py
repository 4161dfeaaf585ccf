"""What a classic member sends to its coordinator, and what responses mean to it."""

import pytest

from headrace.client.group.assignors import COOPERATIVE_STICKY, RANGE
from headrace.client.group.classic_member import NO_GENERATION, ClassicMember, Stage
from headrace.client.group.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.client.share.member import Next
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from headrace.wire.messages.sync_group_response import SyncGroupResponse

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def new_member(*assignors: str, instance_id: str | None = None) -> ClassicMember:
    return ClassicMember(
        "group",
        instance_id=instance_id,
        rack="rack-1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        assignors=assignors or (RANGE, COOPERATIVE_STICKY),
    )


def entered(generation: int, member_id: str = "me", leader: str = "other") -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation, protocol_name=RANGE, leader=leader, member_id=member_id
    )


def stable(*owned: TopicPartition, assignors: tuple[str, ...] = ()) -> ClassicMember:
    member = new_member(*assignors)
    member.subscribe(["orders"])
    member.join()
    assert member.take_join(entered(1)) is None
    member.sync({})
    member.take_sync(SyncGroupResponse(assignment=write_assignment(owned)))
    member.own(owned)
    return member


def test_a_new_member_is_given_its_id_and_comes_back_with_it() -> None:
    member = new_member()
    member.subscribe(["orders"])
    assert member.needs_join
    first = member.join()
    assert (first.member_id, first.protocol_type) == ("", "consumer")
    assert [row.name for row in first.protocols] == [RANGE, COOPERATIVE_STICKY]
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert member.take_join(answer) is Next.AT_ONCE
    assert member.join().member_id == "me"


def test_a_member_gets_its_part_by_syncing() -> None:
    member = new_member()
    member.subscribe(["orders"])
    member.join()
    assert member.take_join(entered(4)) is None
    assert (member.stage, member.is_leader) == (Stage.SYNCING, False)
    sync = member.sync({})
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (4, "me", RANGE)
    part = member.take_sync(SyncGroupResponse(assignment=write_assignment([ONE])))
    assert (part, member.stage) == (frozenset([ONE]), Stage.STABLE)


def test_a_leader_hears_what_all_want_and_sends_what_each_gets() -> None:
    member = new_member()
    member.subscribe(["orders"])
    metadata = member.join().protocols[0].metadata
    answer = entered(4, leader="me")
    answer.members = [
        JoinGroupResponseMember(member_id="me", metadata=metadata),
        JoinGroupResponseMember(member_id="b", group_instance_id="till", metadata=metadata),
    ]
    member.take_join(answer)
    assert member.is_leader
    assert {name: row.topics for name, row in member.members.items()} == {
        "me": {"orders"},
        "b": {"orders"},
    }
    assert member.members["b"].instance_id == "till"
    sync = member.sync({"me": [ZERO], "b": [ONE]})
    sent = {row.member_id: read_assignment(row.assignment) for row in sync.assignments}
    assert sent == {"me": {ZERO}, "b": {ONE}}


def test_who_keeps_partitions_while_joining_says_which() -> None:
    member = stable(ZERO, assignors=(COOPERATIVE_STICKY,))
    assert member.is_cooperative
    row = read_subscription(member.join().protocols[0].metadata, None)
    assert row.owned == {ZERO}
    assert row.generation == 1


def test_one_eager_assignor_makes_a_member_eager() -> None:
    assert not new_member(COOPERATIVE_STICKY, RANGE).is_cooperative


def test_a_rebalance_is_heard_of_in_a_heartbeat_and_nothing_is_lost_by_it() -> None:
    member = stable(ZERO)
    answer = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    member.take_heartbeat(member.heartbeat(), answer)
    assert (member.needs_join, member.is_lost, member.generation) == (True, False, 1)


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")],
)
def test_who_is_put_out_loses_what_it_has(code: ErrorCode, member_id: str) -> None:
    member = stable(ZERO)
    member.take_heartbeat(member.heartbeat(), HeartbeatResponse(error_code=code))
    assert (member.is_lost, member.needs_join, member.member_id) == (True, True, member_id)
    assert member.generation == NO_GENERATION
    member.give_up()
    assert (member.is_lost, member.owned) == (False, frozenset())


def test_a_heartbeat_of_an_old_generation_means_nothing() -> None:
    member = stable(ZERO)
    old = member.heartbeat()
    member.join()
    member.take_join(entered(2))
    member.take_heartbeat(old, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert (member.is_lost, member.generation) == (False, 2)


def test_a_sync_into_the_next_rebalance_joins_again_and_keeps_the_id() -> None:
    member = stable()
    member.join()
    member.take_join(entered(2))
    answer = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.take_sync(answer) is Next.AT_ONCE
    assert member.join().member_id == "me"


def test_a_coordinator_that_is_elsewhere_is_looked_for() -> None:
    member = stable(ZERO)
    answer = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert member.take_heartbeat(member.heartbeat(), answer) is Next.AFTER_FINDING
    busy = JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert member.take_join(busy) is Next.AFTER_PAUSE
    assert not member.is_lost


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "share no assignor with us .range"),
        (ErrorCode.FENCED_INSTANCE_ID, "took over instance_id"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "45000 ms"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group"),
    ],
)
def test_what_ends_a_membership_says_why(code: ErrorCode, hint: str) -> None:
    member = new_member()
    member.subscribe(["orders"])
    member.join()
    with pytest.raises(KafkaError, match=hint):
        member.take_join(JoinGroupResponse(error_code=code))


def test_other_topics_make_a_member_join_again_and_the_same_do_not() -> None:
    member = stable(ZERO)
    member.subscribe(["orders"])
    assert not member.needs_join
    member.subscribe(["orders", "bills"])
    assert member.needs_join


def test_a_dynamic_member_says_goodbye_and_a_static_one_does_not() -> None:
    member = stable()
    new, old = member.leaving(3, "closed"), member.leaving(2, "closed")
    assert new is not None
    assert old is not None
    assert (new.members[0].member_id, new.member_id) == ("me", "")
    assert (old.members, old.member_id) == ([], "me")
    static = new_member(instance_id="till")
    static.subscribe(["orders"])
    static.join()
    static.take_join(entered(1))
    assert static.leaving(3, "closed") is None
