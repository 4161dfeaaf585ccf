"""What a member sends to its coordinator, and what answers mean to it."""

import re

import pytest

from headrace.client.share.member import Member, Next, new_member_id
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import parse_topic_id
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC_ID = bytes(range(16))


def placed(epoch: int, *partitions: int) -> ShareGroupHeartbeatResponse:
    rows = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))]
    return ShareGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=Assignment(topic_partitions=rows),
    )


def joined() -> Member:
    member = Member("group", ["b", "a"], "rack-1")
    assert member.take(member.heartbeat(), placed(3, 0, 1)) is Next.AFTER_INTERVAL
    return member


def test_a_member_id_is_a_uuid_in_kafkas_form() -> None:
    ids = {new_member_id() for _ in range(1000)}
    assert len(ids) == 1000
    for member_id in ids:
        parse_topic_id(member_id)
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", member_id)


def test_joining_says_everything_and_a_heartbeat_only_who_we_are() -> None:
    member = Member("group", ["b", "a"], "rack-1")
    join = member.heartbeat()
    assert (join.member_epoch, join.rack_id) == (0, "rack-1")
    assert join.subscribed_topic_names == ["a", "b"]
    member.take(join, placed(3, 0))
    beat = member.heartbeat()
    assert (beat.member_id, beat.member_epoch) == (join.member_id, 3)
    assert (beat.rack_id, beat.subscribed_topic_names) == (None, None)


def test_an_answer_without_assignment_leaves_it_as_it_was() -> None:
    member = joined()
    member.take(member.heartbeat(), ShareGroupHeartbeatResponse(member_epoch=4))
    assert (member.epoch, member.assignment) == (4, {TOPIC_ID: (0, 1)})


def test_a_member_says_everything_again_after_a_response_that_was_lost() -> None:
    member = joined()
    member.miss()
    again = member.heartbeat()
    assert (again.member_epoch, again.subscribed_topic_names) == (3, ["a", "b"])
    member.take(again, placed(4, 1))
    assert member.heartbeat().subscribed_topic_names is None


def test_a_member_says_everything_again_after_an_error() -> None:
    member = joined()
    error = ShareGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.take(member.heartbeat(), error)
    assert member.heartbeat().subscribed_topic_names == ["a", "b"]


def test_another_subscription_is_sent_until_it_is_answered() -> None:
    member = joined()
    member.subscribe(["c"])
    sent = member.heartbeat()
    assert sent.subscribed_topic_names == ["c"]
    member.subscribe(["d"])
    member.take(sent, placed(4))
    assert member.heartbeat().subscribed_topic_names == ["d"]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_put_out_has_nothing_and_joins_at_once(code: ErrorCode) -> None:
    member = joined()
    answer = ShareGroupHeartbeatResponse(error_code=code)
    assert member.take(member.heartbeat(), answer) is Next.AT_ONCE
    assert (member.epoch, member.assignment) == (0, {})
    assert member.heartbeat().subscribed_topic_names == ["a", "b"]


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (ErrorCode.NOT_COORDINATOR, Next.AFTER_FINDING),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Next.AFTER_FINDING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Next.AFTER_PAUSE),
    ],
)
def test_trouble_at_the_coordinator_leaves_the_member_as_it_was(
    code: ErrorCode, following: Next
) -> None:
    member = joined()
    answer = ShareGroupHeartbeatResponse(error_code=code)
    assert member.take(member.heartbeat(), answer) is following
    assert (member.epoch, member.assignment) == (3, {TOPIC_ID: (0, 1)})


def test_what_no_other_attempt_would_change_is_raised() -> None:
    member = joined()
    answer = ShareGroupHeartbeatResponse(
        error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, error_message="full"
    )
    with pytest.raises(KafkaError, match="full"):
        member.take(member.heartbeat(), answer)


def test_leaving_has_the_epoch_of_goodbye() -> None:
    member = joined()
    assert (member.leaving().member_id, member.leaving().member_epoch) == (member.member_id, -1)
