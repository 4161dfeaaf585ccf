"""Fetch sessions (KIP-227), as a pure machine."""

from functools import partial
from random import Random

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.replication.fetch_sessions import (
    EVICTION_MS_MIN,
    FetchSession,
    FetchSessions,
    wanted_partitions,
)
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

TOPIC_ID = bytes(range(16))
WITH_IDS = 18
WITHOUT_IDS = 12


def request(
    *offsets: int, session_id: int = 0, epoch: int = 0, forgotten: tuple[int, ...] = ()
) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in enumerate(offsets)
    ]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forgotten))],
    )


def resume(sessions: FetchSessions, again: FetchRequest, version: int, now_ms: int) -> FetchSession:
    return sessions.resume(again, wanted_partitions(again.topics), version, now_ms)


def begin(sessions: FetchSessions, *offsets: int, now_ms: int = 0):  # type: ignore[no-untyped-def]
    wanted = wanted_partitions(request(*offsets).topics)
    return sessions.begin(wanted, WITH_IDS, now_ms)


def test_a_session_remembers_what_is_not_said_again() -> None:
    sessions = FetchSessions(10, partial(Random(1).randint, 1, 2**31 - 1))
    session = begin(sessions, 5, 6)
    again = resume(sessions, request(7, session_id=session.id, epoch=1), WITH_IDS, 0)
    assert [each.fetch_offset for each in again.partitions.values()] == [7, 6]


def test_forgotten_partitions_are_read_no_more() -> None:
    sessions = FetchSessions(10, partial(Random(1).randint, 1, 2**31 - 1))
    session = begin(sessions, 5, 6)
    again = resume(sessions, request(session_id=session.id, epoch=1, forgotten=(0,)), WITH_IDS, 0)
    assert [each.index for each in again.partitions.values()] == [1]


def test_partitions_that_gave_data_are_read_last_next_time() -> None:
    sessions = FetchSessions(10, partial(Random(1).randint, 1, 2**31 - 1))
    session = begin(sessions, 0, 0, 0)
    session.move_back(next(iter(session.partitions.values())))
    assert [each.index for each in session.partitions.values()] == [1, 2, 0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "code"),
    [
        (12345, 1, WITH_IDS, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, WITH_IDS, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, WITHOUT_IDS, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(
    session_id: int | None, epoch: int, version: int, code: ErrorCode
) -> None:
    sessions = FetchSessions(10, partial(Random(1).randint, 1, 2**31 - 1))
    session = begin(sessions, 5)
    asked = request(session_id=session_id or session.id, epoch=epoch)
    with pytest.raises(KafkaError) as refused:
        resume(sessions, asked, version, 0)
    assert refused.value.code is code


def test_epochs_begin_again_behind_the_largest() -> None:
    sessions = FetchSessions(10, partial(Random(1).randint, 1, 2**31 - 1))
    session = begin(sessions, 5)
    session.epoch = 2**31 - 1
    assert resume(sessions, request(session_id=session.id, epoch=2**31 - 1), WITH_IDS, 0).epoch == 1


def test_a_full_cache_gives_no_session_to_one_of_the_same_size() -> None:
    sessions = FetchSessions(1, partial(Random(1).randint, 1, 2**31 - 1))
    assert begin(sessions, 1) is not None
    assert begin(sessions, 2) is None


def test_a_larger_session_takes_the_place_of_a_smaller_one() -> None:
    sessions = FetchSessions(1, partial(Random(1).randint, 1, 2**31 - 1))
    small = begin(sessions, 1)
    assert begin(sessions, 1, 2) is not None
    assert (len(sessions), sessions.evictions) == (1, 1)
    with pytest.raises(KafkaError):
        resume(sessions, request(session_id=small.id, epoch=1), WITH_IDS, 0)


def test_an_idle_session_makes_place_for_anybody() -> None:
    sessions = FetchSessions(1, partial(Random(1).randint, 1, 2**31 - 1))
    begin(sessions, 1, 2, 3)
    assert begin(sessions, 1, now_ms=EVICTION_MS_MIN) is None
    assert begin(sessions, 1, now_ms=EVICTION_MS_MIN + 1) is not None


def test_a_session_that_shrank_is_the_first_to_go_and_one_that_grew_is_not() -> None:
    sessions = FetchSessions(3, partial(Random(1).randint, 1, 2**31 - 1))
    grows, stays, shrinks = begin(sessions, 1), begin(sessions, 1, 2), begin(sessions, 1, 2, 3)
    resume(sessions, request(1, 2, 3, 4, session_id=grows.id, epoch=1), WITH_IDS, 0)
    resume(sessions, request(session_id=shrinks.id, epoch=1, forgotten=(0, 1)), WITH_IDS, 0)
    assert begin(sessions, 1, 2, 3) is not None
    assert resume(sessions, request(session_id=stays.id, epoch=1), WITH_IDS, 0) is stays
    assert resume(sessions, request(session_id=grows.id, epoch=2), WITH_IDS, 0) is grows
    with pytest.raises(KafkaError):
        resume(sessions, request(session_id=shrinks.id, epoch=2), WITH_IDS, 0)
