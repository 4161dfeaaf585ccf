"""Who may commit and fetch offsets of a consumer group. As seen of Kafka 4.3.1."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.offsets import validate_offset_commit, validate_offset_fetch
from headrace.ids import TopicId
from tests.unit.groups.consumer.consumer_world import World


@pytest.fixture
def world() -> World:
    """Have m in epoch 4, with t since epoch 2 and u since epoch 4."""
    world = World()
    world.configure("g", consumer_assignment_interval_ms="0")
    world.add_topic("t", 2)
    world.add_topic("u", 1)
    world.join("m", "t")
    world.beat("m", 2, subscribed_topic_names=["t", "u"])
    world.beat("m", 3, {"t": [0, 1], "u": [0]}, subscribed_topic_names=["t"])
    world.beat("m", 3, {"t": [0, 1]})
    world.beat("m", 4, subscribed_topic_names=["t", "u"])
    assert world.group().members["m"].epoch == 5  # type: ignore[index]
    return world


def commit_code(world: World, member_id: str, epoch: int, topic: str, version: int = 9) -> int:
    try:
        check = validate_offset_commit(world.group(), member_id, epoch, version=version)
        if check is not None:
            check(TopicId(world.topic(topic).topic_id), 0)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def fetch_code(world: World, member_id: str | None, epoch: int) -> int:
    try:
        validate_offset_fetch(world.group(), member_id, epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "topic", "expected"),
    [
        ("m", 5, "t", ErrorCode.NONE),
        ("m", 5, "u", ErrorCode.NONE),
        ("m", 2, "t", ErrorCode.NONE),
        ("m", 4, "u", ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 1, "t", ErrorCode.STALE_MEMBER_EPOCH),
        ("m", -1, "t", ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 6, "t", ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 5, "t", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "t", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_commits_for_what_it_has_had_since_its_epoch(
    world: World, member_id: str, epoch: int, topic: str, expected: ErrorCode
) -> None:
    assert commit_code(world, member_id, epoch, topic) == expected


def test_a_member_may_commit_for_what_it_is_giving_up() -> None:
    world = World()
    world.configure("g", consumer_assignment_interval_ms="0")
    world.add_topic("t", 1)
    world.join("m", "t")
    world.beat("m", 2, subscribed_topic_names=[])
    assert world.named(world.group().members["m"].revoking) == {"t": [0]}  # type: ignore[index]
    assert commit_code(world, "m", 2, "t") == ErrorCode.NONE
    world.beat("m", 2, {})
    assert commit_code(world, "m", 3, "t") == ErrorCode.NONE
    assert commit_code(world, "m", 2, "t") == ErrorCode.STALE_MEMBER_EPOCH


def test_old_requests_cannot_commit_for_members(world: World) -> None:
    assert commit_code(world, "m", 5, "t", version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit_code(world, "x", 5, "t", version=8) == ErrorCode.UNKNOWN_MEMBER_ID


def test_anybody_may_commit_for_an_empty_group_without_an_epoch(world: World) -> None:
    world.beat("m", -1)
    assert commit_code(world, "", -1, "t") == ErrorCode.NONE
    assert commit_code(world, "m", 5, "t") == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_members_of_their_epoch_and_those_who_name_none_fetch(world: World) -> None:
    assert fetch_code(world, None, -1) == ErrorCode.NONE
    assert fetch_code(world, "m", 5) == ErrorCode.NONE
    assert fetch_code(world, "m", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_code(world, "m", 6) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_code(world, "x", 5) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_code(world, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
