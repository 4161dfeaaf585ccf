"""ShareFetch: which records a member gets, when, and in which bytes."""

import asyncio
from itertools import count, pairwise
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import TopicId
from headrace.log import transactions
from headrace.log.transactions import FirstLook
from headrace.loop.turns import TURN_COST_MAX
from headrace.metadata.ddl import SetQuota
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import assign_offset, read_headers, seal
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.unit.harness import Harness
from tests.unit.share.share_client import (
    ACCEPT,
    GAP,
    NOW_MS,
    RELEASE,
    Member,
    Row,
    append,
    append_now,
    configure,
    initialize,
    rows,
)

RECORD_LIMIT = 1
MAGIC_AT = 16

pytestmark = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


@pytest.fixture
def topic_id(harness: Harness) -> TopicId:
    topic_id: TopicId = harness.create_topic("orders", partitions=3)
    initialize(harness, topic_id, 0, 1, 2, start_offset=0)
    return topic_id


@pytest.fixture
def member(harness: Harness, topic_id: TopicId) -> Member:
    """A member whose session has loaded every partition."""
    member = Member(harness, topic_id)
    member.fetch(0, 1, 2)
    while not all(led.is_active for led in harness.broker.share_partitions):
        harness.run(asyncio.sleep(0))
    return member


PRODUCER_IDS = count(7)


