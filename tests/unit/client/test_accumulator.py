"""Batches gather per partition, leave when they are due, and are never overtaken."""

import asyncio

import pytest

from headrace.client.accumulator import Accumulator
from headrace.client.batches import Batch, Delivery
from headrace.client.topics import TopicPartition
from headrace.records.builder import record_bytes_max
from headrace.records.reader import read_records
from tests.unit.client.loops import on_a_loop

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


def accumulator(batch_bytes: int = 200, linger_seconds: float = 1.0) -> Accumulator:
    return Accumulator(batch_bytes=batch_bytes, memory_bytes=1000, linger_seconds=linger_seconds)


def add(waiting: Accumulator, partition: TopicPartition, value: bytes, now: float = 0) -> Batch:
    return append(waiting, partition, value, now)[0]


def append(
    waiting: Accumulator, partition: TopicPartition, value: bytes, now: float = 0
) -> tuple[Batch, int, bool]:
    fields = (None, value, ())
    return waiting.append(partition, 0, fields, record_bytes_max(*fields), lambda: now)


def values(batch: Batch) -> list[bytes | None]:
    return [record.value for record in read_records(batch.encode())]


@on_a_loop
async def test_a_record_lingers_for_others_and_then_leaves_with_them() -> None:
    waiting = accumulator()
    add(waiting, P0, b"one", now=10)
    add(waiting, P0, b"two", now=10.5)
    assert waiting.take_ready(10.9) == []
    assert waiting.next_due() == 11
    (batch,) = waiting.take_ready(11)
    assert values(batch) == [b"one", b"two"]


@on_a_loop
async def test_a_full_batch_leaves_at_once() -> None:
    waiting = accumulator()
    first = add(waiting, P0, bytes(120))
    second = add(waiting, P0, bytes(120))
    assert first is not second
    assert waiting.take_ready(0) == [first]


@on_a_loop
async def test_a_partition_has_one_batch_on_its_way_and_others_do_not_wait_for_it() -> None:
    waiting = accumulator(linger_seconds=0)
    first = add(waiting, P0, b"one")
    assert waiting.take_ready(0) == [first]
    second = add(waiting, P0, b"two")
    other = add(waiting, P1, b"three")
    assert waiting.take_ready(0) == [other]
    waiting.finish(first)
    assert waiting.take_ready(0) == [second]


@on_a_loop
async def test_a_batch_that_is_sent_again_is_not_overtaken() -> None:
    waiting = accumulator(linger_seconds=0)
    first = add(waiting, P0, b"one")
    waiting.take_ready(0)
    first.encode()
    second = add(waiting, P0, b"two")
    waiting.put_back([first], not_before=5)
    assert waiting.take_ready(4) == []
    assert waiting.next_due() == 5
    assert waiting.take_ready(5) == [first]
    waiting.finish(first)
    assert waiting.take_ready(5) == [second]


@on_a_loop
async def test_records_do_not_join_a_batch_that_was_sent_before() -> None:
    waiting = accumulator(linger_seconds=0)
    first = add(waiting, P0, b"one")
    waiting.take_ready(0)
    first.encode()
    waiting.put_back([first], not_before=5)
    assert add(waiting, P0, b"two") is not first
    assert values(first) == [b"one"]


@on_a_loop
async def test_memory_is_taken_by_records_and_given_back_by_finished_batches() -> None:
    waiting = accumulator(batch_bytes=10_000, linger_seconds=0)
    assert waiting.has_room(5000), "a record that is too large for the memory goes alone"
    batch = add(waiting, P0, bytes(900))
    assert not waiting.has_room(100)
    waiting.take_ready(0)
    waiting.finish(batch)
    assert waiting.used_bytes == 0
    assert waiting.unfinished() == []


@on_a_loop
async def test_nothing_lingers_while_somebody_flushes() -> None:
    waiting = accumulator(linger_seconds=100)
    batch = add(waiting, P0, b"one")
    waiting.is_pressed = True
    assert waiting.take_ready(0) == [batch]


@on_a_loop
async def test_halves_of_a_batch_that_was_too_large_place_every_record() -> None:
    waiting = accumulator(batch_bytes=10_000, linger_seconds=0)
    deliveries = []
    for number in range(5):
        batch, index, _ = append(waiting, P0, b"%d" % number)
        deliveries.append(Delivery(batch, index))
    waiting.take_ready(0)
    batch.encode()
    used_bytes = waiting.used_bytes
    first, second = batch.halves()
    waiting.put_back([first, second], not_before=0)
    assert waiting.take_ready(0) == [first]
    assert values(first) == [b"0", b"1", b"2"]
    assert values(second) == [b"3", b"4"]
    waiting.finish(first)
    first.succeed(100)
    assert not deliveries[0].is_done()
    assert waiting.take_ready(0) == [second]
    waiting.finish(second)
    second.succeed(200)
    places = [await delivery for delivery in deliveries]
    assert [place.offset for place in places] == [100, 101, 102, 200, 201]
    assert used_bytes > 0
    assert waiting.used_bytes == 0


