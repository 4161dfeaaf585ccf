"""Offsets of streams groups: who may commit and fetch them, and when they are deleted."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import delete_group
from headrace.groups.state import GroupId
from headrace.groups.streams.offsets import validate_offset_commit, validate_offset_fetch
from headrace.ids import TopicName
from tests.unit.groups.streams.streams_world import GROUP, World, words


@pytest.fixture
def world() -> World:
    """A group of one member, whose epoch has moved on since it got its tasks."""
    world = World()
    world.add_topic("in", 2)
    world.add_topic("other", 2)
    world.join("a")
    world.beat("a", 2, rack_id="r")
    return world


def refused(world: World, member_id: str, epoch: int, topic: str = "in") -> ErrorCode | None:
    """Commit for a partition; give the code that it is refused with."""
    found = world.image.topic(TopicName(topic))
    assert found is not None
    try:
        check = validate_offset_commit(world.machine.state, world.group, member_id, epoch)
        if check is not None:
            check(found.topic_id, 0)
    except KafkaError as error:
        return error.code
    return None


def test_member_commits_at_its_epoch(world: World) -> None:
    assert refused(world, "a", 3) is None
    assert refused(world, "a", 3, "other") is None


def test_member_that_is_behind_commits_for_tasks_that_it_had_then(world: World) -> None:
    assert refused(world, "a", 2) is None
    assert refused(world, "a", 2, "other") == ErrorCode.STALE_MEMBER_EPOCH
    assert refused(world, "a", 1) == ErrorCode.STALE_MEMBER_EPOCH


def test_epoch_that_is_not_yet_is_stale(world: World) -> None:
    assert refused(world, "a", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert refused(world, "a", -1) == ErrorCode.STALE_MEMBER_EPOCH


def test_stranger_commits_only_while_nobody_is_a_member(world: World) -> None:
    assert refused(world, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "b", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    world.leave("a")
    assert refused(world, "", -1) is None
    assert refused(world, "a", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_are_fetched_by_tools_and_by_members_of_their_epoch(world: World) -> None:
    validate_offset_fetch(world.group, None, -1)
    validate_offset_fetch(world.group, "a", 3)
    with pytest.raises(KafkaError) as caught:
        validate_offset_fetch(world.group, "a", 2)
    assert caught.value.code == ErrorCode.STALE_MEMBER_EPOCH


def test_topics_that_members_read_are_subscribed_to(world: World) -> None:
    assert world.group.is_subscribed_to("in")
    assert not world.group.is_subscribed_to("other")
    world.leave("a")
    assert not world.group.is_subscribed_to("in")


def test_empty_group_can_be_deleted(world: World) -> None:
    state = world.machine.state
    with pytest.raises(KafkaError) as caught:
        delete_group(state, GROUP, lambda _: None)
    assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
    world.leave("a")
    outcome = delete_group(state, GROUP, lambda _: None)
    assert words(outcome.records) == ["-TargetAssignmentMetadata", "-Metadata", "-Topology"]
    for record in outcome.records:
        world.machine.replay(record)
    assert GroupId(GROUP) not in state.groups