def append_transaction(
    harness: Harness, *values: bytes, is_committed: bool | None, is_batched: bool = True
) -> None:
    """Append a transaction of a producer of its own; None leaves it open."""
    producer_id = next(PRODUCER_IDS)

    async def run() -> None:
        partition = harness.partition("orders", 0)
        for sequence, batch_values in enumerate(
            [values] if is_batched else [(each,) for each in values]
        ):
            builder = BatchBuilder()
            for value in batch_values:
                builder.append(NOW_MS, b"key", value)
            batch = builder.build(
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            partition.append(memoryview(batch), NOW_MS, needs_replicas=False)
        if is_committed is not None:
            marker = build_end_transaction_marker(
                NOW_MS,
                is_commit=is_committed,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
            )
            partition.append_own(memoryview(marker))

    harness.run(run())


# What is acquired


def test_records_between_those_that_others_hold_are_found_in_one_fetch(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    for number in range(200):
        append(harness, b"%d" % number)
    member.fetch(max_records=200)
    released = range(0, 200, 10)
    assert member.acknowledge(0, *((offset, offset, RELEASE) for offset in released)) == "NONE"
    other = Member(harness, topic_id, "member-2")
    got = other.fetch(0, max_records=10)[0]
    assert [first for first, _, _ in got.acquired] == list(released)[:10]


def test_records_of_partitions_are_counted_by_what_can_be_acquired(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    """A partition of which little is left does not use up what another one could give."""
    for number in range(20):
        append(harness, b"%d" % number)
    member.fetch(max_records=20)
    assert member.acknowledge(0, (0, 0, RELEASE), (15, 15, RELEASE)) == "NONE"
    append(harness, b"a", index=1)
    other = Member(harness, topic_id, "member-2")
    got = other.fetch(0, 1, max_records=10)
    assert [first for first, _, _ in got[0].acquired] == [0, 15]
    assert got[1].values == [b"a"]


def test_members_get_different_records(harness: Harness, topic_id: TopicId, member: Member) -> None:
    append(harness, b"a", b"b")
    other = Member(harness, topic_id, "member-2")
    assert member.fetch()[0].values == [b"a", b"b"]
    append(harness, b"c")
    assert other.fetch(0)[0].values == [b"c"]
    assert member.fetch() == {}


@pytest.mark.parametrize("mode", [0, RECORD_LIMIT])
@pytest.mark.parametrize("codec", [0, 1, 7])
def test_offsets_that_cannot_have_records_are_passed_over_at_once(
    harness: Harness, member: Member, caplog: pytest.LogCaptureFixture, mode: int, codec: int
) -> None:
    """An older version took 101 bytes that claim 2^31-1 records."""
    claimed = 2**31 - 1
    append(harness, b"a")

    async def run() -> None:
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", bytes(30))
        batch = memoryview(builder.build())
        batch[21:27] = pack(">hi", codec, claimed - 1)
        batch[57:61] = pack(">i", claimed)
        assign_offset(batch, 1, 0)
        seal(batch)
        partition = harness.partition("orders", 0)
        partition.log.append_replicated(batch)
        partition.on_appended(len(batch))

    harness.run(run())
    append(harness, b"b")
    found: list[bytes | None] = []
    while len(found) < 2:
        row = member.fetch(max_records=1, share_acquire_mode=mode)[0]
        found += row.values
        member.acknowledge(0, *[(first, last, ACCEPT) for first, last, _ in row.acquired])
    assert found == [b"a", b"b"]
    lines = [line for line in caplog.messages if "cannot be read" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"offsets 1 to {claimed} cannot be read")


def test_an_answer_has_only_the_batches_that_were_acquired(
    harness: Harness, member: Member
) -> None:
    for value in (b"a", b"b", b"c"):
        append(harness, value)
    answer = harness.run(member.fetch_async(max_records=2))
    row = answer.responses[0].partitions[0]
    assert [header.base_offset for _, header in read_headers(row.records)] == [0, 1]
    assert member.fetch()[0].values == [b"c"]


def test_whole_batches_are_acquired_even_if_that_is_more_than_asked_for(
    harness: Harness, member: Member
) -> None:
    append(harness, b"a", b"b", b"c")
    append(harness, b"d")
    assert member.fetch(max_records=2)[0].acquired == [(0, 2, 1)]


def test_a_record_limit_is_kept_within_a_batch(harness: Harness, member: Member) -> None:
    append(harness, b"a", b"b", b"c")
    limit = {"max_records": 2, "share_acquire_mode": RECORD_LIMIT}
    assert member.fetch(**limit)[0].values == [b"a", b"b"]
    assert member.fetch(**limit)[0].values == [b"c"]


def test_a_number_of_records_is_for_all_partitions_together_and_each_has_its_turn(
    harness: Harness, member: Member
) -> None:
    for index in range(3):
        append(harness, b"a", index=index)
        append(harness, b"b", index=index)
    firsts = [next(iter(member.fetch(max_records=1))) for _ in range(6)]
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2]
    assert set(firsts[:3]) == {0, 1, 2}


def test_bytes_are_split_over_partitions_and_the_first_batch_is_whole(
    harness: Harness, member: Member
) -> None:
    for index in range(3):
        append(harness, b"a" * 100, index=index)
    assert len(member.fetch(max_bytes=10)) == 1
    got = member.fetch(max_bytes=1_000_000)
    assert len(got) == 2


def test_many_small_batches_are_read_up_to_the_number_of_records(
    harness: Harness, member: Member
) -> None:
    async def run() -> None:
        for number in range(1200):
            append_now(harness, b"%d" % number)

    harness.run(run())
    values = [value for _ in range(3) for value in member.fetch(max_records=500)[0].values]
    assert values == [b"%d" % number for number in range(1200)]


def test_ranges_of_an_answer_are_no_longer_than_the_batch_size(
    harness: Harness, member: Member
) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        append(harness, value)
    assert member.fetch(batch_size=2)[0].acquired == [(0, 1, 1), (2, 3, 1)]


def test_no_records_means_an_empty_buffer(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    member.epoch = 0
    answer = harness.run(member.fetch_async(0))
    assert answer.responses[0].partitions[0].records == b""


def test_the_lock_time_of_the_group_is_in_every_answer(harness: Harness, member: Member) -> None:
    assert harness.run(member.fetch_async()).acquisition_lock_timeout_ms == 30_000
    configure(harness, share_record_lock_duration_ms="20000")
    assert harness.run(member.fetch_async()).acquisition_lock_timeout_ms == 20_000


def test_an_acquire_mode_that_there_is_not_fails(member: Member) -> None:
    assert member.fetch_error(share_acquire_mode=7) == "UNKNOWN_SERVER_ERROR"


def test_what_a_fetch_acknowledges_counts_even_if_its_acquire_mode_is_unknown(
    harness: Harness, member: Member
) -> None:
    append(harness, b"a", b"b", b"c")
    member.fetch()
    acknowledged = {0: [(1, 1, ACCEPT)]}
    assert member.fetch_error(acks=acknowledged, share_acquire_mode=7) == "UNKNOWN_SERVER_ERROR"
    member.epoch += 1
    assert member.acknowledge(0, (1, 1, ACCEPT)) == "INVALID_RECORD_STATE"


# Waiting


def test_a_fetch_waits_for_records(harness: Harness, member: Member) -> None:
    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        append_now(harness, b"a")
        return await waiting

    assert rows(harness.run(run()))[0].values == [b"a"]


def test_a_fetch_without_records_ends_when_its_time_is_over(member: Member) -> None:
    assert member.fetch(max_wait_ms=10) == {}


def test_with_flush_messages_1_a_fetch_that_waits_gets_records_once_they_are_on_disk(
    harness: Harness,
) -> None:
    topic_id = harness.create_topic("orders", configs={"flush.messages": "1"})
    initialize(harness, topic_id, 0, start_offset=0)
    member = Member(harness, topic_id)
    member.fetch(0)
    while not all(led.is_active for led in harness.broker.share_partitions):
        harness.run(asyncio.sleep(0))

    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        append_now(harness, b"a")
        return await waiting

    assert rows(harness.run(run()))[0].values == [b"a"]


def test_less_than_the_least_number_of_bytes_is_waited_with_and_then_given(
    harness: Harness, member: Member
) -> None:
    append(harness, b"a")

    async def run() -> Any:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000, min_bytes=150))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        append_now(harness, b"b" * 100, index=1)
        return await waiting

    assert set(rows(harness.run(run()))) == {0, 1}
    append(harness, b"c")
    assert member.fetch(max_wait_ms=10, min_bytes=1_000_000)[0].values == [b"c"]


def test_those_who_wait_longest_are_served_first(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    others = [Member(harness, topic_id, f"member-{number}") for number in (2, 3)]

    async def run() -> list[Any]:
        waiting = [asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))]
        for other in others:
            fetch = other.fetch_async(0, max_wait_ms=9000)
            waiting.append(asyncio.ensure_future(fetch))
        await asyncio.sleep(0)
        for value in (b"a", b"b", b"c"):
            append_now(harness, value)
            for _ in range(5):
                await asyncio.sleep(0)
        return [await each for each in waiting]

    answers = harness.run(run())
    assert [rows(answer)[0].values for answer in answers] == [[b"a"], [b"b"], [b"c"]]