@on_a_loop
async def test_a_half_of_a_half_places_its_records_too() -> None:
    waiting = accumulator(batch_bytes=10_000)
    for number in range(4):
        batch, _, _ = append(waiting, P0, b"%d" % number)
    batch.encode()
    left, right = batch.halves()
    left.encode()
    for half, offset in zip(left.halves(), (10, 20), strict=True):
        half.succeed(offset)
    right.succeed(30)
    assert batch.done.done()
    assert [batch.place_of(index).offset for index in range(4)] == [10, 20, 30, 31]


@on_a_loop
async def test_a_half_that_fails_does_not_fail_the_records_of_the_other() -> None:
    waiting = accumulator(batch_bytes=10_000)
    for number in range(4):
        batch, _, _ = append(waiting, P0, b"%d" % number)
    batch.encode()
    left, right = batch.halves()
    left.encode()
    quarters = left.halves()
    quarters[0].succeed(10)
    quarters[1].fail(ValueError("too large"))
    assert not batch.done.done()
    right.succeed(20)
    deliveries = [Delivery(batch, index) for index in range(4)]
    assert (await deliveries[0]).offset == 10
    assert isinstance(batch.untold_failure(), ValueError)
    with pytest.raises(ValueError, match="too large"):
        await deliveries[1]
    assert batch.untold_failure() is None
    assert [(await delivery).offset for delivery in deliveries[2:]] == [20, 21]


@on_a_loop
async def test_who_stopped_waiting_was_not_told_of_the_failure() -> None:
    batch, _, _ = append(accumulator(), P0, b"one")

    async def wait() -> object:
        return await Delivery(batch, 0)

    waiter = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait({waiter})
    batch.fail(ValueError("too large"))
    assert isinstance(batch.untold_failure(), ValueError)


@on_a_loop
async def test_a_delivery_that_is_cancelled_leaves_those_beside_it_alone() -> None:
    waiting = accumulator()
    batch, _, _ = append(waiting, P0, b"one")
    append(waiting, P0, b"two")

    async def wait(index: int) -> object:
        return await Delivery(batch, index)

    one, two = asyncio.create_task(wait(0)), asyncio.create_task(wait(1))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    batch.succeed(7)
    place = await two
    assert getattr(place, "offset", None) == 8


@on_a_loop
async def test_what_waits_is_taken_away_and_what_is_on_its_way_is_not() -> None:
    waiting = accumulator(linger_seconds=0)
    first = add(waiting, P0, bytes(120))
    waiting.take_ready(0)
    behind = add(waiting, P0, bytes(120))
    other = add(waiting, P1, b"three")
    assert waiting.take_waiting() == [behind, other]
    assert waiting.unfinished() == [first]
    assert waiting.take_ready(0) == []
    waiting.finish(first)
    assert waiting.used_bytes == 0
    again = add(waiting, P1, b"four")
    assert waiting.take_ready(0) == [again]


@on_a_loop
async def test_a_record_that_cannot_be_encoded_leaves_no_empty_batch() -> None:
    waiting = accumulator(linger_seconds=0)
    with pytest.raises(ValueError, match="timestamp"):
        waiting.append(P0, -5, (None, b"one", ()), 100, lambda: 0)
    assert waiting.unfinished() == []
    assert waiting.used_bytes == 0
    batch = add(waiting, P0, b"two")
    with pytest.raises(ValueError, match="timestamp"):
        waiting.append(P0, -5, (None, b"three", ()), 100, lambda: 0)
    assert waiting.take_ready(0) == [batch]
    assert values(batch) == [b"two"]


@on_a_loop
async def test_a_batch_that_fills_up_while_it_lingers_leaves_at_once() -> None:
    waiting = accumulator(linger_seconds=100)
    first = add(waiting, P0, bytes(100))
    other = add(waiting, P1, b"other")
    assert waiting.take_ready(0) == []
    add(waiting, P0, bytes(100))
    assert waiting.take_ready(0) == [first]
    assert waiting.next_due() == 100
    assert waiting.take_ready(100) == [other]


@on_a_loop
async def test_what_lingers_again_after_a_flush_lingers() -> None:
    waiting = accumulator(linger_seconds=100)
    first = add(waiting, P0, b"one")
    waiting.is_pressed = True
    assert waiting.take_ready(0) == [first]
    second = add(waiting, P0, b"two")
    waiting.finish(first)
    waiting.is_pressed = False
    assert waiting.take_ready(5) == []
    assert waiting.next_due() == 100
    waiting.is_pressed = True
    assert waiting.take_ready(5) == [second]
