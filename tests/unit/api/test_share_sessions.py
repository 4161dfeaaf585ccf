"""ShareFetch and ShareAcknowledge: sessions, their epochs, and what ends with them."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder
from headrace.share.led_partitions import RELEASES_AT_ONCE
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    NOW_MS,
    RENEW,
    Member,
    append,
    initialize,
    rows,
)

NO_TOPIC = b"nobody has this."


@pytest.fixture
def topic_id(harness: Harness) -> bytes:
    topic_id: bytes = harness.create_topic("orders", partitions=3)
    initialize(harness, topic_id, 0, 1, 2, start_offset=0)  # type: ignore[arg-type]
    return topic_id


def test_the_first_answer_names_every_partition_and_the_next_ones_what_is_new(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a")
    append(harness, b"b", index=1)
    Member(harness, topic_id).fetch(0, 1, max_wait_ms=5000)  # so that both are loaded
    member = Member(harness, topic_id, "member-2")
    assert set(member.fetch(0, 1)) == {0, 1}
    assert member.fetch() == {}
    append(harness, b"c", index=1)
    assert set(member.fetch()) == {1}


def test_both_apis_count_the_epochs_of_a_session_together(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a", b"b")
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    assert member.acknowledge(0, (0, 0, ACCEPT)) == "NONE"
    member.fetch()
    assert member.acknowledge(0, (1, 1, ACCEPT)) == "NONE"
    assert member.epoch == 4


def test_an_unexpected_epoch_is_refused_by_both_apis(harness: Harness, topic_id: bytes) -> None:
    member = Member(harness, topic_id)
    member.fetch(0)
    assert member.fetch_error(epoch=9) == "INVALID_SHARE_SESSION_EPOCH"
    refused = harness.run(member.acknowledge_async({0: [(0, 0, ACCEPT)]}, epoch=9))
    assert refused.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.fetch()


def test_only_a_fetch_begins_a_session(harness: Harness, topic_id: bytes) -> None:
    member = Member(harness, topic_id)
    refused = harness.run(member.acknowledge_async({}, epoch=0))
    assert refused.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [1, -1])
def test_without_a_session_nothing_goes_on_and_nothing_ends(
    harness: Harness, topic_id: bytes, epoch: int
) -> None:
    member = Member(harness, topic_id)
    assert member.fetch_error(epoch=epoch) == "SHARE_SESSION_NOT_FOUND"
    refused = harness.run(member.acknowledge_async({0: [(0, 0, ACCEPT)]}, epoch=epoch))
    assert refused.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(
    "fields", [{"member_id": ""}, {"member_id": None}, {"group_id": None}, {"is_renew_ack": True}]
)
def test_requests_that_cannot_be_meant_are_refused(
    harness: Harness, topic_id: bytes, fields: dict[str, Any]
) -> None:
    assert Member(harness, topic_id).fetch_error(0, **fields) == "INVALID_REQUEST"


def test_a_new_session_has_nothing_to_acknowledge(harness: Harness, topic_id: bytes) -> None:
    member = Member(harness, topic_id)
    assert member.fetch_error(acks={0: [(0, 0, ACCEPT)]}) == "INVALID_REQUEST"


def test_a_renewal_that_would_fetch_is_refused_and_its_epoch_is_still_expected(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a")
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    renewal = {0: [(0, 0, RENEW)]}
    assert member.fetch_error(acks=renewal, is_renew_ack=True) == "INVALID_REQUEST"
    nothing = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait_ms": 0}
    answer = member.fetch(acks=renewal, is_renew_ack=True, **nothing)
    assert answer[0].ack_error == "NONE"


def test_forgotten_partitions_are_fetched_no_more(harness: Harness, topic_id: bytes) -> None:
    member = Member(harness, topic_id)
    member.fetch(0, 1)
    member.fetch(forgotten=(1,))
    append(harness, b"a", index=0)
    append(harness, b"b", index=1)
    assert set(member.fetch(max_wait_ms=5000)) == {0}


def test_partitions_named_later_join_the_session(harness: Harness, topic_id: bytes) -> None:
    append(harness, b"b", index=1)
    member = Member(harness, topic_id)
    member.fetch(0)
    assert member.fetch(1, max_wait_ms=5000)[1].values == [b"b"]


def test_the_end_of_a_session_gives_back_what_its_member_holds(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a", b"b")
    first, second = Member(harness, topic_id), Member(harness, topic_id, "member-2")
    assert first.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 1, 1)]
    closed = first.fetch(epoch=-1, acks={0: [(0, 0, ACCEPT)]})
    assert closed[0].ack_error == "NONE"
    assert second.fetch(0, max_wait_ms=5000)[0].acquired == [(1, 1, 2)]


def test_an_acknowledgement_with_the_final_epoch_ends_the_session_too(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a", b"b")
    first, second = Member(harness, topic_id), Member(harness, topic_id, "member-2")
    first.fetch(0, max_wait_ms=5000)
    assert first.acknowledge(0, (0, 0, ACCEPT), epoch=-1) == "NONE"
    assert second.fetch(0, max_wait_ms=5000)[0].acquired == [(1, 1, 2)]
    assert first.fetch_error(epoch=1) == "SHARE_SESSION_NOT_FOUND"


def test_a_lost_connection_gives_back_what_its_member_holds_to_who_waits(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a")
    first, second = Member(harness, topic_id), Member(harness, topic_id, "member-2")
    first.fetch(0, max_wait_ms=5000)
    second.fetch(0)

    async def run() -> Any:
        waiting = asyncio.ensure_future(second.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        first.peer.close("gone")
        return await waiting

    assert rows(harness.run(run()))[0].acquired == [(0, 0, 2)]


def test_a_session_that_begins_again_keeps_what_its_member_holds(
    harness: Harness, topic_id: bytes
) -> None:
    append(harness, b"a")
    member = Member(harness, topic_id)
    assert member.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 0, 1)]
    member.epoch = 0
    assert member.fetch(0)[0].acquired == []
    assert member.acknowledge(0, (0, 0, ACCEPT)) == "NONE"


def test_an_old_connection_does_not_end_the_session_of_a_new_one(
    harness: Harness, topic_id: bytes
) -> None:
    old, new = Member(harness, topic_id), Member(harness, topic_id)
    old.fetch(0)
    new.fetch(0)
    old.disconnect()
    new.fetch()


@pytest.mark.parametrize("harness", [{"group.share.max.share.sessions": "1"}], indirect=True)
def test_a_node_keeps_no_more_sessions_than_it_may(harness: Harness, topic_id: bytes) -> None:
    first, second = Member(harness, topic_id), Member(harness, topic_id, "member-2")
    first.fetch(0)
    assert second.fetch_error(0) == "SHARE_SESSION_LIMIT_REACHED"
    first.disconnect()
    second.fetch(0)


def test_a_session_without_partitions_does_not_wait(harness: Harness, topic_id: bytes) -> None:
    assert Member(harness, topic_id).fetch(max_wait_ms=60_000) == {}


def test_what_is_not_there_has_an_error_of_its_own(harness: Harness, topic_id: bytes) -> None:
    assert Member(harness, topic_id).fetch(7)[7].error == "UNKNOWN_TOPIC_OR_PARTITION"
    stranger = Member(harness, NO_TOPIC)
    assert stranger.fetch(0)[0].error == "UNKNOWN_TOPIC_ID"
    assert stranger.acknowledge(0, (0, 0, ACCEPT)) == "UNKNOWN_TOPIC_ID"


def test_a_share_partition_that_no_group_began_cannot_be_read(
    harness: Harness, topic_id: bytes
) -> None:
    stranger = Member(harness, topic_id, group_id="never-joined")
    assert stranger.fetch(0, max_wait_ms=5000)[0].error == "UNKNOWN_SERVER_ERROR"


def test_what_a_member_of_very_many_partitions_holds_is_given_back_in_turns(
    harness: Harness,
) -> None:
    count = 5 * RELEASES_AT_ONCE
    many_id = harness.create_topic("many", partitions=count)
    initialize(harness, many_id, *range(count), start_offset=0)
    fill(harness, count)
    member = Member(harness, many_id)
    first = take_all(member, count)
    assert first == dict.fromkeys(range(count), (0, 0, 1))

    async def come_back() -> None:
        """Have a session end and begin anew before everything was given back."""
        member.peer.close("gone")
        member.peer = type(member.peer)(harness.node.dispatcher)
        member.epoch = 0

    harness.run(come_back())
    again = take_all(member, count)
    assert again == dict.fromkeys(range(count), (0, 0, 2))
    for index in range(count):  # nothing of it was given back with the rest
        assert member.acknowledge(index, (0, 0, 1)) == "NONE"


def fill(harness: Harness, count: int) -> None:
    async def run() -> None:
        for index in range(count):
            builder = BatchBuilder()
            builder.append(NOW_MS, b"key", b"value")
            partition = harness.partition("many", index)
            partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)

    harness.run(run())


def take_all(member: Member, count: int) -> dict[int, tuple[int, int, int]]:
    """Fetch until there is one range of every partition."""
    taken: dict[int, tuple[int, int, int]] = {}
    named = range(count)
    while len(taken) < count:
        got = member.fetch(*named, max_wait_ms=9000)
        taken |= {index: row.acquired[0] for index, row in got.items() if row.acquired}
        named = range(0)
    return taken
