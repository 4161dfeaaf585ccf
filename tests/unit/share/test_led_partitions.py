"""Share partitions of a node: where they begin, and what they outlive."""

import asyncio
import threading
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import TopicId
from headrace.log import lookup
from headrace.metadata.ddl import DeleteTopic
from headrace.records.reader import find_records
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    NOW_MS,
    RELEASE,
    Member,
    append,
    configure,
    finished_up_to,
    initialize,
    move_clock,
    rows,
)

HOUR_MS = 3_600_000
LOCK_MS = 30_000

pytestmark = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


@pytest.fixture
def topic_id(harness: Harness) -> TopicId:
    created: TopicId = harness.create_topic("orders")
    return created


def begin(harness: Harness, topic_id: TopicId, *values: bytes) -> Member:
    """Give a member that holds records which were appended before."""
    initialize(harness, topic_id, 0, start_offset=0)
    for value in values:
        append(harness, value)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=5000)
    return member


# Where a group begins


def test_a_new_group_begins_with_what_comes(harness: Harness, topic_id: TopicId) -> None:
    append(harness, b"before")
    initialize(harness, topic_id, 0)
    member = Member(harness, topic_id)
    assert member.fetch(0, max_wait_ms=50)[0].values == []
    append(harness, b"after")
    assert member.fetch()[0].values == [b"after"]


def test_a_leader_that_is_lost_before_anything_is_acknowledged_loses_no_record(
    harness: Harness, topic_id: TopicId
) -> None:
    """The next leader starts where this one did, not at the end of the log that it finds."""
    append(harness, b"before")
    initialize(harness, topic_id, 0)
    assert Member(harness, topic_id).fetch(0, max_wait_ms=50)[0].values == []
    append(harness, b"delivered")
    harness.restart()
    append(harness, b"later")
    found = Member(harness, topic_id).fetch(0, max_wait_ms=5000)[0].values
    assert found == [b"delivered", b"later"]


def test_a_group_may_begin_with_all_there_is(harness: Harness, topic_id: TopicId) -> None:
    append(harness, b"before")
    configure(harness, share_auto_offset_reset="earliest")
    initialize(harness, topic_id, 0)
    assert Member(harness, topic_id).fetch(0, max_wait_ms=5000)[0].values == [b"before"]


