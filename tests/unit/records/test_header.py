"""The 61 bytes in front of a batch: read, walked over, edited in place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.errors import CorruptBatch, UnsupportedBatch
from headrace.records.header import (
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    assign_offset,
    check_crc,
    read_header,
    read_headers,
    set_timestamp,
)
from tests.unit.records.record_values import NOW_MS, chunk_of, plain_batch, with_bytes

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        BatchHeader,
        base_offset=INT64,
        batch_length=st.integers(49, 2**31 - 1),
        leader_epoch=INT32,
        magic=st.just(2),
        crc=st.integers(0, 2**32 - 1),
        attributes=INT16,
        last_offset_delta=INT32,
        base_timestamp=INT64,
        max_timestamp=INT64,
        producer_id=INT64,
        producer_epoch=INT16,
        base_sequence=INT32,
        record_count=INT32,
    ),
    st.integers(0, 9),
)
def test_every_field_is_read_from_where_it_was_written(header: BatchHeader, position: int) -> None:
    buffer = bytes(position) + HEADER.pack(*structs.astuple(header))
    assert read_header(buffer, position) == header


def test_a_header_names_what_its_attributes_say() -> None:
    builder = BatchBuilder(
        Compression.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME, delete_horizon_ms=NOW_MS
    )
    builder.append(NOW_MS + 5, b"k", b"v")
    builder.append(NOW_MS + 6, b"k", b"v", offset_delta=7)
    batch = builder.build(base_offset=100, is_transactional=True, is_control=True)
    header = read_header(batch)
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True,) * 3
    assert header.delete_horizon_ms == NOW_MS
    assert (header.last_offset, header.next_offset) == (107, 108)
    assert header.size_bytes == len(batch)


def test_a_plain_header_has_no_delete_horizon() -> None:
    header = read_header(plain_batch(1))
    assert (header.has_delete_horizon, header.delete_horizon_ms) == (False, None)


@pytest.mark.parametrize("code", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_named_when_asked_for(code: int) -> None:
    header = read_header(with_bytes(plain_batch(1), 21, code.to_bytes(2)))
    with pytest.raises(CorruptBatch, match=f"codec {code}"):
        header.compression  # noqa: B018


def test_a_chunk_cut_anywhere_gives_the_batches_before_the_cut() -> None:
    sizes = [len(plain_batch(count)) for count in (1, 3, 2)]
    chunk = chunk_of([plain_batch(count) for count in (1, 3, 2)])
    ends = [sum(sizes[: number + 1]) for number in range(3)]
    for cut in range(len(chunk) + 1):
        found = [position + header.size_bytes for position, header in read_headers(chunk[:cut])]
        assert found == [end for end in ends if end <= cut]


@pytest.mark.parametrize(
    ("position", "new", "error", "words"),
    [
        (16, b"\x00", UnsupportedBatch, "v0"),
        (16, b"\x01", UnsupportedBatch, "v1"),
        (16, b"\x03", CorruptBatch, "magic 3"),
        (16, b"\xff", CorruptBatch, "magic -1"),
        (8, b"\x00\x00\x00\x30", CorruptBatch, "length 48"),
        (8, b"\xff\xff\xff\xff", CorruptBatch, "length -1"),
    ],
)
def test_what_cannot_be_a_header_is_named_with_its_position(
    position: int, new: bytes, error: type[Exception], words: str
) -> None:
    chunk = plain_batch(2)
    size = len(chunk)
    chunk += with_bytes(plain_batch(2), position, new)
    with pytest.raises(error, match=f"at {size}: .*{words}"):
        list(read_headers(chunk))


def test_too_few_bytes_for_a_header_are_named() -> None:
    with pytest.raises(CorruptBatch, match="at 1: 59 bytes"):
        read_header(bytes(HEADER_BYTES - 1), 1)


def test_any_flipped_bit_behind_the_checksum_is_found() -> None:
    batch = plain_batch(3)
    header = read_header(batch)
    check_crc(batch, header)
    for bit in range(21 * 8, len(batch) * 8, 5):
        batch[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch, match="CRC32C"):
            check_crc(batch, header)
        batch[bit // 8] ^= 1 << bit % 8


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_assigning_an_offset_changes_nothing_else(base_offset: int, leader_epoch: int) -> None:
    batch = plain_batch(2)
    before = read_header(batch)
    assign_offset(memoryview(batch), base_offset, leader_epoch)
    after = read_header(batch)
    check_crc(batch, after)
    assert after == structs.replace(before, base_offset=base_offset, leader_epoch=leader_epoch)


def test_log_append_time_goes_on_and_off_with_a_right_checksum() -> None:
    batch = plain_batch(2)
    original = bytes(batch)
    before = read_header(batch)
    set_timestamp(memoryview(batch), before, TimestampType.LOG_APPEND_TIME, NOW_MS + 99)
    stamped = read_header(batch)
    check_crc(batch, stamped)
    assert (stamped.timestamp_type, stamped.max_timestamp) == (1, NOW_MS + 99)
    set_timestamp(memoryview(batch), stamped, TimestampType.CREATE_TIME, before.max_timestamp)
    assert batch == original
