"""What is read of which partition, and which records a user is done with."""

import pytest

from headrace.client.fetched import Chunk, ConsumedRecord, UnreadableBatch
from headrace.client.handout import Handout
from headrace.client.readings import Reading, Readings
from headrace.client.topics import TopicPartition
from headrace.ids import TopicId
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(Compression.NONE)
    for number in range(count):
        builder.append(1000, None, b"%d" % (base_offset + number))
    return bytes(builder.build(base_offset=base_offset))


def reading_of(readings: Readings, partition: TopicPartition) -> Reading:
    return dict(readings.hungry(is_prefetch=False))[partition]


def arrive(
    readings: Readings, partition: TopicPartition, *batches: bytes, reading: Reading | None = None
) -> Reading:
    """Let what a fetch returned come in."""
    reading = reading or reading_of(readings, partition)
    data = memoryview(b"".join(batches))
    chunk = Chunk(partition, data, reading.fetch_offset, inflated_bytes_max=1 << 20)
    readings.keep(partition, reading, chunk)
    return reading


def assigned(*partitions: TopicPartition) -> Readings:
    readings = Readings()
    readings.assign(dict.fromkeys(partitions, 0), {})
    return readings


def offsets(records: list[ConsumedRecord]) -> list[int]:
    return [record.offset for record in records]


def test_small_batches_come_together_and_large_ones_alone() -> None:
    readings = assigned(ZERO)
    arrive(readings, ZERO, batch(0, 1), batch(1, 2), batch(3, 600), batch(603, 5))
    assert len(readings.take()) == 603
    assert offsets(readings.take()) == list(range(603, 608))
    assert readings.take() == []
    assert readings.positions() == {ZERO: 608}


def test_partitions_take_turns() -> None:
    readings = assigned(ZERO, ONE)
    first = arrive(readings, ZERO, batch(0, 2))
    arrive(readings, ONE, batch(0, 2))
    arrive(readings, ZERO, batch(2, 2), reading=first)
    turns = [(records[0].partition, offsets(records)) for records in iter(readings.take, [])]
    assert turns == [(0, [0, 1]), (1, [0, 1]), (0, [2, 3])]


def test_more_is_asked_for_while_the_last_is_read_if_there_is_more() -> None:
    readings = assigned(ZERO)
    reading = arrive(readings, ZERO, batch(0, 600), batch(600, 5))
    reading.known_end = 700
    assert list(readings.hungry(is_prefetch=False)) == []
    readings.take()
    assert readings.is_running_out()
    assert not readings.is_running_out()  # once is enough
    assert [partition for partition, _ in readings.hungry(is_prefetch=True)] == [ZERO]
    assert reading.fetch_offset == 605
    reading.known_end = 605
    assert list(readings.hungry(is_prefetch=True)) == []


def test_what_is_damaged_is_raised_behind_what_is_not_and_each_time() -> None:
    readings = assigned(ZERO)
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    arrive(readings, ZERO, batch(0, 2), bytes(damaged))
    assert offsets(readings.take()) == [0, 1]
    for _ in range(2):
        arrive(readings, ZERO, bytes(damaged))
        with pytest.raises(UnreadableBatch):
            readings.take()
        assert readings.positions() == {ZERO: 2}


def test_a_paused_partition_keeps_what_came() -> None:
    readings = assigned(ZERO, ONE)
    arrive(readings, ZERO, batch(0, 2))
    waiting = reading_of(readings, ONE)
    readings.pause(ZERO)
    readings.pause(ONE)
    arrive(readings, ONE, batch(0, 1), reading=waiting)
    assert readings.take() == []
    assert readings.paused == {ZERO, ONE}
    readings.resume(ONE)
    assert readings.take()[0].partition == 1
    readings.resume(ZERO)
    assert offsets(readings.take()) == [0, 1]


def test_who_seeks_while_a_fetch_is_on_its_way_does_not_get_what_it_returns() -> None:
    readings = assigned(ZERO)
    asked = reading_of(readings, ZERO)
    readings.pause(ZERO)
    readings.seek(ZERO, 7)
    assert not readings.holds(ZERO, asked)
    assert readings.positions() == {ZERO: 7}
    assert readings.paused == {ZERO}
    readings.seek(ZERO, None, -2)
    assert readings.positions() == {}


