"""What share groups cost: what members get and say, not what else there is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.log import real_disk
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.share.partition.types import Acknowledgement, AckType, Limits, Wanted
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.growth.test_fetch import least
from tests.unit.harness import Harness
from tests.unit.share.dead_letter_topics import LETTERS, log_of, name_topic, wait_until
from tests.unit.share.partition.share_partitions import LOCK_MS, Partition
from tests.unit.share.share_client import (
    ACCEPT,
    NOW_MS,
    REJECT,
    Member,
    append,
    configure,
    initialize,
)

LIMITS = Limits(lock_duration_ms=LOCK_MS, delivery_count_limit=5, in_flight_max=100_000)
TURNS = 10

one_shard = pytest.mark.parametrize(
    "harness", [{"share.coordinator.state.topic.num.partitions": "1"}], indirect=True, ids=[""]
)


def count(harness: Harness, work: Callable[[], Awaitable[Any]]) -> int:
    """Return what some work costs the loop's thread."""

    async def run() -> None:
        await work()

    return steps(lambda: harness.run(run()))


# The machine


def held(records: int, *, has_dead_letters: bool = False) -> Partition:
    """Return a share partition of which members `a` and `b` hold every second record."""
    limits = LIMITS._replace(has_dead_letters=has_dead_letters)
    partition = Partition(limits=limits)
    for offset in range(records):
        member = "ab"[offset % 2]
        partition.fetch(member, (offset, offset), wanted=Wanted(1, 1), at=offset)
    return partition


def said(kind: AckType, *offsets: int) -> list[Acknowledgement]:
    return [Acknowledgement(offset, offset, [kind]) for offset in offsets]


@pytest.mark.parametrize("kind", [AckType.ACCEPT, AckType.RELEASE, AckType.RENEW])
def test_acknowledgements_of_a_request(kind: AckType) -> None:
    def cost(records: int) -> int:
        partition = held(records)
        offsets = said(kind, *range(0, records, 2))

        def acknowledge() -> None:
            partition.done(partition.machine.acknowledge("a", offsets, partition.now))

        return steps(acknowledge)

    assert_grows_linearly(cost, 200)


def test_one_acknowledgement_in_a_large_window() -> None:
    def cost(records: int) -> int:
        partition = held(records)
        middle = said(AckType.ACCEPT, records // 2 * 2 - 2)

        def acknowledge() -> None:
            partition.done(partition.machine.acknowledge("a", middle, partition.now))

        return steps(acknowledge)

    assert_stays_flat(cost, 100)


def test_locks_that_end_together() -> None:
    def cost(records: int) -> int:
        partition = held(records)
        return steps(lambda: partition.done(partition.wait(LOCK_MS)))

    assert_grows_linearly(cost, 200)


def test_what_a_member_leaves_behind() -> None:
    def cost(records: int) -> int:
        partition = held(records)
        return steps(lambda: partition.done(partition.machine.release_member("a", partition.now)))

    assert_grows_linearly(cost, 200)


def test_dead_letters_of_a_partition() -> None:
    def cost(records: int) -> int:
        partition = held(records, has_dead_letters=True)
        rejected = said(AckType.REJECT, *range(0, records, 2))
        partition.done(partition.machine.acknowledge("a", rejected, partition.now))

        def send() -> None:
            letters = partition.machine.dead_letters()
            assert len(letters) == records // 2
            for letter in letters:
                partition.done(partition.machine.dead_lettered(letter, partition.now))

        return steps(send)

    assert_grows_linearly(cost, 200)


def test_dead_letters_that_are_tried_again() -> None:
    def cost(records: int) -> int:
        partition = held(records, has_dead_letters=True)
        rejected = said(AckType.REJECT, *range(0, records, 2))
        partition.done(partition.machine.acknowledge("a", rejected, partition.now))
        letters = partition.machine.dead_letters()

        def try_again() -> None:
            for letter in letters:
                partition.machine.dead_letter_failed(letter)
            assert len(partition.machine.dead_letters()) == records // 2

        return steps(try_again)

    assert_grows_linearly(cost, 200)


# The node


def make_topic(harness: Harness, partitions: int, group_id: str = "group") -> bytes:
    """Create a topic whose share partitions a group has begun, once."""
    name = f"topic-{partitions}"
    if harness.has_topic(name):
        return harness.topic(name).topic_id
    topic_id = harness.create_topic(name, partitions=partitions)
    initialize(harness, topic_id, *range(partitions), group_id=group_id, start_offset=0)
    return topic_id


def append_to(harness: Harness, partitions: int, index: int) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"x" * 100)
    partition = harness.partition(f"topic-{partitions}", index)
    partition.append(memoryview(builder.build()), NOW_MS, needs_replicas=False)


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@one_shard
def test_partitions_of_a_session(harness: Harness) -> None:
    def cost(partitions: int) -> int:
        member = Member(harness, make_topic(harness, partitions), f"member-{partitions}")
        member.fetch(*range(partitions), max_wait_ms=20)
        spent = count(harness, lambda: member.fetch_async(max_wait_ms=0))
        member.disconnect()
        return spent

    assert_grows_linearly(least(cost), 50)


