"""Chunks of batches become Arrow columns with the same records in them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.builder import BatchBuilder, build_batch
from headrace.records.columns import SCHEMA, to_arrow
from headrace.records.compression import Compression
from headrace.records.control import ControlType, build_control_batch, build_end_transaction_marker
from headrace.records.errors import CorruptBatch, InflatedTooLarge, UnsupportedBatch
from headrace.records.header import TimestampType, read_headers
from headrace.records.reader import read_records
from headrace.records.record import Record
from tests.unit.records.record_values import (
    NOW_MS,
    chunk_of,
    dense_records,
    plain_batch,
    plain_records,
    with_bytes,
    with_payload,
)

pytestmark = pytest.mark.usefixtures("scan_mode")


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """The rows as records, so that they compare with what the reader says."""
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    columns = batch.set_column(3, "timestamp", batch.column(3).cast(pa.int64())).to_pydict()
    return [
        Record(offset, timestamp, key, value, tuple((h["key"], h["value"]) for h in headers))
        for offset, timestamp, key, value, headers in zip(
            columns["offset"],
            columns["timestamp"],
            columns["key"],
            columns["value"],
            columns["headers"],
            strict=True,
        )
    ]


@pytest.mark.slow
@given(st.lists(st.tuples(dense_records(), st.sampled_from(Compression)), max_size=4))
def test_columns_hold_what_the_reader_reads(
    batches: list[tuple[list[Record], Compression]],
) -> None:
    chunk = chunk_of([build_batch(records, codec) for records, codec in batches if records])
    expected: list[Record] = []
    for position, header in read_headers(chunk):
        expected += read_records(chunk[position : position + header.size_bytes])
    assert records_of(to_arrow(chunk, check_crcs=True)) == expected


@pytest.mark.slow
def test_ten_thousand_records_with_nulls_and_headers() -> None:
    records = plain_records(10_000)
    assert records_of(to_arrow(build_batch(records, Compression.LZ4))) == records


def test_an_empty_chunk_has_the_schema_and_no_rows() -> None:
    for chunk in (b"", plain_batch(0), bytes(60)):
        batch = to_arrow(chunk)
        assert (batch.schema, batch.num_rows) == (SCHEMA, 0)


def test_a_cut_off_last_batch_is_left_out() -> None:
    chunk = chunk_of([plain_batch(3), plain_batch(4)])
    first_bytes = len(plain_batch(3))
    for cut in range(first_bytes, len(chunk), 7):
        assert to_arrow(chunk[:cut]).num_rows == 3


def test_times_are_utc_and_types_and_epochs_those_of_the_batch() -> None:
    appended = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    for timestamp in (1, 2):
        appended.append(timestamp, None, b"v")
    chunk = chunk_of(
        [build_batch([Record(0, NOW_MS, None, b"v")]), appended.build(max_timestamp=NOW_MS + 7)]
    )
    batch = to_arrow(chunk)
    now = datetime.fromtimestamp(NOW_MS // 1000, UTC)
    assert batch["timestamp"].to_pylist() == [now] + [now + timedelta(milliseconds=7)] * 2
    assert batch["timestamp_type"].to_pylist() == [0, 1, 1]
    assert batch["leader_epoch"].to_pylist() == [0, 1, 1]


@given(st.integers(0, 20), st.integers(0, 20))
def test_only_the_offsets_asked_for_are_given(start: int, stop: int) -> None:
    chunk = chunk_of([plain_batch(5), plain_batch(5, Compression.ZSTD), plain_batch(5)])
    batch = to_arrow(chunk, start_offset=start, stop_offset=stop)
    batch.validate(full=True)
    assert batch["offset"].to_pylist() == [offset for offset in range(15) if start <= offset < stop]


def transactional(producer_id: int, value: bytes) -> bytearray:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, value)
    return builder.build(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def marker(producer_id: int, is_commit: bool) -> bytearray:
    return build_end_transaction_marker(
        NOW_MS,
        is_commit=is_commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
    )


def test_control_batches_are_left_out() -> None:
    leader_change = build_control_batch(ControlType.LEADER_CHANGE, b"", NOW_MS)
    chunk = chunk_of([leader_change, plain_batch(2), marker(7, True), plain_batch(1)])
    assert to_arrow(chunk)["offset"].to_pylist() == [1, 2, 4]


def test_aborted_transactions_end_at_their_marker() -> None:
    chunk = chunk_of(
        [
            transactional(7, b"committed before"),  # offset 0
            marker(7, True),
            transactional(7, b"aborted"),  # offset 2
            transactional(8, b"committed beside"),
            build_batch([Record(0, NOW_MS, None, b"outside")]),
            transactional(7, b"aborted too"),
            marker(8, True),
            marker(7, False),
            transactional(7, b"committed after"),  # offset 8
            marker(7, True),
            transactional(8, b"aborted later"),  # offset 10
            transactional(7, b"aborted again"),
            marker(7, False),
        ]
    )
    aborted = [(8, 10), (7, 11), (7, 2)]
    assert to_arrow(chunk, aborted=aborted)["value"].to_pylist() == [
        b"committed before",
        b"committed beside",
        b"outside",
        b"committed after",
    ]
    assert to_arrow(chunk).num_rows == 8


def test_a_transaction_that_was_aborted_before_the_chunk_began_is_left_out() -> None:
    chunk = chunk_of([transactional(7, b"aborted"), marker(7, False), transactional(7, b"later")])
    moved = bytearray(chunk)
    for position, header in read_headers(chunk):
        moved[position : position + 8] = (header.base_offset + 50).to_bytes(8)
    assert to_arrow(moved, aborted=[(7, 20)])["value"].to_pylist() == [b"later"]


def test_checksums_are_checked_on_request() -> None:
    batch = plain_batch(2)
    batch[batch.index(b"value")] ^= 1
    assert to_arrow(batch).num_rows == 2
    with pytest.raises(CorruptBatch, match="CRC32C"):
        to_arrow(batch, check_crcs=True)


def test_offsets_that_go_back_are_named() -> None:
    with pytest.raises(CorruptBatch, match="offsets 0 to 2 where 3"):
        to_arrow(plain_batch(3) + plain_batch(3))


def test_offsets_beyond_64_bits_are_named() -> None:
    batch = with_bytes(plain_batch(3), 0, (2**63 - 2).to_bytes(8))
    with pytest.raises(CorruptBatch, match="beyond 64 bits"):
        to_arrow(batch)


def test_old_formats_are_named() -> None:
    with pytest.raises(UnsupportedBatch):
        to_arrow(with_bytes(plain_batch(3), 16, b"\x01"))


@pytest.mark.slow
def test_a_header_key_that_is_not_utf8_is_read_as_kafkas_clients_do() -> None:
    good = bytes.fromhex("10 00 00 00 01 01 02 00 01")
    bad = bytes.fromhex("12 00 00 02 01 01 02 02 ff 01")
    batch = with_payload(build_batch(plain_records(2, 40), base_offset=40), good + bad)
    headers = to_arrow(batch).column("headers").to_pylist()
    assert headers == [[{"key": "", "value": None}], [{"key": "\ufffd", "value": None}]]


def test_the_limit_holds_for_all_batches_of_a_chunk_together() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(1000))], Compression.ZSTD)
    emptied = with_bytes(BatchBuilder().build(last_offset_delta=0), 22, b"\x04")
    chunk = chunk_of([emptied, *[batch] * 5])
    assert to_arrow(chunk, inflated_bytes_max=5_100).num_rows == 5
    with pytest.raises(InflatedTooLarge):
        to_arrow(chunk, inflated_bytes_max=4_999)
