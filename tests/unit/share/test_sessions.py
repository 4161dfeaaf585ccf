"""Share sessions, as a pure machine."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicId
from headrace.share.sessions import ShareSession, ShareSessions

TOPIC = TopicId(bytes(range(16)))
ZERO, ONE, TWO = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)


def test_each_request_has_the_epoch_after_the_last_one() -> None:
    sessions = ShareSessions(10)
    session = sessions.begin("group", "member", [ZERO])
    assert sessions.resume("group", "member", 1) is session
    assert sessions.resume("group", "member", 2) is session


def test_the_largest_epoch_is_followed_by_one_and_not_by_zero() -> None:
    sessions = ShareSessions(10)
    session = sessions.begin("group", "member", [ZERO])
    session.epoch = 2**31 - 1
    sessions.resume("group", "member", 2**31 - 1)
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [0, 2, -2])
def test_an_unexpected_epoch_is_refused_and_expects_what_it_did(epoch: int) -> None:
    sessions = ShareSessions(10)
    session = sessions.begin("group", "member", [ZERO])
    with pytest.raises(KafkaError) as refused:
        sessions.resume("group", "member", epoch)
    assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert session.epoch == 1


@pytest.mark.parametrize(("group", "member"), [("group", "other"), ("other", "member")])
def test_a_session_is_of_one_member_of_one_group(group: str, member: str) -> None:
    sessions = ShareSessions(10)
    sessions.begin("group", "member", [ZERO])
    with pytest.raises(KafkaError) as refused:
        sessions.find(group, member)
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_partitions_stay_until_they_are_forgotten() -> None:
    session = ShareSession("group", "member", [ZERO, ONE])
    session.change([TWO, ONE], [ZERO])
    assert list(session.partitions) == [ONE, TWO]


def test_what_is_named_and_forgotten_at_once_is_forgotten() -> None:
    session = ShareSession("group", "member", [ZERO])
    session.change([ONE], [ONE])
    assert list(session.partitions) == [ZERO]


def test_every_partition_is_the_first_in_its_turn() -> None:
    session = ShareSession("group", "member", [ZERO, ONE, TWO])
    assert [next(iter(session.in_turn(epoch))) for epoch in range(5)] == [
        ZERO,  # of the request that began the session
        ZERO,
        ONE,
        TWO,
        ZERO,
    ]
    assert list(session.in_turn(3)) == [TWO, ZERO, ONE]


def test_a_session_without_partitions_has_nothing_in_turn() -> None:
    assert list(ShareSession("group", "member").in_turn(7)) == []


def test_more_sessions_than_allowed_are_refused_until_one_ends() -> None:
    sessions = ShareSessions(1)
    first = sessions.begin("group", "member", [ZERO])
    with pytest.raises(KafkaError) as refused:
        sessions.begin("group", "other", [ZERO])
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.end(first)
    sessions.begin("group", "other", [ZERO])
    assert len(sessions) == 1


def test_a_member_that_begins_again_takes_the_place_of_its_own_session() -> None:
    sessions = ShareSessions(1)
    first = sessions.begin("group", "member", [ZERO])
    second = sessions.begin("group", "member", [ONE])
    assert first.is_ended
    assert sessions.find("group", "member") is second


def test_the_end_of_a_session_is_told_once_and_leaves_its_successor_alone() -> None:
    told = []
    sessions = ShareSessions(10)
    first = sessions.begin("group", "member", [ZERO])
    first.on_ended = lambda: told.append("first")
    second = sessions.begin("group", "member", [ZERO])
    sessions.end(first)  # its connection is lost later than that of the next one is there
    assert told == ["first"]
    assert sessions.find("group", "member") is second