def test_released_records_wake_who_waits(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    append(harness, b"a")
    member.fetch()
    other = Member(harness, topic_id, "member-2")
    other.fetch(0)

    async def run() -> Any:
        waiting = asyncio.ensure_future(other.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        await member.acknowledge_async({0: [(0, 0, RELEASE)]})
        return await waiting

    assert rows(harness.run(run()))[0].acquired == [(0, 0, 2)]


def test_a_fetch_that_acknowledges_waits_for_records_and_has_both_outcomes(
    harness: Harness, member: Member
) -> None:
    append(harness, b"a")
    member.fetch()
    append(harness, b"b")
    got = member.fetch(acks={0: [(0, 0, ACCEPT)], 1: [(0, 0, ACCEPT)]})
    assert got[0].ack_error == "NONE"
    assert got[0].values == [b"b"]
    assert got[1].ack_error == "INVALID_RECORD_STATE"


def limit(harness: Harness, value: float | None) -> None:
    change = SetQuota((("user", None),), "consumer_byte_rate", value)
    harness.run(harness.broker.quorum.propose(change))


def test_a_member_that_read_too_much_acknowledges_and_gets_no_more_until_it_may(
    harness: Harness, member: Member
) -> None:
    append(harness, b"a" * 5000)
    append(harness, b"b")
    limit(harness, 100)
    answer = harness.run(member.fetch_async(max_records=1))
    assert rows(answer)[0].values == [b"a" * 5000]
    # Neither the node nor the client, which would believe a throttle time, holds the next back.
    assert (answer.throttle_time_ms, member.peer.muted_ms) == (0, [])
    assert harness.node.counters.quotas["fetch"].throttled == 1
    got = member.fetch(acks={0: [(0, 0, ACCEPT)]}, max_wait_ms=1)
    assert (got[0].ack_error, got[0].values) == ("NONE", [])
    assert member.peer.muted_ms == []
    limit(harness, None)
    assert member.fetch()[0].acquired == [(1, 1, 1)]


def test_a_member_that_waits_gets_records_once_it_may_have_them(
    harness: Harness, member: Member
) -> None:
    append(harness, b"a" * 5000)
    append(harness, b"b")
    limit(harness, 499)  # a little less than what it reads, in ten seconds
    assert member.fetch(max_records=1)[0].values == [b"a" * 5000]
    got: dict[int, Row] = {}
    while not got:  # the clock of the loop may be a little fast
        got = member.fetch(
            acks={0: [(0, 0, ACCEPT)]} if member.epoch == 2 else None, max_wait_ms=9000
        )
    assert got[0].values == [b"b"]


def test_a_connection_that_is_lost_takes_nothing_with_it(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    async def run() -> None:
        waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=9000))
        await asyncio.sleep(0)
        member.peer.close("gone")
        append_now(harness, b"a")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    harness.run(run())
    other = Member(harness, topic_id, "member-2")
    assert other.fetch(0)[0].acquired == [(0, 0, 1)]


# Transactions, compaction, deletion


def test_an_uncommitted_reader_gets_everything_markers_included(
    harness: Harness, member: Member
) -> None:
    append_transaction(harness, b"a", is_committed=False)
    append_transaction(harness, b"b", is_committed=None)
    got = member.fetch()[0]
    assert got.acquired == [(0, 2, 1)]
    assert got.values == [b"a", b"b"]
    assert member.acknowledge(0, (0, 2, [ACCEPT, GAP, ACCEPT])) == "NONE"


def test_a_committed_reader_gets_no_aborted_records_and_stops_at_what_is_open(
    harness: Harness, topic_id: TopicId
) -> None:
    configure(harness, share_isolation_level="read_committed")
    append_transaction(harness, b"a", is_committed=True)  # 0, its marker 1
    append_transaction(harness, b"b", b"c", is_committed=False)  # 2 and 3, its marker 4
    append(harness, b"d")
    append_transaction(harness, b"open", is_committed=None)  # 6
    append(harness, b"e")
    got = Member(harness, topic_id).fetch(0, max_wait_ms=5000)[0]
    assert got.acquired == [(0, 1, 1), (4, 5, 1)]
    assert got.values == [b"a", b"d"]


def test_records_that_only_aborted_transactions_have_do_not_hold_up_what_follows(
    harness: Harness, topic_id: TopicId
) -> None:
    configure(harness, share_isolation_level="read_committed")
    append_transaction(harness, *[b"aborted"] * 50, is_committed=False)
    append(harness, b"a")
    member = Member(harness, topic_id)
    values: list[bytes | None] = []
    while not values:
        got = member.fetch(0, max_wait_ms=5000, max_records=1)[0]
        values = got.values
        member.acknowledge(0, *((first, last, GAP) for first, last, _ in got.acquired))
    assert values == [b"a"]


def test_many_aborted_transactions_are_looked_at_first_in_a_thread(
    harness: Harness, topic_id: TopicId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "UNREAD_MAX", 256)
    looks: list[FirstLook] = []
    run = FirstLook.run

    def recorded(look: FirstLook) -> None:
        looks.append(look)
        run(look)

    monkeypatch.setattr(FirstLook, "run", recorded)
    configure(harness, share_isolation_level="read_committed")
    for _ in range(300):
        append_transaction(harness, b"aborted", is_committed=False)
    append(harness, b"a")
    member = Member(harness, topic_id)
    values: list[bytes | None] = []
    while not values:
        got = member.fetch(0, max_wait_ms=5000, max_records=1000)[0]
        values = got.values
        member.acknowledge(0, *((first, last, GAP) for first, last, _ in got.acquired))
    assert values == [b"a"]
    assert len(looks) == 1


def test_a_fetch_looks_on_however_many_batches_nobody_may_have(
    harness: Harness, topic_id: TopicId
) -> None:
    configure(harness, share_isolation_level="read_committed")
    append_transaction(harness, *[b"aborted"] * 100, is_committed=False, is_batched=False)
    got = Member(harness, topic_id).fetch(0, max_wait_ms=60_000, max_records=1)[0]
    assert got.acquired == [(100, 100, 1)]  # the marker


def test_deleted_records_are_skipped(harness: Harness, topic_id: TopicId, member: Member) -> None:
    for value in (b"a", b"b", b"c"):
        append(harness, value)
    member.fetch(max_records=1)
    asked = DeleteRecordsTopic(
        name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    deleted = harness.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=5000), 2)
    assert deleted.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert member.fetch()[0].acquired == [(2, 2, 1)]