@pytest.mark.parametrize(
    ("duration", "values"), [("PT1H", [b"b", b"c"]), ("P1DT30M", [b"a", b"b", b"c"])]
)
def test_a_group_may_begin_some_time_ago(
    harness: Harness, topic_id: TopicId, duration: str, values: list[bytes]
) -> None:
    harness.clock.advance(NOW_MS - harness.clock.now_ms())
    for value, age_ms in ((b"a", 2 * HOUR_MS), (b"b", HOUR_MS // 2), (b"c", 0)):
        append(harness, value, timestamp=NOW_MS - age_ms)
    configure(harness, share_auto_offset_reset=f"by_duration:{duration}")
    initialize(harness, topic_id, 0)
    assert Member(harness, topic_id).fetch(0, max_wait_ms=5000)[0].values == values


def test_where_to_begin_some_time_ago_is_looked_up_off_the_loop(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def read(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return find_records(*arguments)

    monkeypatch.setattr(lookup, "find_records", read)
    append(harness, b"a")
    configure(harness, share_auto_offset_reset="by_duration:P3650D")
    initialize(harness, topic_id, 0)
    assert Member(harness, topic_id).fetch(0, max_wait_ms=5000)[0].values == [b"a"]
    assert threads
    assert threading.get_ident() not in threads


def test_a_disk_that_fails_then_is_said_to(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(lookup, "find_records", fail)
    append(harness, b"a")
    configure(harness, share_auto_offset_reset="by_duration:P3650D")
    initialize(harness, topic_id, 0)
    row = Member(harness, topic_id).fetch(0, max_wait_ms=5000)[0]
    assert row.error == "KAFKA_STORAGE_ERROR"


def test_a_time_without_records_since_is_the_end(harness: Harness, topic_id: TopicId) -> None:
    append(harness, b"long ago", timestamp=NOW_MS - HOUR_MS)
    configure(harness, share_auto_offset_reset="by_duration:PT1S")
    initialize(harness, topic_id, 0)
    member = Member(harness, topic_id)
    assert member.fetch(0, max_wait_ms=50)[0].values == []


def test_groups_do_not_know_of_each_other(harness: Harness, topic_id: TopicId) -> None:
    begin(harness, topic_id, b"a")
    initialize(harness, topic_id, 0, group_id="other", start_offset=0)
    other = Member(harness, topic_id, group_id="other")
    assert other.fetch(0, max_wait_ms=5000)[0].values == [b"a"]


# What they outlive


def test_a_restart_keeps_what_was_accepted_and_delivers_the_rest_again(
    harness: Harness, topic_id: TopicId
) -> None:
    member = begin(harness, topic_id, b"a", b"b", b"c", b"d")
    assert member.acknowledge(0, (0, 0, ACCEPT), (2, 2, ACCEPT), (3, 3, RELEASE)) == "NONE"
    harness.restart()
    got = Member(harness, topic_id).fetch(0, max_wait_ms=9000)[0]
    assert got.values == [b"b", b"d"]
    assert got.acquired == [(1, 1, 1), (3, 3, 2)]


def test_a_forgotten_group_is_read_anew(harness: Harness, topic_id: TopicId) -> None:
    member = begin(harness, topic_id, b"a", b"b")
    initialize(harness, topic_id, 0, start_offset=1, state_epoch=2)

    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        harness.broker.share_partitions.forget_group("group")
        return await waiting

    assert rows(harness.run(run()))[0].error == "NOT_LEADER_OR_FOLLOWER"
    assert member.fetch(max_wait_ms=5000)[0].acquired == [(1, 1, 1)]


def test_a_deleted_topic_ends_the_fetches_that_wait_for_it(
    harness: Harness, topic_id: TopicId
) -> None:
    member = begin(harness, topic_id, b"a")

    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        await harness.broker.quorum.propose(DeleteTopic(topic_id, now_ms=NOW_MS))
        return await waiting

    assert rows(harness.run(run()))[0].error == "UNKNOWN_TOPIC_ID"
    assert list(harness.broker.share_partitions) == []


def test_a_leader_of_another_epoch_loads_its_state_again(
    harness: Harness, topic_id: TopicId
) -> None:
    member = begin(harness, topic_id, b"a")
    partition = harness.partition("orders", 0)

    async def run() -> None:
        harness.broker.share_partitions.on_leading(partition)

    harness.run(run())
    assert member.acknowledge(0, (0, 0, ACCEPT)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert member.fetch(max_wait_ms=5000)[0].acquired == [(0, 0, 1)]


def test_a_partition_that_is_led_elsewhere_names_its_leader(
    harness: Harness, topic_id: TopicId
) -> None:
    member = begin(harness, topic_id, b"a")
    partition = harness.partition("orders", 0)

    async def run() -> Any:
        partition.is_leader = False
        harness.broker.share_partitions.on_following(partition)
        return await member.fetch_async(max_wait_ms=9000)

    answer = harness.run(run())
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader.leader_id == harness.broker.node_id
    assert len(answer.node_endpoints) == 1


def test_a_full_window_waits_until_its_start_moves(harness: Harness, topic_id: TopicId) -> None:
    configure(harness, share_partition_max_record_locks="100")
    initialize(harness, topic_id, 0, start_offset=0)
    for _ in range(15):
        append(harness, *[b"x"] * 10)
    member = Member(harness, topic_id)
    held = member.fetch(0, max_wait_ms=5000)[0].acquired
    assert held == [(0, 99, 1)]
    assert member.fetch() == {}

    async def run() -> Any:
        other = Member(harness, topic_id, "member-2")
        waiting = asyncio.ensure_future(other.fetch_async(0, max_wait_ms=9000))
        await asyncio.sleep(0)
        await member.acknowledge_async({0: [(0, 49, ACCEPT)]})
        return await waiting

    assert rows(harness.run(run()))[0].acquired == [(100, 149, 1)]
    assert finished_up_to(harness, topic_id) == 50


# Groups without sessions


def loaded(harness: Harness) -> list[str]:
    return [led.key.group_id for led in harness.broker.share_partitions]


def test_a_group_without_sessions_is_unloaded_and_goes_on_where_it_was(
    harness: Harness, topic_id: TopicId
) -> None:
    member = begin(harness, topic_id, b"a", b"b", b"c", b"d")
    assert member.acknowledge(0, (0, 0, ACCEPT), (2, 2, ACCEPT), (3, 3, RELEASE)) == "NONE"
    member.fetch(epoch=-1)  # gives back offset 1
    move_clock(harness, LOCK_MS - 1000)
    assert loaded(harness) == ["group"]
    move_clock(harness, 2000)
    assert loaded(harness) == []
    assert harness.broker.share_partitions.breaker_of("group") is None
    got = Member(harness, topic_id, "member-2").fetch(0, max_wait_ms=9000)[0]
    assert got.acquired == [(1, 1, 2), (3, 3, 2)]


def test_groups_of_ever_new_names_leave_nothing_behind(harness: Harness, topic_id: TopicId) -> None:
    for number in range(5):
        initialize(harness, topic_id, 0, group_id=f"group-{number}", start_offset=0)
        member = Member(harness, topic_id, group_id=f"group-{number}")
        member.fetch(0, max_wait_ms=10)
        member.disconnect()
    assert len(loaded(harness)) == 5
    move_clock(harness, LOCK_MS)
    assert loaded(harness) == []


def test_a_group_with_a_session_stays_loaded(harness: Harness, topic_id: TopicId) -> None:
    leaving = begin(harness, topic_id, b"a")
    staying = Member(harness, topic_id, "member-2")
    staying.fetch(0)
    leaving.disconnect()
    move_clock(harness, 10 * LOCK_MS)
    assert loaded(harness) == ["group"]
    staying.disconnect()
    move_clock(harness, LOCK_MS)
    assert loaded(harness) == []


def test_a_group_that_comes_back_in_time_is_not_loaded_again(
    harness: Harness, topic_id: TopicId
) -> None:
    begin(harness, topic_id, b"a").disconnect()
    (before,) = harness.broker.share_partitions
    move_clock(harness, LOCK_MS // 2)
    Member(harness, topic_id, "member-2").fetch(0)
    move_clock(harness, 10 * LOCK_MS)
    (after,) = harness.broker.share_partitions
    assert after is before


def test_a_group_stays_loaded_until_what_it_said_is_written(
    harness: Harness, topic_id: TopicId
) -> None:
    member = begin(harness, topic_id, b"a")
    shares = harness.broker.share_partitions
    persister, held = shares.persister, HeldPersister(shares.persister)
    shares.persister = held

    async def leave() -> None:
        asyncio.ensure_future(member.acknowledge_async({0: [(0, 0, ACCEPT)]}))  # noqa: RUF006
        await asyncio.sleep(0)
        member.peer.close("gone")

    harness.run(leave())
    move_clock(harness, 3 * LOCK_MS)
    assert loaded(harness) == ["group"]
    shares.persister = persister

    async def write() -> None:
        held.release()

    harness.run(write())
    harness.run(asyncio.sleep(0.01))
    move_clock(harness, 3 * LOCK_MS)
    assert loaded(harness) == []
    assert finished_up_to(harness, topic_id) == 1


class HeldPersister:
    """Writes states when it is told to."""

    def __init__(self, persister: Any) -> None:
        self._persister = persister
        self._calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._persister, name)

    def write_state(self, *call: Any) -> None:
        self._calls.append(call)

    def release(self) -> None:
        for call in self._calls:
            self._persister.write_state(*call)


def test_a_group_stays_loaded_while_its_records_rest(harness: Harness, topic_id: TopicId) -> None:
    configure(
        harness,
        headrace_share_release_backoff_ms="90000",
        headrace_share_release_backoff_max_ms="90000",
    )
    member = begin(harness, topic_id, b"a")
    assert member.acknowledge(0, (0, 0, RELEASE)) == "NONE"
    member.disconnect()
    move_clock(harness, LOCK_MS + 1000)
    assert loaded(harness) == ["group"]
    move_clock(harness, 60_000)
    move_clock(harness, LOCK_MS)
    assert loaded(harness) == []
