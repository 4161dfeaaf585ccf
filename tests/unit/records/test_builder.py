"""Batches that we build: sizes, header fields, and aiokafka's opinion of them."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.builder import BatchBuilder, build_batch, record_bytes_max
from headrace.records.compression import Compression
from headrace.records.header import HEADER_BYTES, TimestampType, check_crc, read_header
from headrace.records.reader import read_records
from headrace.records.record import Record
from tests.unit.records.record_values import NOW_MS, dense_records, plain_records

# What MemoryRecordsBuilder of Apache Kafka 4.3.1 made of values v and w at times 1000 and 2000:
# with an append time of 5000, and with a delete horizon of 777777.
KAFKA_APPEND_TIME = bytes.fromhex(
    "000000000000000000000042000000040216d3fe1700080000000100000000000003e80000000000001388ffff"
    "ffffffffffffffffffffffff000000020e000000010276001000d00f0201027700"
)
KAFKA_DELETE_HORIZON = bytes.fromhex(
    "0000000000000000000000450000000402fb7796f900400000000100000000000bde3100000000000007d0ffff"
    "ffffffffffffffffffffffff00000002120091e95e00010276001200c1d95e0201027700"
)


def read_by_aiokafka(batch: bytearray) -> list[Record]:
    reader = DefaultRecordBatch(bytes(batch))
    assert reader.validate_crc()
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((k, v) for k, v in r.headers))
        for r in reader
    ]


@given(dense_records(base_offset=40), st.sampled_from(Compression))
def test_aiokafka_reads_what_we_build(records: list[Record], codec: Compression) -> None:
    batch = build_batch(records, codec, 40)
    if records:
        assert read_by_aiokafka(batch) == records


@pytest.mark.parametrize("codec", Compression)
def test_aiokafka_reads_ten_thousand_records(codec: Compression) -> None:
    records = plain_records(10_000)
    assert read_by_aiokafka(build_batch(records, codec)) == records


def test_a_batch_without_records_is_its_header() -> None:
    batch = BatchBuilder(Compression.GZIP, delete_horizon_ms=NOW_MS).build(
        base_offset=10, last_offset_delta=4, max_timestamp=NOW_MS - 1
    )
    header = read_header(batch)
    check_crc(batch, header)
    assert len(batch) == HEADER_BYTES
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 10, 14)
    assert (header.compression, header.delete_horizon_ms) == (Compression.NONE, NOW_MS)
    assert header.max_timestamp == NOW_MS - 1
    assert list(read_records(batch)) == []


def test_the_first_timestamp_is_the_base_and_the_largest_the_maximum() -> None:
    builder = BatchBuilder()
    for timestamp in (50, 90, 20):
        builder.append(timestamp, None, b"v")
    header = read_header(builder.build())
    assert (header.base_timestamp, header.max_timestamp) == (50, 90)


def test_a_delete_horizon_takes_the_place_of_the_base_and_times_stay() -> None:
    builder = BatchBuilder(delete_horizon_ms=NOW_MS)
    for timestamp in (50, 90):
        builder.append(timestamp, b"k", None)
    batch = builder.build()
    assert read_header(batch).delete_horizon_ms == NOW_MS
    assert [record.timestamp for record in read_records(batch)] == [50, 90]


def test_with_log_append_time_every_record_has_the_time_of_the_append() -> None:
    builder = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    for timestamp in (50, 90):
        builder.append(timestamp, b"k", None)
    batch = builder.build(max_timestamp=NOW_MS)
    assert [record.timestamp for record in read_records(batch)] == [NOW_MS, NOW_MS]
    assert [record.timestamp for record in read_by_aiokafka(batch)] == [NOW_MS, NOW_MS]


def test_times_are_laid_out_as_kafka_does() -> None:
    appended = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    compacted = BatchBuilder(delete_horizon_ms=777_777)
    for builder in (appended, compacted):
        builder.append(1000, None, b"v")
        builder.append(2000, None, b"w")
    assert appended.build(max_timestamp=5000, leader_epoch=4) == KAFKA_APPEND_TIME
    assert compacted.build(leader_epoch=4) == KAFKA_DELETE_HORIZON


def test_producer_fields_are_where_aiokafka_looks_for_them() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    batch = builder.build(
        producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1, is_transactional=True
    )
    reader = DefaultRecordBatch(bytes(batch))
    assert (reader.producer_id, reader.producer_epoch) == (2**40, 7)
    assert (reader.base_sequence, reader.is_transactional) == (2**31 - 1, True)
    assert not reader.is_control_batch


def test_offsets_may_have_gaps_but_never_go_back() -> None:
    builder = BatchBuilder()
    assert builder.append(NOW_MS, b"a", b"") == 0
    assert builder.append(NOW_MS, b"b", b"", offset_delta=5) == 5
    assert builder.append(NOW_MS, b"c", b"") == 6
    with pytest.raises(ValueError, match="offset delta 6 after 6"):
        builder.append(NOW_MS, b"d", b"", offset_delta=6)
    batch = builder.build(base_offset=100, last_offset_delta=9)
    assert [record.offset for record in read_records(batch)] == [100, 105, 106]
    assert read_header(batch).last_offset == 109


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="timestamp -2"):
        BatchBuilder().append(-2, None, None)


@given(dense_records(), st.integers(0, 1000))
def test_a_batch_with_room_for_a_record_stays_within_the_limit(
    records: list[Record], limit_bytes: int
) -> None:
    builder = BatchBuilder()
    for record in records:
        fields = (record.key, record.value, record.headers)
        has_room = builder.has_room_for(*fields, limit_bytes)
        was_empty = builder.record_count == 0
        before_bytes = builder.size_bytes
        builder.append(record.timestamp, *fields)
        assert builder.size_bytes - before_bytes <= record_bytes_max(*fields)
        assert was_empty or not has_room or builder.size_bytes <= limit_bytes
    assert len(builder.build()) == builder.size_bytes