def test_offsets_that_compaction_took_are_passed_over(harness: Harness, topic_id: TopicId) -> None:
    def batch_at(offset: int, value: bytes) -> bytearray:
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", value)
        batch = builder.build(base_offset=offset)
        return bytearray(batch)

    async def run() -> None:
        partition = harness.partition("orders", 0)
        for offset in (3, 7):  # as a leader with a compacted log has them
            partition.log.append_replicated(memoryview(batch_at(offset, b"%d" % offset)))
        partition.log.advance_high_watermark(partition.log.end_offset)

    harness.run(run())
    member = Member(harness, topic_id)
    got = member.fetch(0, max_wait_ms=5000)[0]
    assert got.values == [b"3", b"7"]
    for first, last, _ in got.acquired:
        assert member.acknowledge(0, (first, last, ACCEPT)) == "NONE"
    append(harness, b"8")
    assert member.fetch()[0].values == [b"8"]


def test_records_that_are_not_in_memory_are_read_by_a_thread(
    harness: Harness, member: Member, cold_files: Any
) -> None:
    append(harness, b"a")
    cold_files.drop(harness, "orders", 0)
    assert member.fetch()[0].values == [b"a"]
    assert cold_files.waits == 1


def test_what_is_in_memory_does_not_wait_for_what_is_not(
    harness: Harness, member: Member, cold_files: Any
) -> None:
    for index in range(3):
        append(harness, b"%d" % index, index=index)
    cold_files.drop(harness, "orders", 0, 1)

    async def ask() -> Any:
        answer = await member.fetch_async()
        await asyncio.gather(*harness.broker.cold_fetches)
        return answer

    assert list(rows(harness.run(ask()))) == [2]
    assert cold_files.waits == 2
    assert sorted(member.fetch()) == [0, 1]


