"""Delivery that pauses when too many records are rejected, as members of a group see it."""

import asyncio
from typing import Any

import pytest

from headrace.ids import TopicId
from headrace.web.metrics import NodeMetrics
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    REJECT,
    Member,
    append,
    configure,
    initialize,
    move_clock,
    rows,
)

PAUSE_MS = 60_000

pytestmark = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


@pytest.fixture
def topic_id(harness: Harness) -> TopicId:
    created: TopicId = harness.create_topic("orders")
    return created


def turn_on(harness: Harness, percent: str = "50") -> None:
    configure(
        harness,
        headrace_share_breaker_reject_percent=percent,
        headrace_share_breaker_records_min="4",
        headrace_share_breaker_pause_ms=str(PAUSE_MS),
    )


def opened(harness: Harness, topic_id: TopicId) -> Member:
    """Give a member of a group whose breaker has just opened, with six records to come."""
    turn_on(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    append(harness, *[b"bad"] * 4)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    assert member.acknowledge(0, (0, 3, [ACCEPT, REJECT, ACCEPT, REJECT])) == "NONE"
    for _ in range(6):
        append(harness, b"good")
    return member


def test_delivery_pauses_and_goes_on_when_one_fetch_went_well(
    harness: Harness, topic_id: TopicId, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    member = opened(harness, topic_id)
    assert "circuit breaker opened" in caplog.text
    assert member.fetch(max_wait_ms=50) == {}
    move_clock(harness, PAUSE_MS)
    assert member.fetch(max_records=2, share_acquire_mode=1)[0].acquired == [(4, 5, 1)]
    other = Member(harness, topic_id, "member-2")
    assert other.fetch(0, max_wait_ms=50)[0].acquired == []
    assert member.acknowledge(0, (4, 5, ACCEPT)) == "NONE"
    assert "circuit breaker closed" in caplog.text
    assert other.fetch()[0].acquired == [(6, 9, 1)]


def test_it_opens_again_when_the_fetch_went_badly(harness: Harness, topic_id: TopicId) -> None:
    member = opened(harness, topic_id)
    move_clock(harness, PAUSE_MS)
    member.fetch(max_records=2, share_acquire_mode=1)
    assert member.acknowledge(0, (4, 5, REJECT)) == "NONE"
    assert member.fetch(max_wait_ms=50) == {}
    lines = NodeMetrics(harness.node).text().decode().splitlines()
    assert "headrace_share_breakers_open 1.0" in lines
    assert "headrace_share_breaker_openings_total 2.0" in lines


def test_a_fetch_that_waits_is_served_when_the_pause_ends(
    harness: Harness, topic_id: TopicId
) -> None:
    member = opened(harness, topic_id)

    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        harness.clock.advance(PAUSE_MS)
        return await waiting

    assert rows(harness.run(run()))[0].acquired == [(4, 9, 1)]


def test_what_a_member_has_may_be_accepted_during_the_pause(
    harness: Harness, topic_id: TopicId
) -> None:
    turn_on(harness)
    initialize(harness, topic_id, 0, start_offset=0)
    append(harness, *[b"x"] * 6)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    member.acknowledge(0, (0, 3, REJECT))
    assert member.acknowledge(0, (4, 5, ACCEPT)) == "NONE"


def test_delivery_goes_on_at_once_when_the_breaker_is_turned_off(
    harness: Harness, topic_id: TopicId
) -> None:
    member = opened(harness, topic_id)
    turn_on(harness, "0")
    assert member.fetch()[0].acquired == [(4, 9, 1)]


def test_other_groups_are_not_held_back(harness: Harness, topic_id: TopicId) -> None:
    opened(harness, topic_id)
    initialize(harness, topic_id, 0, group_id="other", start_offset=0)
    other = Member(harness, topic_id, group_id="other")
    assert other.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 9, 1)]


def test_nothing_pauses_unless_it_is_asked_for(harness: Harness, topic_id: TopicId) -> None:
    initialize(harness, topic_id, 0, start_offset=0)
    append(harness, *[b"bad"] * 100)
    append(harness, b"good")
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000, max_records=100)
    member.acknowledge(0, (0, 99, REJECT))
    assert member.fetch()[0].acquired == [(100, 100, 1)]
