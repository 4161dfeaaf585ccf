"""States of share partitions: begun before members read, kept, tried again, forgotten."""

import pytest

from headrace.groups.share.states import Beginning, forget_topic_states, note_begun, note_not_begun
from headrace.ids import PartitionIndex, SharePartitionKey
from tests.unit.groups.share.share_world import ShareWorld

RETRY_MS = 30_000


@pytest.fixture
def world() -> ShareWorld:
    world = ShareWorld()
    world.add_topic("t", 2)
    world.add_topic("u", 1)
    return world


def test_states_begin_in_the_groups_epoch_wherever_the_leader_finds(world: ShareWorld) -> None:
    # Crabka 0.3.6 begins all of them at offset 0.
    world.share_beat("m", 0, ["t"])
    assert world.beginnings == [
        Beginning(SharePartitionKey("g", world.topic_id("t"), PartitionIndex(index)), 2, -1)
        for index in (0, 1)
    ]
    assert world.states("initializing") == {"t": [0, 1]}


def test_states_that_begin_are_left_alone_for_a_while_and_then_tried_again(
    world: ShareWorld,
) -> None:
    world.share_beat("m", 0, ["t"])
    tried = world.beginnings
    world.beginnings = []
    world.pass_time(RETRY_MS - 1)
    world.share_beat("m", 2)
    assert world.beginnings == []
    world.pass_time(1)
    before = len(world.log)
    world.share_beat("m", 2)
    assert world.beginnings == tried
    assert len(world.log) == before, "that they are to begin is known"
    world.beginnings = []
    world.share_beat("m", 2)
    assert world.beginnings == []


def test_states_that_could_not_begin_are_tried_again_by_the_next_heartbeat(
    world: ShareWorld,
) -> None:
    world.share_beat("m", 0, ["t"])
    tried = world.beginnings
    world.beginnings = []
    world.do(note_not_begun(world.machine.state, [each.key for each in tried], world.now_ms))
    world.share_beat("m", 2)
    assert world.beginnings == tried


def test_what_begins_alone_is_assigned_alone(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.beginnings = world.beginnings[1:]
    world.begin_states()
    assert world.states("initializing") == {"t": [0]}
    world.pass_time(1000)
    assert world.share_assigned(world.share_beat("m", 2)) == {"t": [1]}


def test_new_coordinator_does_not_wait_to_try_again(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t"])
    world.beginnings = []
    world.restart()
    world.share_beat("m", 2)
    assert [each.key.partition for each in world.beginnings] == [0, 1]


def test_states_of_a_group_or_topic_that_went_meanwhile_are_not_noted(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["t", "u"])
    world.do(forget_topic_states(world.machine.state, world.topic_id("t"), world.now_ms))
    world.begin_states()
    assert world.states("initialized") == {"u": [0]}
    before = len(world.log)
    key = SharePartitionKey("gone", world.topic_id("t"), PartitionIndex(0))
    world.do(note_begun(world.machine.state, "gone", [key], world.now_ms, lambda _: None))
    assert len(world.log) == before


def test_a_deleted_topic_is_forgotten_in_all_groups(world: ShareWorld) -> None:
    for group_id in ("g", "h"):
        world.share_beat("m", 0, ["t", "u"], group_id=group_id)
        world.settle(group_id)
    before = len(world.log)
    world.do(forget_topic_states(world.machine.state, world.topic_id("t"), world.now_ms))
    assert len(world.log) == before + 2
    assert world.states("initialized", "h") == {"u": [0]}
    world.do(forget_topic_states(world.machine.state, world.topic_id("t"), world.now_ms))
    assert len(world.log) == before + 2


def test_a_topic_made_anew_under_the_old_name_begins_anew(world: ShareWorld) -> None:
    world.share_beat("m", 0, ["u"])
    world.settle()
    former = world.topic_id("u")
    world.remove_topic("u")
    world.do(forget_topic_states(world.machine.state, former, world.now_ms))
    world.add_topic("u", 1, topic_id=b"another-topic-u-")
    world.settle()
    assert world.share_held("m") == {"u": [0]}
    (topic_id,) = world.share_group().states.initialized
    assert topic_id == b"another-topic-u-"
