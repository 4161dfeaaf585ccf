"""The compiled walk and its source agree, on good records and on spoiled ones."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import _mode
from headrace.records import scan
from headrace.records.builder import build_batch
from headrace.records.errors import CorruptBatch
from headrace.records.header import HEADER_BYTES, read_header
from headrace.records.record import Record
from headrace.records.varint import encode_varint
from tests.unit.records.record_values import NOW_MS, dense_records, plain_batch, with_payload

SOURCE = _mode.load_source("headrace.records.scan")
TALLIES = [
    "rows",
    "null_keys",
    "key_bytes",
    "null_values",
    "value_bytes",
    "headers",
    "header_key_bytes",
    "null_header_values",
    "header_value_bytes",
    "min_timestamp",
    "max_timestamp",
]


def outcome(module: ModuleType, batch: bytes | bytearray, is_dense: bool) -> object:
    """All that `measure` and `read` say about a batch, errors included."""
    segment = (batch, HEADER_BYTES, len(batch), read_header(batch))
    try:
        tally = module.measure([segment], is_dense)
        sums = [getattr(tally, name) for name in TALLIES]
        return sums, list(module.read(segment))
    except CorruptBatch as error:
        return str(error)


@given(dense_records(), st.booleans())
def test_both_measure_and_read_the_same(records: list[Record], is_dense: bool) -> None:
    batch = build_batch(records)
    assert outcome(scan, batch, is_dense) == outcome(SOURCE, batch, is_dense)


@given(
    st.lists(st.tuples(st.integers(0, 2**16), st.binary(max_size=11)), min_size=1, max_size=4),
    st.booleans(),
)
def test_both_find_the_same_fault(edits: list[tuple[int, bytes]], is_dense: bool) -> None:
    batch = plain_batch(4)
    payload = bytearray(batch[HEADER_BYTES:])
    for seed, new in edits:
        position = seed % len(payload)
        payload[position : position + len(new)] = new
    spoiled = with_payload(batch, bytes(payload))
    assert outcome(scan, spoiled, is_dense) == outcome(SOURCE, spoiled, is_dense)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_64_bit_delta_is_read_as_it_was_written(delta: int) -> None:
    body = b"\x00" + encode_varint(delta) + bytes.fromhex("00 01 01 00")
    batch = with_payload(plain_batch(1), encode_varint(len(body)) + body)
    segment = (batch, HEADER_BYTES, len(batch), read_header(batch))
    ((_, timestamp, *_),) = scan.read(segment)
    assert timestamp == read_header(batch).base_timestamp + delta


def test_what_is_built_is_what_is_read_from_an_offset_on() -> None:
    records = [
        Record(0, NOW_MS, None, None),
        Record(1, NOW_MS + 5, b"k", b"v", (("name", b"1"), ("none", None))),
        Record(2, NOW_MS - 5, b"", b""),
    ]
    batch = build_batch(records)
    segment = (batch, HEADER_BYTES, len(batch), read_header(batch))
    for module in (scan, SOURCE):
        rows = list(module.read(segment))
        for first in range(4):
            built = module.build(segment, lambda *fields: fields, "orders", 7, "kind", first)
            assert built == [("orders", 7, *row, "kind") for row in rows if row[0] >= first]


def test_dense_records_have_no_gaps() -> None:
    batch = build_batch([Record(0, NOW_MS, None, None), Record(2, NOW_MS, None, None)])
    segment = (batch, HEADER_BYTES, len(batch), read_header(batch))
    assert scan.measure([segment], False).rows == 2
    with pytest.raises(CorruptBatch, match="record 1: its offset delta is 2"):
        scan.measure([segment], True)


def test_segments_add_up() -> None:
    batches = [plain_batch(count) for count in (3, 0, 5)]
    segments: list[scan.Segment] = [
        (batch, HEADER_BYTES, len(batch), read_header(batch)) for batch in batches
    ]
    tally = scan.measure(segments, True)
    assert tally.rows == 8
    assert tally.null_keys == 1
    assert tally.min_timestamp == NOW_MS - 3


@pytest.mark.parametrize("module", [scan, SOURCE])
@given(
    records=dense_records(50),
    timestamp=st.sampled_from([-(2**63), -1, 0, 2**61]) | st.integers(0, 2**62),
    from_offset=st.integers(0, 70),
    is_append_time=st.booleans(),
)
def test_times_are_found(
    module: ModuleType,
    records: list[Record],
    timestamp: int,
    from_offset: int,
    is_append_time: bool,
) -> None:
    batch = build_batch(records, base_offset=50)
    if is_append_time:
        batch[22] |= 8
    header = read_header(batch)
    segment = (batch, HEADER_BYTES, len(batch), header)
    times = [
        (header.max_timestamp if is_append_time else record.timestamp, record.offset)
        for record in records
        if record.offset >= from_offset
    ]
    expected = next((found for found in times if found[0] >= timestamp), None)
    assert module.find_time(segment, timestamp, from_offset) == expected
    assert module.find_latest(segment, from_offset) == max((at for at, _ in times), default=None)


@pytest.mark.parametrize("module", [scan, SOURCE])
@given(
    records=dense_records(),
    needs_keys=st.booleans(),
    bounds=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62)).map(sorted),
    count_max=st.integers(1, 5),
    is_append_time=st.booleans(),
)
def test_records_that_break_a_rule_are_found(
    module: ModuleType,
    records: list[Record],
    needs_keys: bool,
    bounds: list[int],
    count_max: int,
    is_append_time: bool,
) -> None:
    batch = build_batch(records)
    if is_append_time:
        batch[22] |= 8
    header = read_header(batch)
    earliest, latest = bounds
    expected = []
    for index, record in enumerate(records):
        timestamp = header.max_timestamp if is_append_time else record.timestamp
        is_right = timestamp == -1 or earliest <= timestamp <= latest
        if (needs_keys and record.key is None) or not is_right:
            expected.append((index, timestamp, record.key is not None))
    segment = (batch, HEADER_BYTES, len(batch), header)
    found = module.find_faulty(segment, needs_keys, earliest, latest, count_max)
    assert found == expected[:count_max]