def test_a_partition_that_is_dropped_takes_its_records_with_it() -> None:
    readings = Readings()
    readings.add({ZERO: TopicId(bytes(16)), ONE: None})
    readings.seek(ZERO, 0)
    arrive(readings, ZERO, batch(0, 2))
    readings.drop([ZERO])
    assert readings.take() == []
    assert readings.partitions == {ONE}


def test_reading_stops_at_the_end_that_was_given() -> None:
    readings = assigned(ZERO)
    arrive(readings, ZERO, batch(0, 2), batch(2, 3))
    readings.stop_at({ZERO: 3})
    assert offsets(readings.take()) == [0, 1, 2]
    assert readings.are_at_end


def test_who_stops_within_a_batch_is_there_and_can_go_on_from_there() -> None:
    readings = assigned(ZERO)
    arrive(readings, ZERO, batch(0, 10))
    readings.stop_at({ZERO: 5})
    assert offsets(readings.take()) == [0, 1, 2, 3, 4]
    assert readings.positions() == {ZERO: 5}
    readings.stop_at({ZERO: 8})
    assert readings.take() == []
    arrive(readings, ZERO, batch(0, 10))
    assert offsets(readings.take()) == [5, 6, 7]
    assert readings.positions() == {ZERO: 8}


def test_what_was_asked_for_behind_damage_is_not_taken_for_what_comes_next() -> None:
    readings = assigned(ZERO)
    damaged = bytearray(batch(600, 5))
    damaged[-1] ^= 1
    reading = arrive(readings, ZERO, batch(0, 600), bytes(damaged))
    assert len(readings.take()) == 600
    prefetched = Chunk(ZERO, memoryview(batch(605, 5)), 605, inflated_bytes_max=1 << 20)
    with pytest.raises(UnreadableBatch):
        readings.take()
    readings.keep(ZERO, reading, prefetched)
    assert readings.take() == []
    assert readings.positions() == {ZERO: 600}


def test_who_put_records_back_is_not_at_the_end() -> None:
    readings = assigned(ZERO)
    arrive(readings, ZERO, batch(0, 3))
    readings.stop_at({ZERO: 3})
    records = readings.take()
    readings.put_back(ZERO, records[1:])
    assert not readings.are_at_end
    assert offsets(readings.take()) == [1, 2]
    assert readings.are_at_end


def handed_out(count: int = 5) -> tuple[Readings, Handout]:
    readings = assigned(ZERO)
    arrive(readings, ZERO, batch(0, count))
    handout = Handout(readings)
    handout.start(readings.take())
    return readings, handout


def test_a_record_is_done_when_the_next_is_asked_for() -> None:
    _, handout = handed_out()
    assert (handout.positions(), handout.done()) == ({ZERO: 0}, {ZERO: 0})
    handout.given = 1
    assert (handout.positions(), handout.done()) == ({ZERO: 1}, {ZERO: 0})
    handout.given = 5
    assert (handout.positions(), handout.done()) == ({ZERO: 5}, {ZERO: 4})
    handout.finish()
    assert handout.done() == {ZERO: 5}


def test_all_records_of_a_poll_are_done_when_the_next_is_made() -> None:
    _, handout = handed_out()
    assert offsets(handout.take(2)) == [0, 1]
    assert (handout.positions(), handout.done()) == ({ZERO: 2}, {ZERO: 0})
    assert offsets(handout.take(2)) == [2, 3]
    assert (handout.positions(), handout.done()) == ({ZERO: 4}, {ZERO: 2})


def test_what_is_put_back_comes_again_and_what_is_in_hand_stays_there() -> None:
    readings, handout = handed_out()
    handout.given = 2
    handout.put_back()
    assert handout.is_empty
    assert (handout.positions(), handout.done()) == ({ZERO: 2}, {ZERO: 1})
    assert offsets(readings.take()) == [2, 3, 4]


def test_who_seeks_has_nothing_in_hand() -> None:
    readings, handout = handed_out()
    handout.take(3)
    handout.forget(ONE)
    assert handout.done() == {ZERO: 0}
    handout.forget(ZERO)
    readings.seek(ZERO, 9)
    assert (handout.positions(), handout.done()) == ({ZERO: 9}, {ZERO: 9})


def test_what_was_in_hand_of_a_partition_that_is_gone_is_not_told() -> None:
    readings, handout = handed_out()
    handout.take(3)
    readings.drop([ZERO])
    assert handout.done() == handout.positions() == {}
