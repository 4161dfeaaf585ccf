"""Members of consumer groups that a tool takes out with LeaveGroup. As seen of Kafka 4.3.1."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.leave import leave
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from tests.unit.groups.consumer.consumer_world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.add_topic("t", 4)
    world.join("a", "t")
    world.join("b", "t")
    world.join("c", "t", instance_id="i")
    return world


def taken_out(world: World, *members: tuple[str, str | None]) -> list[ErrorCode]:
    """Take members out by id and instance; give what each row says."""
    rows = [MemberIdentity(member_id=id_, group_instance_id=instance) for id_, instance in members]
    answers: list[LeaveGroupResponse | KafkaError] = []
    outcome = leave(
        world.machine.state,
        LeaveGroupRequest(group_id="g", members=rows),
        world.now_ms,
        answers.append,
    )
    for take_note in outcome.notes:
        take_note()
    for record in outcome.records:
        world.machine.replay(record)
    ((_, answer),) = outcome.replies
    return [ErrorCode(row.error_code) for row in answer.members]


def test_members_are_taken_out_by_id_and_by_instance_in_one_epoch(world: World) -> None:
    before = world.group().epoch
    assert taken_out(world, ("a", None), ("", "i")) == [ErrorCode.NONE, ErrorCode.NONE]
    assert set(world.group().members) == {"b"}
    assert world.group().epoch == before + 1
    assert world.refusal_code("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_is_unknown_or_not_the_instance_stays(world: World) -> None:
    before = world.group().epoch
    assert taken_out(world, ("nobody", None), ("", "none"), ("a", "i")) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert set(world.group().members) == {"a", "b", "c"}
    assert world.group().epoch == before


def test_a_member_named_twice_has_left_both_times(world: World) -> None:
    assert taken_out(world, ("a", None), ("a", None)) == [ErrorCode.NONE, ErrorCode.NONE]
    assert set(world.group().members) == {"b", "c"}


def test_a_silent_member_goes_later_if_that_could_not_be_written_at_once(world: World) -> None:
    session_ms = 45_000
    world.now_ms += session_ms
    while (due_ms := world.machine.next_deadline_ms()) is not None and due_ms <= world.now_ms:
        world.machine.on_deadline(world.now_ms)  # and nothing of it is written
        world.machine.on_deadline_unmet(world.now_ms)
    assert set(world.group().members) == {"a", "b", "c"}
    world.pass_time(session_ms)
    assert not world.group().members


def test_a_member_whose_leave_could_not_be_written_is_still_missed(world: World) -> None:
    rows = [MemberIdentity(member_id="a")]
    leave(
        world.machine.state,
        LeaveGroupRequest(group_id="g", members=rows),
        world.now_ms,
        print,
    )
    assert "a" in world.group().members
    world.pass_time(45_000)
    assert not world.group().members
