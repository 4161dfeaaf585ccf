"""What a reader sees of fetched bytes."""

import pytest

from headrace.client.fetched import Chunk, ConsumedRecord, UnreadableBatch
from headrace.client.topics import TopicPartition
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import HEADER_BYTES, seal

P0 = TopicPartition("topic", 0)


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(Compression.ZSTD)
    for value in values:
        builder.append(1000, None, value)
    is_transactional = producer_id >= 0
    return bytes(
        builder.build(
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
    )


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return bytes(
        build_end_transaction_marker(
            1000,
            is_commit=is_commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=offset,
        )
    )


def chunk(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> Chunk:
    return Chunk(P0, memoryview(data), position, aborted=aborted, inflated_bytes_max=10_000)


def read_all(source: Chunk) -> list[ConsumedRecord]:
    records = []
    while (some := source.next_batch()) is not None:
        records += some
    return records


def test_records_before_the_position_are_left_out() -> None:
    source = chunk(batch(10, b"a", b"b", b"c"), position=11)
    assert [(record.offset, record.value) for record in read_all(source)] == [
        (11, b"b"),
        (12, b"c"),
    ]
    assert source.position == 13


def test_a_batch_that_is_cut_off_waits_for_the_next_fetch() -> None:
    whole = batch(0, b"a")
    source = chunk(whole + batch(1, b"b")[:-1])
    assert [record.value for record in read_all(source)] == [b"a"]
    assert source.position == 1


def test_bytes_without_a_whole_batch_are_an_error_and_no_endless_loop() -> None:
    with pytest.raises(UnreadableBatch, match="hold no whole batch") as caught:
        chunk(batch(0, b"a")[:-1]).next_batch()
    assert caught.value.next_offset is None


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(batch(0, b"a"))
    data[-1] ^= 1
    with pytest.raises(UnreadableBatch, match="CRC"):
        chunk(bytes(data)).next_batch()


def test_records_that_nobody_can_read_are_named_and_what_is_behind_them_can_be_had() -> None:
    spoiled = bytearray(batch(10, b"a", b"b", b"c"))
    spoiled[HEADER_BYTES:] = bytes(len(spoiled) - HEADER_BYTES)
    seal(spoiled)
    source = chunk(bytes(spoiled) + batch(13, b"d"), position=11)
    with pytest.raises(UnreadableBatch) as caught:
        source.next_batch()
    error = caught.value
    assert (error.partition, error.offset, error.next_offset) == (P0, 11, 13)
    assert "partition topic-0, offsets 11 to 12: zstd data" in error.message
    assert error.message.endswith("to skip them, seek to 13")
    assert [record.value for record in read_all(source)] == [b"d"]


def test_markers_are_no_records_and_the_position_moves_past_them() -> None:
    source = chunk(batch(0, b"a", producer_id=7) + marker(1, 7, is_commit=True))
    assert [record.value for record in read_all(source)] == [b"a"]
    assert source.position == 2


def test_a_reader_of_committed_records_never_sees_aborted_ones() -> None:
    data = (
        batch(0, b"kept", producer_id=7)
        + batch(1, b"taken back", producer_id=8)
        + batch(2, b"outside")
        + marker(3, 8, is_commit=False)
        + batch(4, b"the next one", producer_id=8)
        + marker(5, 8, is_commit=True)
        + marker(6, 7, is_commit=True)
    )
    committed = chunk(data, aborted=[(8, 1)])
    assert [record.value for record in read_all(committed)] == [
        b"kept",
        b"outside",
        b"the next one",
    ]
    assert committed.position == 7
    everything = chunk(data)
    assert b"taken back" in [record.value for record in read_all(everything)]
