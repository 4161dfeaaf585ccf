"""Records come out of a batch as they went in, or what is wrong with it is named."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.builder import build_batch
from headrace.records.compression import Compression
from headrace.records.errors import CorruptBatch, InflatedTooLarge
from headrace.records.header import HEADER_BYTES
from headrace.records.reader import read_records
from headrace.records.record import Record
from tests.unit.records.record_values import (
    NOW_MS,
    dense_records,
    plain_batch,
    plain_records,
    with_bytes,
    with_payload,
)

pytestmark = pytest.mark.usefixtures("scan_mode")


@given(dense_records(base_offset=7), st.sampled_from(Compression))
def test_records_survive_a_batch(records: list[Record], codec: Compression) -> None:
    assert list(read_records(build_batch(records, codec, 7))) == records


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("count", [1, 10_000])
def test_what_aiokafka_builds_is_read(codec: Compression, count: int) -> None:
    records = plain_records(count)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    assert list(read_records(bytes(builder.build()))) == records


def one_record(payload: str) -> bytearray:
    return with_payload(build_batch([Record(0, NOW_MS, None, None)]), bytes.fromhex(payload))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("0c 00 00 00 01 01", "1 records cannot be in 6 bytes"),
        ("0c 00 00 00 01 01 00 00", "1 bytes behind its 1 records"),
        ("0e 00 00 00 01 01 00", "record 0: a length or count does not fit"),
        ("00 00 00 00 01 01 00", "record 0: a length or count does not fit"),
        ("01 00 00 00 01 01 00", "record 0: a length or count does not fit"),
        ("80 80 80 80 80 00 00 00", "record 0: a varint is cut off or too long"),
        ("ff ff ff ff ff ff ff", "record 0: a varint is cut off or too long"),
        ("0c 00 80 80 80 80 80", "record 0: a varint is cut off or too long"),
        ("1e 00 ff ff ff ff ff ff ff ff ff 02 00 01 01 00", "record 0: a varint"),
        ("0c 00 00 00 03 01 00", "record 0: a length or count does not fit"),
        ("0c 00 00 00 14 01 00", "record 0: a length or count does not fit"),
        ("0c 00 00 00 01 14 00", "record 0: a length or count does not fit"),
        ("0c 00 00 00 01 01 01", "record 0: a length or count does not fit"),
        ("0c 00 00 00 01 01 02", "record 0: a length or count does not fit"),
        ("10 00 00 00 01 01 02 01 01", "record 0: a length or count does not fit"),
        ("0e 00 00 00 01 01 00 00", "record 0: bytes are left"),
        ("0c 00 00 02 01 01 00", "record 0: offset delta 1 must be beyond -1"),
        ("0c 00 00 01 01 01 00", "record 0: offset delta -1 must be beyond -1"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(payload: str, words: str) -> None:
    with pytest.raises(CorruptBatch, match=words):
        list(read_records(one_record(payload)))


def test_a_header_key_that_is_not_utf8_is_read_as_kafkas_clients_do() -> None:
    (record,) = read_records(one_record("12 00 00 00 01 01 02 02 ff 01"))
    assert record.headers == (("\ufffd", None),)


def test_offset_deltas_must_ascend() -> None:
    record = bytes.fromhex("0c 00 00 00 01 01 00")
    batch = with_bytes(build_batch(plain_records(2)), 23, b"\x00\x00\x00\x05")
    with pytest.raises(CorruptBatch, match="record 1: offset delta 0 must be beyond 0"):
        list(read_records(with_payload(batch, record * 2)))


def test_timestamps_beyond_64_bits_are_named() -> None:
    largest = bytes.fromhex("1e 00 fe ff ff ff ff ff ff ff ff 01 00 01 01 00")
    batch = with_payload(build_batch([Record(0, NOW_MS, None, None)]), largest)
    with pytest.raises(CorruptBatch, match="timestamp is beyond 64 bits"):
        list(read_records(batch))
    at_zero = with_bytes(batch, 27, bytes(8))
    assert [record.timestamp for record in read_records(at_zero)] == [2**63 - 1]


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_is_not_the_number_of_records_is_named(count: int) -> None:
    batch = with_bytes(plain_batch(2), 57, count.to_bytes(4, signed=True))
    with pytest.raises(CorruptBatch, match="record"):
        list(read_records(batch))


def test_a_batch_that_is_not_all_there_is_named() -> None:
    batch = plain_batch(2)
    with pytest.raises(CorruptBatch, match=f"{len(batch)} bytes, {len(batch) - 1} are there"):
        read_records(batch[:-1])


def test_records_beyond_the_limit_are_not_inflated() -> None:
    batch = plain_batch(100, Compression.ZSTD)
    with pytest.raises(InflatedTooLarge):
        read_records(batch, inflated_bytes_max=100)


def test_an_empty_payload_needs_no_codec() -> None:
    batch = with_bytes(with_payload(plain_batch(1), b""), 57, bytes(4))
    for codec in Compression:
        empty = with_bytes(batch, 21, int(codec).to_bytes(2))
        assert len(empty) == HEADER_BYTES
        assert list(read_records(empty)) == []
