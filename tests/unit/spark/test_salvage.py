"""Chunks with damaged batches: what can be read, and what is named as lost."""

import pyarrow as pa

from headrace.client.topics import TopicPartition
from headrace.records.builder import BatchBuilder
from headrace.records.columns import to_arrow
from headrace.records.compression import Compression, ReadableBuffer
from headrace.records.header import HEADER_BYTES, assign_offset
from headrace.spark.salvage import Unreadable, salvage

PARTITION = TopicPartition("t", 0)
LAST_OFFSET_DELTA_AT = 23


def batch(base_offset: int, records: int) -> bytearray:
    builder = BatchBuilder(Compression.NONE)
    for number in range(records):
        builder.append(0, None, str(base_offset + number).encode())
    built = bytearray(builder.build())
    assign_offset(memoryview(built), base_offset, 0)
    return built


def decode(records: ReadableBuffer) -> pa.RecordBatch:
    return to_arrow(records, check_crcs=True)


def lost_in(*batches: bytearray) -> tuple[list[int], list[tuple[int, int]]]:
    """Give the offsets that can be read, and the ranges that cannot."""
    found = salvage(PARTITION, b"".join(batches), decode)
    offsets = [row["offset"] for rows in found.whole for row in rows.to_pylist()]
    return offsets, [(each.first, each.last) for each in found.lost]


def test_batches_around_a_damaged_one_are_read() -> None:
    first, second, third = batch(0, 2), batch(2, 3), batch(5, 1)
    second[HEADER_BYTES] ^= 0xFF
    assert lost_in(first, second, third) == ([0, 1, 5], [(2, 4)])


def test_a_damaged_batch_ends_where_the_next_one_begins() -> None:
    for delta in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"):
        damaged = batch(2, 3)
        damaged[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = delta
        assert lost_in(batch(0, 2), damaged, batch(5, 1)) == ([0, 1, 5], [(2, 4)])


def test_the_last_batch_ends_where_it_says() -> None:
    damaged = batch(2, 3)
    damaged[-1] ^= 0xFF
    assert lost_in(batch(0, 2), damaged) == ([0, 1], [(2, 4)])


def test_what_is_lost_is_named_with_its_place_and_reason() -> None:
    assert str(Unreadable(PARTITION, 2, 4, "why")) == "t-0, offsets 2 to 4: why"
