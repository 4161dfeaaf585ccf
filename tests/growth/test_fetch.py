"""What a fetch costs: what is asked for and what has changed, not what exists."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.replication.fetch_sessions import EVICTION_MS_MIN, FetchSessions, wanted_partitions
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000
LATEST = 18
COMMITTED = 1
TURNS = 10
"""How many turns of the loop it takes, at most, until what is due is done."""


def count(harness: Harness, work: Callable[[], Awaitable[Any]]) -> int:
    """Return what some work costs the loop's thread."""

    async def run() -> None:
        await work()

    return steps(lambda: harness.run(run()))


def fetch(topic_id: bytes, partitions: int, **fields: Any) -> FetchRequest:
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=4096)
        for index in range(partitions)
    ]
    topics = [FetchTopic(topic_id=topic_id, partitions=asked)] if asked else []
    fields = {"max_wait_ms": 60_000, "min_bytes": 1, "session_epoch": -1, **fields}
    return FetchRequest(max_bytes=50_000_000, topics=topics, **fields)


def batch(value: bytes = b"x" * 100, **identity: Any) -> memoryview:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", value)
    return memoryview(builder.build(**identity))


def make_topic(harness: Harness, partitions: int, *, has_records: bool) -> bytes:
    name = f"topic-{partitions}"
    if harness.has_topic(name):
        return harness.topic(name).topic_id
    topic_id: bytes = harness.create_topic(name, partitions=partitions)

    async def fill() -> None:
        for index in range(partitions):
            partition = harness.partition(name, index)
            partition.append(batch(), NOW_MS, needs_replicas=False)

    if has_records:
        harness.run(fill())
    return topic_id


def test_partitions_of_a_fetch(harness: Harness) -> None:
    def cost(partitions: int) -> int:
        topic_id = make_topic(harness, partitions, has_records=True)
        request = fetch(topic_id, partitions)
        return count(harness, lambda: harness.ask_async(request, LATEST))

    assert_grows_linearly(least(cost), 100)


def test_cold_partitions_of_a_fetch(harness: Harness, cold_files: Any) -> None:
    def cost(partitions: int) -> int:
        topic_id = make_topic(harness, partitions, has_records=True)
        cold_files.drop(harness, f"topic-{partitions}", *range(partitions))
        request = fetch(topic_id, partitions)
        return count(harness, lambda: harness.ask_async(request, LATEST))

    assert_grows_linearly(least(cost), 30)


def test_a_look_at_a_session_that_waits(harness: Harness) -> None:
    """Records of an open transaction wake its readers, who may not have them."""

    def cost(partitions: int) -> int:
        topic_id = make_topic(harness, partitions, has_records=False)
        request = fetch(topic_id, partitions, isolation_level=COMMITTED)
        partition = harness.partition(f"topic-{partitions}", partitions - 1)
        sequence = partition.log.end_offset

        async def wait() -> Any:
            waiting = asyncio.ensure_future(harness.ask_async(request, LATEST))
            while not partition.fetch_waiters:
                await asyncio.sleep(0)
            return waiting

        async def append() -> None:
            more = batch(
                producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True
            )
            partition.append(more, NOW_MS, needs_replicas=False)
            for _ in range(TURNS):
                await asyncio.sleep(0)

        waiting = harness.run(wait())
        spent = count(harness, append)

        async def end() -> None:
            assert not waiting.done()
            harness.peer.close("enough")
            harness.peer.is_closed = False
            waiting.cancel()

        harness.run(end())
        return spent

    assert_stays_flat(least(cost), 40)


def test_partitions_of_a_session_of_which_nothing_is_new(harness: Harness) -> None:
    """A request names nothing, so the session is looked through: little for each."""

    def cost(partitions: int) -> int:
        topic_id = make_topic(harness, partitions, has_records=False)
        first = harness.ask(fetch(topic_id, partitions, session_epoch=0, max_wait_ms=0), LATEST)
        again = fetch(topic_id, 0, session_id=first.session_id, session_epoch=1, max_wait_ms=0)
        return count(harness, lambda: harness.ask_async(again, LATEST))

    least_cost = least(cost)
    assert_grows_linearly(least_cost, 50)
    assert least_cost(400) - least_cost(200) < 200 * 200


@pytest.mark.parametrize("is_one_open_for_long", [False, True], ids=["", "one-open-for-long"])
def test_aborted_transactions_that_were_not_read(
    harness: Harness, is_one_open_for_long: bool
) -> None:
    def cost(transactions: int) -> int:
        name = f"aborted-{transactions}"
        if not harness.has_topic(name):
            harness.create_topic(name)
        topic_id = harness.topic(name).topic_id
        partition = harness.partition(name, 0)

        async def fill() -> None:
            first = {"producer_id": 9_999, "producer_epoch": 0}
            if is_one_open_for_long:
                append_transactional(partition, first)
            for number in range(transactions):
                identity = {"producer_id": number, "producer_epoch": 0}
                append_transactional(partition, identity)
                abort(partition, identity)
            if is_one_open_for_long:
                abort(partition, first)

        if partition.log.end_offset == 0:
            harness.run(fill())
        request = fetch(topic_id, 1, isolation_level=COMMITTED)
        return count(harness, lambda: harness.ask_async(request, LATEST))

    assert_stays_flat(least(cost), 400)


def append_transactional(partition: Any, identity: dict[str, Any]) -> None:
    more = batch(base_sequence=0, is_transactional=True, **identity)
    partition.append(more, NOW_MS, needs_replicas=False)


def abort(partition: Any, identity: dict[str, int]) -> None:
    marker = build_end_transaction_marker(NOW_MS, is_commit=False, coordinator_epoch=0, **identity)
    partition.append_own(memoryview(marker))


def test_sessions_when_one_more_is_asked_for() -> None:
    def cost(slots: int) -> int:
        sessions = FetchSessions(slots, partial(Random(1).randint, 1, 2**31 - 1))
        asked = [FetchPartition(partition=index, fetch_offset=0) for index in range(2)]
        wanted = wanted_partitions([FetchTopic(topic_id=b"t" * 16, partitions=asked)])
        for now_ms in range(slots):
            assert sessions.begin(wanted, LATEST, now_ms) is not None
        assert slots < EVICTION_MS_MIN
        return steps(lambda: sessions.begin(wanted, LATEST, slots))

    assert_stays_flat(cost, 50)


def least(cost: Callable[[int], int]) -> Callable[[int], int]:
    """Return the least of eight costs: a node has other work now and then, and things to load."""
    return lambda size: min(cost(size) for _ in range(8))
