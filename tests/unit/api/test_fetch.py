"""Fetch: what is read, when it is answered, and what a session leaves out."""

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest

from headrace.api.fetch import PARTITIONS_PER_TURN
from headrace.errors import ErrorCode
from headrace.log import transactions
from headrace.log.fetch import ColdRead
from headrace.log.transactions import FirstLook
from headrace.loop.turns import ANSWER_COST, TURN_COST_MAX
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import read_headers
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000
LATEST = 18


def append(harness: Harness, *values: bytes, index: int = 0, topic: str = "orders") -> None:
    builder = BatchBuilder()
    for value in values:
        builder.append(NOW_MS, b"key", value)

    async def run() -> None:
        partition = harness.partition(topic, index)
        partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)

    harness.run(run())


def fetch(
    topic_id: bytes,
    *offsets: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10_000_000,
    partition_max_bytes: int = 1_000_000,
    epoch: int = -1,
    last_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    partitions = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )
        for index, offset in enumerate(offsets)
    ]
    topics = [FetchTopic(topic="orders", topic_id=topic_id, partitions=partitions)]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=topics if partitions else [],
        session_epoch=fields.pop("session_epoch", -1),
        **fields,
    )


def rows(response: Any) -> dict[int, Any]:
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


def base_offsets(row: Any) -> list[int]:
    return [header.base_offset for _, header in read_headers(memoryview(row.records))]


@pytest.mark.parametrize("version", range(4, LATEST + 1))
def test_each_version_reads_what_was_produced(harness: Harness, version: int) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a", b"b")
    row = rows(harness.ask(fetch(topic_id, 0), version))[0]
    assert (row.error_code, row.high_watermark, base_offsets(row)) == (0, 2, [0])


