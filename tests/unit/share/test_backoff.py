"""Released records that rest before they are delivered again."""

import asyncio
from typing import Any

import pytest

from headrace.ids import TopicId
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    RELEASE,
    Member,
    append,
    configure,
    initialize,
    move_clock,
    rows,
)

pytestmark = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


@pytest.fixture
def member(harness: Harness) -> Member:
    """A member that holds two records of a group whose records rest for 10 s, then 20 s, 25 s."""
    topic_id: TopicId = harness.create_topic("orders")
    configure(
        harness,
        headrace_share_release_backoff_ms="10000",
        headrace_share_release_backoff_max_ms="25000",
    )
    initialize(harness, topic_id, 0, start_offset=0)
    append(harness, b"a", b"b")
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    return member


def test_a_released_record_rests_longer_each_time(harness: Harness, member: Member) -> None:
    member.acknowledge(0, (0, 1, [RELEASE, ACCEPT]))
    for count, rest_ms in enumerate((10_000, 20_000, 25_000), start=2):
        move_clock(harness, rest_ms - 1000)
        assert member.fetch(max_wait_ms=20) == {}
        move_clock(harness, 1000)
        assert member.fetch()[0].acquired == [(0, 0, count)]
        member.acknowledge(0, (0, 0, RELEASE))


def test_others_are_delivered_meanwhile(harness: Harness, member: Member) -> None:
    member.acknowledge(0, (0, 0, RELEASE))
    append(harness, b"c")
    assert member.fetch()[0].acquired == [(2, 2, 1)]


def test_a_fetch_that_waits_gets_a_record_when_it_has_rested(
    harness: Harness, member: Member
) -> None:
    member.acknowledge(0, (0, 1, [RELEASE, ACCEPT]))

    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        harness.clock.advance(10_000)
        return await waiting

    assert rows(harness.run(run()))[0].values == [b"a"]


def test_what_a_member_left_behind_does_not_rest(harness: Harness, member: Member) -> None:
    member.disconnect()
    other = Member(harness, member.topic_id, "member-2")
    assert other.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 1, 2)]
