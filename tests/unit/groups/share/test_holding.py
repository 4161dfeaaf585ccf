"""Members without partitions are answered when they have some, soon, or are told to ask soon."""

from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups import assigning
from headrace.groups.administration import delete_group
from headrace.groups.heartbeats import SOON_MS, Sender
from headrace.groups.share.heartbeat import heartbeat
from headrace.groups.share.holding import ANSWERS_AT_ONCE
from headrace.groups.share.states import note_not_begun
from headrace.loop.slices import run_whole
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.unit.groups.share.share_world import ShareWorld, share_words

WAIT_MS = 500
INTERVAL_MS = 5000
ALL = {"t": [0, 1, 2, 3]}


@pytest.fixture
def world() -> ShareWorld:
    world = ShareWorld(headrace_group_first_assignment_wait_ms=WAIT_MS)
    world.add_topic("t", 4)
    world.add_topic("u", 2)
    return world


def begin(world: ShareWorld) -> None:
    """Have states begin, and tell who waits for that."""
    world.begin_states()
    world.pass_time(0)


def told(world: ShareWorld, member_id: str = "m") -> Any:
    """Return the one answer that a member got."""
    (answer,) = (each for name, each in world.answers if name == member_id)
    return answer


# When it is answered


def test_the_first_member_has_its_partitions_with_the_first_answer(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    assert world.answers == []
    begin(world)
    answer = told(world)
    assert (answer.member_id, answer.member_epoch, answer.error_code) == ("m", 3, 0)
    assert answer.heartbeat_interval_ms == INTERVAL_MS
    assert world.share_assigned(answer) == ALL == world.share_held("m")
    assert world.share_beat("m", 3).assignment is None


def test_members_that_join_together_share_one_target(world: ShareWorld) -> None:
    count = ANSWERS_AT_ONCE + 20
    for number in range(count):
        world.send_share_beat(f"m{number}", 0, ["t"])
    before = len(world.log)
    begin(world)
    assert len(world.answers) == count
    assert {answer.member_epoch for _, answer in world.answers} == {world.share_group().epoch}
    assert all(world.share_assigned(answer) for _, answer in world.answers)
    assert share_words(world.log[before:]).count("+TargetAssignmentMetadata") == 1


def test_states_that_do_not_begin_are_waited_for_a_moment(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    world.pass_time(WAIT_MS - 1)
    assert world.answers == []
    world.pass_time(1)
    answer = told(world)
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    assert world.share_assigned(answer) == {}
    assert answer.heartbeat_interval_ms == SOON_MS
    world.pass_time(SOON_MS)
    world.send_share_beat("m", 2)
    assert len(world.answers) == 1  # it waits again
    begin(world)
    assert world.share_assigned(world.answers[-1][1]) == ALL


def test_states_that_could_not_begin_are_not_waited_for(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    keys = [each.key for each in world.beginnings]
    world.do(note_not_begun(world.machine.state, keys, world.now_ms))
    world.pass_time(0)
    answer = told(world)
    assert (world.share_assigned(answer), answer.heartbeat_interval_ms) == ({}, INTERVAL_MS)


def test_each_waits_for_the_topics_that_it_wants(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    of_t, world.beginnings = world.beginnings, []
    world.send_share_beat("n", 0, ["u"])
    of_u, world.beginnings = world.beginnings, of_t
    begin(world)
    assert world.share_assigned(told(world)) == ALL
    assert [name for name, _ in world.answers] == ["m"]
    world.beginnings = of_u
    begin(world)
    # The target with it is due a second after the last one.
    assert (world.share_assigned(told(world, "n")), told(world, "n").heartbeat_interval_ms) == (
        {},
        1000,
    )


def test_a_topic_that_is_not_there_is_not_waited_for(world: ShareWorld) -> None:
    answer = world.share_beat("m", 0, ["none"])
    assert (world.share_assigned(answer), answer.heartbeat_interval_ms) == ({}, INTERVAL_MS)


def test_a_topic_that_comes_is_there_with_one_heartbeat(world: ShareWorld) -> None:
    epoch = world.share_beat("m", 0, ["v"]).member_epoch
    world.add_topic("v", 1)
    world.pass_time(INTERVAL_MS)
    world.send_share_beat("m", epoch)
    begin(world)
    assert world.share_assigned(told(world)) == {"v": [0]}


def test_who_has_partitions_does_not_wait_for_more(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    begin(world)
    world.grow_topic("t", 1)
    world.pass_time(INTERVAL_MS)
    assert world.share_beat("m", 3).member_epoch == 4
    assert world.beginnings


def test_nobody_waits_if_that_is_turned_off() -> None:
    world = ShareWorld(headrace_group_first_assignment_wait_ms=0)
    world.add_topic("t", 4)
    answer = world.share_beat("m", 0, ["t"])
    assert (answer.member_epoch, world.share_assigned(answer)) == (2, {})
    second = world.share_beat("n", 0, ["t"])
    assert (second.member_epoch, second.heartbeat_interval_ms) == (2, INTERVAL_MS)


# What may happen meanwhile


def test_a_member_that_left_while_it_waited_is_told_so(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    world.share_beat("m", -1)
    begin(world)
    assert told(world).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_went_meanwhile_keeps_nobody_waiting(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    world.share_beat("m", -1)
    world.do(delete_group(world.machine.state, "g", lambda _: None))
    begin(world)
    assert told(world).code == ErrorCode.GROUP_ID_NOT_FOUND
    world.pass_time(WAIT_MS)
    assert len(world.answers) == 1


def test_a_member_that_joins_again_while_it_waits_is_answered_twice(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    world.send_share_beat("m", 0, ["t"])
    begin(world)
    assert [world.share_assigned(answer) for _, answer in world.answers] == [ALL, ALL]


def test_who_waits_is_known_to_whoever_gives_up_the_group(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    (reply,) = world.machine.waiting()
    reply(KafkaError(ErrorCode.NOT_COORDINATOR, "it moved"))
    assert told(world).code == ErrorCode.NOT_COORDINATOR
    world.restart()
    assert list(world.machine.waiting()) == []
    begin(world)
    assert world.share_assigned(world.share_beat("m", 2)) == ALL


def test_nobody_waits_for_what_could_not_be_written(world: ShareWorld) -> None:
    request = ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"])
    outcome = heartbeat(
        world.machine.state, request, Sender("c", "/h"), world.now_ms, print, begin=print
    )
    assert outcome.records
    assert list(world.machine.waiting()) == []  # as long as nobody replays it


# Targets that are not due, or large


def test_who_joins_between_two_targets_asks_again_when_the_next_is_due(world: ShareWorld) -> None:
    world.send_share_beat("m", 0, ["t"])
    begin(world)
    world.pass_time(300)
    answer = world.share_beat("n", 0, ["t"])
    assert (world.share_assigned(answer), answer.heartbeat_interval_ms) == ({}, 700)
    world.pass_time(700)
    answer = world.share_beat("n", answer.member_epoch)
    assert len((world.share_assigned(answer) or {})["t"]) == 2
    assert answer.heartbeat_interval_ms == INTERVAL_MS


def test_many_members_ask_again_later_than_a_few() -> None:
    world = ShareWorld(headrace_group_first_assignment_wait_ms=WAIT_MS, group_share_max_size=1000)
    world.add_topic("t", 1)
    world.send_share_beat("m", 0, ["t"])
    begin(world)
    world.pass_time(950)
    intervals = [
        world.share_beat(f"m{number}", 0, ["t"]).heartbeat_interval_ms for number in range(400)
    ]
    assert intervals == sorted(intervals)
    assert (intervals[0], intervals[-1]) == (100, 400)


def test_a_large_target_is_waited_for_too(
    world: ShareWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.share_beat("m", 0, ["none"])
    monkeypatch.setattr(assigning, "STEPS_ON_LOOP_MAX", 0)
    asked: list[Any] = []
    world.machine.state.compute_elsewhere = asked.append
    world.pass_time(1000)
    world.send_share_beat("n", 0, ["t"])
    first = asked.pop()
    world.do(first.finish(world.machine.state, run_whole(first.compute()), world.now_ms))
    begin(world)
    assert world.answers == []
    second = asked.pop()
    world.do(second.finish(world.machine.state, run_whole(second.compute()), world.now_ms))
    world.pass_time(0)
    assert world.share_assigned(told(world, "n")) == ALL