@one_shard
def test_a_look_at_a_session_that_waits(harness: Harness) -> None:
    """One partition has records, but fewer bytes than are waited for."""

    def cost(partitions: int) -> int:
        member = Member(harness, make_topic(harness, partitions), f"member-{partitions}")
        member.fetch(*range(partitions), max_wait_ms=20)

        async def wait() -> Any:
            waiting = asyncio.ensure_future(
                member.fetch_async(max_wait_ms=60_000, min_bytes=1_000_000)
            )
            await settle()
            return waiting

        async def look() -> None:
            append_to(harness, partitions, partitions - 1)
            await settle()

        waiting = harness.run(wait())
        harness.run(look())
        spent = count(harness, look)

        async def end() -> None:
            assert not waiting.done()
            member.peer.close("enough")
            waiting.cancel()

        harness.run(end())
        return spent

    assert_stays_flat(least(cost), 40)


@one_shard
def test_the_end_of_a_session_in_a_large_group(harness: Harness) -> None:
    def cost(partitions: int) -> int:
        group_id = f"group-{partitions}"
        topic_id = make_topic(harness, partitions, group_id)
        everybody = Member(harness, topic_id, "everybody", group_id)
        everybody.fetch(*range(partitions), max_wait_ms=20)
        member = Member(harness, topic_id, "member", group_id)
        harness.run(asyncio.sleep(0))

        async def fill() -> None:
            append_to(harness, partitions, 0)

        harness.run(fill())
        assert member.fetch(0, max_wait_ms=5000)[0].acquired

        async def leave() -> None:
            member.peer.close("gone")

        spent = count(harness, leave)
        everybody.disconnect()
        return spent

    assert_stays_flat(least(cost), 20)


@one_shard
def test_batches_of_aborted_transactions(harness: Harness) -> None:
    numbers = iter(range(100))

    def cost(transactions: int) -> int:
        name = f"aborted-{transactions}"
        if not harness.has_topic(name):
            harness.create_topic(name)
            harness.run(abort_many(harness, name, transactions))
        topic_id = harness.topic(name).topic_id
        group_id = f"group-{next(numbers)}"  # one that has read nothing yet
        configure(harness, group_id, share_isolation_level="read_committed")
        initialize(harness, topic_id, 0, group_id=group_id, start_offset=0)
        member = Member(harness, topic_id, "member", group_id)
        spent = count(harness, lambda: member.fetch_async(0, max_wait_ms=5000, max_records=2000))
        member.disconnect()
        return spent

    assert_grows_linearly(least(cost), 200)


async def abort_many(harness: Harness, topic: str, transactions: int) -> None:
    partition = harness.partition(topic, 0)
    for number in range(transactions):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        batch = builder.build(
            producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        partition.append(memoryview(batch), NOW_MS, needs_replicas=False)
        marker = build_end_transaction_marker(
            NOW_MS, is_commit=False, producer_id=number, producer_epoch=0, coordinator_epoch=0
        )
        partition.append_own(memoryview(marker))


@one_shard
def test_dead_letters_read_their_records_and_little_more(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of this one is counted in bytes."""
    topic_id = harness.create_topic("orders")
    initialize(harness, topic_id, 0, start_offset=0)
    name_topic(harness)
    member = Member(harness, topic_id)
    member.fetch(0, max_wait_ms=20)
    read_bytes, read_cached = [0], real_disk.RealFile.read_cached

    def note(file: real_disk.RealFile, position: int, size: int) -> Any:
        read_bytes[0] += min(size, file.size - position)
        return read_cached(file, position, size)

    monkeypatch.setattr(real_disk.RealFile, "read_cached", note)

    def cost(records: int) -> int:
        before = len(log_of(harness, LETTERS))
        for _ in range(records):
            append(harness, b"x" * 1000)
        first = member.fetch(max_wait_ms=5000)[0].acquired[0][0]
        ends = [
            (first + number, first + number, (ACCEPT, REJECT)[number % 2])
            for number in range(records)
        ]
        read_bytes[0] = 0
        assert member.acknowledge(0, *ends) == "NONE"
        wait_until(harness, lambda: member_letters(harness) >= before + records // 2)
        return read_bytes[0]

    assert_grows_linearly(cost, 50)


def member_letters(harness: Harness) -> int:
    if not harness.has_partition(LETTERS):
        return 0
    return harness.partition(LETTERS).log.end_offset