def test_an_offset_within_a_batch_gives_the_whole_batch(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a", b"b", b"c")
    assert base_offsets(rows(harness.ask(fetch(topic_id, 2), LATEST))[0]) == [0]


def test_no_records_are_empty_and_not_null(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    row = rows(harness.ask(fetch(topic_id, 0), LATEST))[0]
    assert row.records is not None
    assert len(row.records) == 0


def test_the_first_batch_comes_however_small_the_limits_are(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", partitions=2)
    append(harness, b"x" * 1000)
    append(harness, b"y" * 1000, index=1)
    answer = harness.ask(fetch(topic_id, 0, 0, max_bytes=1, partition_max_bytes=1), LATEST)
    assert [len(row.records) > 1000 for row in rows(answer).values()] == [True, False]


def test_bytes_over_all_partitions_are_bounded_by_whole_batches(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", partitions=3)
    for index in range(3):
        append(harness, b"x" * 1000, index=index)
    answer = harness.ask(fetch(topic_id, 0, 0, 0, max_bytes=2500), LATEST)
    assert [bool(row.records) for row in rows(answer).values()] == [True, True, False]


@pytest.mark.parametrize(
    ("offset", "options", "code"),
    [
        (2, {}, ErrorCode.NONE),
        (3, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {"epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_offsets_and_epochs_are_judged_as_kafka_judges_them(
    harness: Harness, offset: int, options: dict[str, int], code: ErrorCode
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a", b"b")
    row = rows(harness.ask(fetch(topic_id, offset, **options), LATEST))[0]
    assert ErrorCode(row.error_code) is code


def test_unknown_topics_are_said_to_be_so_by_name_and_by_id(harness: Harness) -> None:
    by_name = rows(harness.ask(fetch(bytes(16), 0), 12))[0]
    by_id = rows(harness.ask(fetch(b"?" * 16, 0), 13))[0]
    assert ErrorCode(by_name.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode(by_id.error_code) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_reader_of_a_log_that_was_cut_hears_where_it_diverged(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a", b"b")
    row = rows(harness.ask(fetch(topic_id, 5, last_epoch=0), LATEST))[0]
    assert (row.error_code, len(row.records)) == (0, 0)
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 2)


def test_a_fetch_waits_at_the_end_until_something_is_appended(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")

    async def ask() -> Any:
        waiting = asyncio.ensure_future(
            harness.ask_async(fetch(topic_id, 0, max_wait_ms=60_000), LATEST)
        )
        partition = harness.partition("orders", 0)
        while not partition.fetch_waiters:
            await asyncio.sleep(0)
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)
        answer = await waiting
        assert not partition.fetch_waiters
        return answer

    assert base_offsets(rows(harness.run(ask()))[0]) == [0]


def test_a_fetch_waits_for_min_bytes_over_all_its_partitions(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", partitions=2)

    async def ask() -> Any:
        waiting = asyncio.ensure_future(
            harness.ask_async(fetch(topic_id, 0, 0, max_wait_ms=60_000, min_bytes=1500), LATEST)
        )
        partitions = [harness.partition("orders", index) for index in range(2)]
        while not partitions[0].fetch_waiters:
            await asyncio.sleep(0)
        for partition in partitions:
            builder = BatchBuilder()
            builder.append(NOW_MS, b"key", b"x" * 1000)
            assert not waiting.done()
            partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)
            for _ in range(3):
                await asyncio.sleep(0)
        return await waiting

    assert [base_offsets(row) for row in rows(harness.run(ask())).values()] == [[0], [0]]


def test_a_fetch_that_waited_in_vain_is_answered_empty(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    row = rows(harness.ask(fetch(topic_id, 0, max_wait_ms=20), LATEST))[0]
    assert (row.error_code, len(row.records)) == (0, 0)
    assert not harness.partition("orders", 0).fetch_waiters


def test_a_client_that_leaves_is_waited_for_no_more(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")

    async def leave() -> None:
        waiting = asyncio.ensure_future(
            harness.ask_async(fetch(topic_id, 0, max_wait_ms=60_000), LATEST)
        )
        partition = harness.partition("orders", 0)
        while not partition.fetch_waiters:
            await asyncio.sleep(0)
        harness.peer.close("left")
        assert not partition.fetch_waiters
        waiting.cancel()

    harness.run(leave())


def test_a_session_hears_only_what_is_new(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", partitions=2)
    append(harness, b"a")
    first = harness.ask(fetch(topic_id, 0, 0, session_epoch=0), LATEST)
    assert sorted(rows(first)) == [0, 1]
    session = {"session_id": first.session_id}
    assert rows(harness.ask(fetch(topic_id, 1, session_epoch=1, **session), LATEST)) == {}
    append(harness, b"b", index=1)
    news = rows(harness.ask(fetch(topic_id, session_epoch=2, **session), LATEST))
    assert [(index, base_offsets(row)) for index, row in news.items()] == [(1, [0])]


def test_a_session_forgets_what_it_is_told_to(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", partitions=2)
    first = harness.ask(fetch(topic_id, 0, 0, session_epoch=0), LATEST)
    append(harness, b"a")
    append(harness, b"b", index=1)
    request = fetch(topic_id, session_epoch=1, session_id=first.session_id)
    request.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
    assert list(rows(harness.ask(request, LATEST))) == [1]


def test_an_error_is_heard_again_until_it_is_gone(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    first = harness.ask(fetch(topic_id, 7, session_epoch=0), LATEST)
    for epoch in (1, 2):
        again = fetch(topic_id, session_epoch=epoch, session_id=first.session_id)
        row = rows(harness.ask(again, LATEST))[0]
        assert ErrorCode(row.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_session_that_is_not_there_is_an_error_of_the_whole(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    answer = harness.ask(fetch(topic_id, 0, session_id=99, session_epoch=1), LATEST)
    assert ErrorCode(answer.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (answer.responses, answer.session_id) == ([], 0)


def test_committed_readers_stop_at_an_open_transaction_and_hear_of_aborted_ones(
    harness: Harness,
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"plain")

    async def write(batch: bytearray) -> None:
        harness.partition("orders", 0).append_own(memoryview(batch))

    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"transactional")
    harness.run(
        write(
            builder.build(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
        )
    )
    committed = rows(harness.ask(fetch(topic_id, 0, isolation_level=1), LATEST))[0]
    assert (committed.last_stable_offset, base_offsets(committed)) == (1, [0])
    assert committed.aborted_transactions == []
    uncommitted = rows(harness.ask(fetch(topic_id, 0), LATEST))[0]
    assert (base_offsets(uncommitted), uncommitted.aborted_transactions) == ([0, 1], None)
    marker = build_end_transaction_marker(
        NOW_MS, is_commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=0
    )
    harness.run(write(marker))
    aborted = rows(harness.ask(fetch(topic_id, 0, isolation_level=1), LATEST))[0]
    assert aborted.last_stable_offset == 3
    assert [(a.producer_id, a.first_offset) for a in aborted.aborted_transactions] == [(5, 1)]


def test_a_committed_reader_that_wants_much_hears_of_the_end_of_a_transaction(
    harness: Harness,
) -> None:
    topic_id = harness.create_topic("orders")
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", bytes(5000))
    batch = builder.build(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = build_end_transaction_marker(
        NOW_MS, is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0
    )
    request = fetch(topic_id, 0, isolation_level=1, min_bytes=1000, max_wait_ms=60_000)

    async def commit() -> Any:
        partition = harness.partition("orders", 0)
        waiting = asyncio.ensure_future(harness.ask_async(request, LATEST))
        while not partition.fetch_waiters:
            await asyncio.sleep(0)
        partition.append_own(memoryview(batch))
        for _ in range(10):  # it looks, and finds nothing that is committed
            await asyncio.sleep(0)
        partition.append_own(memoryview(marker))
        return await waiting

    assert base_offsets(rows(harness.run(commit()))[0]) == [0, 1]


# What is not in the page cache


def test_a_cold_segment_that_is_deleted_meanwhile_is_out_of_range(
    harness: Harness, cold_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a")
    append(harness, b"b")
    cold_files.drop(harness, "orders", 0)
    log = harness.partition("orders", 0).log
    monkeypatch.setattr(ColdRead, "run", lambda read: setattr(log, "start_offset", 1))
    answer = harness.ask(fetch(topic_id, 0), LATEST)
    assert ErrorCode(rows(answer)[0].error_code) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_is_not_in_the_page_cache_is_read_all_the_same(
    harness: Harness, cold_files: Any
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a")
    cold_files.drop(harness, "orders", 0)
    assert base_offsets(rows(harness.ask(fetch(topic_id, 0), LATEST))[0]) == [0]
    assert cold_files.waits == 1


def test_cold_and_warm_partitions_come_together_in_the_order_of_the_request(
    harness: Harness, cold_files: Any
) -> None:
    topic_id = harness.create_topic("orders", partitions=40)
    for index in range(40):
        append(harness, b"x" * 100, index=index)
    cold_files.drop(harness, "orders", *range(0, 40, 2))
    found = rows(harness.ask(fetch(topic_id, *[0] * 40), LATEST))
    assert [base_offsets(found[index]) for index in range(40)] == [[0]] * 40
    assert cold_files.waits == 20


def test_a_cold_partition_keeps_its_part_of_the_bytes(harness: Harness, cold_files: Any) -> None:
    topic_id = harness.create_topic("orders", partitions=3)
    for index in range(3):
        append(harness, b"x" * 1000, index=index)
    cold_files.drop(harness, "orders", 0)
    found = rows(harness.ask(fetch(topic_id, 0, 0, 0, max_bytes=2500), LATEST))
    assert [bool(found[index].records) for index in range(3)] == [True, True, False]


def test_a_cold_first_batch_comes_however_small_the_limits_are(
    harness: Harness, cold_files: Any
) -> None:
    topic_id = harness.create_topic("orders", partitions=2)
    append(harness, b"x" * 1000)
    append(harness, b"y" * 1000, index=1)
    cold_files.drop(harness, "orders", 0, 1)
    answer = harness.ask(fetch(topic_id, 0, 0, max_bytes=1, partition_max_bytes=1), LATEST)
    found = rows(answer)
    assert [len(found[index].records) > 1000 for index in range(2)] == [True, False]


def test_a_cold_partition_that_cannot_be_read_is_an_error_of_its_own(
    harness: Harness, cold_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = harness.create_topic("orders", partitions=2)
    for index in range(2):
        append(harness, b"a", index=index)
    cold_files.drop(harness, "orders", 0)
    broken = harness.partition("orders", 0).log.segments[0].file
    read = type(broken).read

    def read_unless_broken(file: Any, position: int, count: int) -> Any:
        if file is broken:
            raise OSError(5, "broken disk")
        return read(file, position, count)

    monkeypatch.setattr(type(broken), "read", read_unless_broken)
    found = rows(harness.ask(fetch(topic_id, 0, 0), LATEST))
    assert ErrorCode(found[0].error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    assert base_offsets(found[1]) == [0]


def test_records_behind_an_empty_cold_segment_are_found(harness: Harness, cold_files: Any) -> None:
    topic_id = harness.create_topic("orders")
    for value in (b"a", b"b"):
        append(harness, value)
        log = harness.partition("orders", 0).log
        log.roll(log.end_offset)
    log.segments[0].truncate(0)  # as if compaction had taken all of it
    cold_files.drop(harness, "orders", 0)
    assert base_offsets(rows(harness.ask(fetch(topic_id, 0, max_wait_ms=9000), LATEST))[0]) == [1]


def test_the_time_to_wait_does_not_begin_anew_after_a_cold_read(
    harness: Harness, cold_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"a")
    request = fetch(topic_id, 0, max_wait_ms=70, min_bytes=1_000_000)

    async def ask() -> list[float]:
        loop, delays = asyncio.get_running_loop(), list[float]()
        call_later = loop.call_later

        def note(delay: float, *arguments: Any, **options: Any) -> Any:
            delays.append(delay)
            return call_later(delay, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_later", note)
            waiting = asyncio.ensure_future(harness.ask_async(request, LATEST))
            await asyncio.sleep(0)
            cold_files.drop(harness, "orders", 0)
            answer = await waiting
        assert base_offsets(rows(answer)[0]) == [0]
        assert cold_files.waits == 1
        return delays

    assert harness.run(ask()).count(0.07) == 1


# Much at once


@pytest.mark.slow
def test_a_fetch_of_very_many_partitions_lets_others_have_their_turn(harness: Harness) -> None:
    count = 3 * TURN_COST_MAX
    topic_id = harness.create_topic("orders", partitions=count)
    append(harness, b"a", index=count - 1)

    async def ask() -> tuple[Any, int]:
        waiting = asyncio.ensure_future(
            harness.ask_async(fetch(topic_id, *[0] * count, max_wait_ms=60_000), LATEST)
        )
        turns = 0
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)
        return await waiting, turns

    answer, turns = harness.run(ask())
    assert len(rows(answer)) == count
    assert base_offsets(rows(answer)[count - 1]) == [0]
    assert turns > 3


def test_a_request_that_names_very_many_partitions_is_taken_in_turns(harness: Harness) -> None:
    """Whether they exist or not."""
    count = 3 * PARTITIONS_PER_TURN
    topic_id = harness.create_topic("orders", partitions=2)
    append(harness, b"a", index=1)

    async def ask() -> tuple[Any, int]:
        waiting = asyncio.ensure_future(
            harness.ask_async(fetch(topic_id, *[0] * count, session_epoch=0), LATEST)
        )
        turns = 0
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)
        return await waiting, turns

    answer, turns = harness.run(ask())
    found = rows(answer)
    assert len(found) == count
    assert base_offsets(found[1]) == [0]
    assert ErrorCode(found[2].error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.session_id != 0
    assert turns > count / TURN_COST_MAX


def test_a_large_request_of_a_client_that_is_gone_waits_for_nothing(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    request = fetch(topic_id, *[0] * (PARTITIONS_PER_TURN + 1), max_wait_ms=60_000)

    async def leave() -> None:
        waiting = asyncio.ensure_future(harness.ask_async(request, LATEST))
        await asyncio.sleep(0)
        harness.peer.close("left")
        for _ in range(20):
            await asyncio.sleep(0)
        waiting.cancel()

    harness.run(leave())
    assert not harness.partition("orders", 0).fetch_waiters


def test_an_unknown_isolation_level_of_a_large_request_is_refused(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    request = fetch(topic_id, *[0] * 2 * PARTITIONS_PER_TURN, isolation_level=7)
    answer = harness.ask(request, LATEST)
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_is_appended_while_the_others_are_read_is_not_missed(harness: Harness) -> None:
    count = 3 * TURN_COST_MAX
    topic_id = harness.create_topic("orders", partitions=count)

    async def ask() -> Any:
        waiting = asyncio.ensure_future(
            harness.ask_async(fetch(topic_id, *[0] * count, max_wait_ms=60_000), LATEST)
        )
        first = harness.partition("orders", 0)
        while not first.fetch_waiters:
            await asyncio.sleep(0)
        assert not harness.partition("orders", count - 1).fetch_waiters
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        first.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)
        return await waiting

    assert base_offsets(rows(harness.run(ask()))[0]) == [0]


def test_one_append_wakes_many_fetches_some_in_each_turn(harness: Harness) -> None:
    count = 200
    topic_id = harness.create_topic("orders")

    async def ask() -> list[int]:
        waiting = [
            asyncio.ensure_future(harness.ask_async(fetch(topic_id, 0, max_wait_ms=60_000), LATEST))
            for _ in range(count)
        ]
        partition = harness.partition("orders", 0)
        while len(partition.fetch_waiters) < count:
            await asyncio.sleep(0)
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)
        left = []
        while partition.fetch_waiters:
            await asyncio.sleep(0)
            left.append(len(partition.fetch_waiters))
        for answer in await asyncio.gather(*waiting):
            assert base_offsets(rows(answer)[0]) == [0]
        return left

    left = [count, *harness.run(ask())]
    assert max(before - after for before, after in pairwise(left)) <= TURN_COST_MAX / ANSWER_COST


def test_a_session_that_waits_hears_of_the_partition_that_changed_only(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", partitions=3)
    first = harness.ask(fetch(topic_id, 0, 0, 0, session_epoch=0), LATEST)
    request = fetch(topic_id, session_id=first.session_id, session_epoch=1, max_wait_ms=60_000)

    async def ask() -> Any:
        waiting = asyncio.ensure_future(harness.ask_async(request, LATEST))
        partition = harness.partition("orders", 1)
        while not partition.fetch_waiters:
            await asyncio.sleep(0)
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)
        return await waiting

    assert list(rows(harness.run(ask()))) == [1]


# Aborted transactions


def append_aborted(harness: Harness, count: int, *, first_producer: int = 1) -> None:
    """Append transactions of one record each, and abort them."""

    async def run() -> None:
        partition = harness.partition("orders", 0)
        for producer_id in range(first_producer, first_producer + count):
            builder = BatchBuilder()
            builder.append(NOW_MS, b"key", b"x" * 100)
            identity: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
            batch = builder.build(**identity, base_sequence=0, is_transactional=True)
            partition.append(memoryview(batch), NOW_MS, needs_replicas=False)
            marker = build_end_transaction_marker(
                NOW_MS, is_commit=False, coordinator_epoch=0, **identity
            )
            partition.append_own(memoryview(marker))

    harness.run(run())


def test_only_aborted_transactions_of_what_was_read_are_named(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append_aborted(harness, 500)
    request = fetch(topic_id, 100, isolation_level=1, partition_max_bytes=10_000)
    row = rows(harness.ask(request, LATEST))[0]
    offsets = base_offsets(row)
    named = {each.first_offset for each in row.aborted_transactions}
    assert {offset for offset in offsets if offset % 2 == 0} <= named
    assert len(named) < 2 * len(offsets)


def test_many_aborted_transactions_are_looked_at_first_in_a_thread(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "UNREAD_MAX", 300)
    looked: list[threading.Thread] = []
    run = FirstLook.run

    def recorded(look: FirstLook) -> None:
        looked.append(threading.current_thread())
        run(look)

    monkeypatch.setattr(FirstLook, "run", recorded)
    topic_id = harness.create_topic("orders")
    append_aborted(harness, 600)
    asked = harness.run(on_thread_of_the_loop())
    for _ in range(2):
        request = fetch(topic_id, 0, isolation_level=1, partition_max_bytes=10_000)
        row = rows(harness.ask(request, LATEST))[0]
        named = {each.first_offset for each in row.aborted_transactions}
        assert {offset for offset in base_offsets(row) if offset % 2 == 0} <= named
    assert len(looked) == 1
    assert asked not in looked


async def on_thread_of_the_loop() -> threading.Thread:
    return threading.current_thread()


def test_a_transaction_aborted_segments_later_is_named(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")

    async def run() -> None:
        partition = harness.partition("orders", 0)
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"open for long")
        batch = builder.build(
            producer_id=9000, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        partition.append(memoryview(batch), NOW_MS, needs_replicas=False)
        partition.log.roll(partition.log.end_offset)

    harness.run(run())
    append_aborted(harness, 300)

    async def end() -> None:
        partition = harness.partition("orders", 0)
        marker = build_end_transaction_marker(
            NOW_MS, is_commit=False, producer_id=9000, producer_epoch=0, coordinator_epoch=0
        )
        partition.append_own(memoryview(marker))

    harness.run(end())
    for offset in (0, 1, 301):
        request = fetch(topic_id, offset, isolation_level=1, partition_max_bytes=100)
        row = rows(harness.ask(request, LATEST))[0]
        named = [each.producer_id for each in row.aborted_transactions]
        assert 9000 in named
        assert len(named) < 100