def test_the_time_to_wait_does_not_begin_anew_after_a_cold_read(
    harness: Harness, member: Member, cold_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> list[float]:
        loop, delays = asyncio.get_running_loop(), list[float]()
        call_later = loop.call_later

        def note(delay: float, *arguments: Any, **options: Any) -> Any:
            delays.append(delay)
            return call_later(delay, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_later", note)
            waiting = asyncio.ensure_future(member.fetch_async(max_wait_ms=70, min_bytes=1_000_000))
            await asyncio.sleep(0)
            append_now(harness, b"a")
            cold_files.drop(harness, "orders", 0)
            answer = await waiting
        assert rows(answer)[0].values == [b"a"]
        assert cold_files.waits == 1
        return delays

    assert harness.run(ask()).count(0.07) == 1


def test_batches_before_a_damaged_header_are_delivered(
    harness: Harness, member: Member, tmp_path: Path
) -> None:
    for value in (b"a", b"b", b"c"):
        append(harness, value)
    (segment,) = tmp_path.rglob("orders-0/*.log")
    written = bytearray(segment.read_bytes())
    (_, (second, _), _) = read_headers(written)
    written[second + MAGIC_AT] = 0xFF
    with segment.open("r+b") as file:
        file.write(written)
    assert member.fetch(0)[0].values == [b"a"]
    assert member.fetch(0, acks={0: [(0, 0, ACCEPT)]})[0].error == "CORRUPT_MESSAGE"


# Much at once


def test_one_append_wakes_many_fetches_some_in_each_turn(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    members = [Member(harness, topic_id, f"other-{number}") for number in range(100)]
    led = harness.broker.share_partitions.find("group", (topic_id, 0))
    assert led is not None

    async def ask() -> list[int]:
        waiting = [
            asyncio.ensure_future(each.fetch_async(0, max_wait_ms=60_000, max_records=1))
            for each in members
        ]
        while len(led.waiters) < len(members):
            await asyncio.sleep(0)
        for _ in members:
            append_now(harness, b"a")
        left = []
        while led.waiters:
            await asyncio.sleep(0)
            left.append(len(led.waiters))
        acquired = [rows(each)[0].acquired for each in await asyncio.gather(*waiting)]
        assert acquired == [[(offset, offset, 1)] for offset in range(len(members))]
        return left

    left = [len(members), *harness.run(ask())]
    assert max(before - after for before, after in pairwise(left)) < len(members) / 3


def test_a_session_of_very_many_partitions_is_looked_through_in_turns(harness: Harness) -> None:
    count = 3 * TURN_COST_MAX
    many_id = harness.create_topic("many", partitions=count)
    initialize(harness, many_id, *range(count), start_offset=0)
    member = Member(harness, many_id)
    last = harness.partition("many", count - 1)

    async def ask(*named: int) -> tuple[Any, int]:
        waiting = asyncio.ensure_future(member.fetch_async(*named, max_wait_ms=60_000))
        turns = 0
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)
        return await waiting, turns

    async def append_last() -> None:
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"a")
        last.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)

    harness.run(append_last())
    answer, turns = harness.run(ask(*range(count)))
    assert rows(answer)[count - 1].values == [b"a"]
    assert turns > 3
    harness.run(append_last())
    answer, turns = harness.run(ask())
    assert list(rows(answer)) == [count - 1]
    assert turns > 3


def test_what_a_fetch_acknowledges_is_done_when_its_handler_returns(
    harness: Harness, topic_id: TopicId, member: Member
) -> None:
    append(harness, b"a", b"b")
    member.fetch()
    led = harness.broker.share_partitions.find("group", (topic_id, 0))
    assert led is not None

    async def ask() -> str:
        fetching = asyncio.ensure_future(
            member.fetch_async(acks={0: [(0, 0, ACCEPT)]}, max_wait_ms=60_000)
        )
        await asyncio.sleep(0)  # the request is dispatched, and waits for records
        assert not fetching.done()
        again = await member.acknowledge_async({0: [(0, 0, ACCEPT)]}, epoch=member.epoch + 1)
        append_now(harness, b"c")
        assert rows(await fetching)[0].ack_error == "NONE"
        return ErrorCode(again.responses[0].partitions[0].error_code).name

    assert harness.run(ask()) == "INVALID_RECORD_STATE"
    assert led.machine.start_offset == 1
