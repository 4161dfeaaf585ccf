"""The map of latest offsets and its walks, compiled and not."""

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _mode
from headrace.log import offset_map
from headrace.records.builder import BatchBuilder
from headrace.records.errors import CorruptBatch
from headrace.records.header import HEADER_BYTES, read_header
from headrace.records.reader import find_records, read_records
from headrace.records.scan import Segment

IS_PURE = os.environ.get(_mode.PURE_VARIABLE) == "1"
MODES = ["uncompiled"] if IS_PURE else ["compiled", "uncompiled"]
MAP_BYTES = 24 * 1000
LIMIT_BYTES = 10_000_000
SECRET = bytes(range(16))
EVERYTHING = 2**62

Pairs = list[tuple[bytes | None, bytes | None]]


@pytest.fixture(params=MODES)
def module(request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled" and offset_map.__file__.endswith(".py"):
        pytest.fail(f"offset_map is not compiled; set {_mode.PURE_VARIABLE}=1 to test its source")
    name = offset_map.__name__
    return offset_map if request.param == "compiled" else _mode.load_source(name)


def records(pairs: Pairs, base_offset: int = 0, timestamps: list[int] | None = None) -> Segment:
    builder = BatchBuilder()
    for number, (key, value) in enumerate(pairs):
        timestamp = 1000 + number if timestamps is None else timestamps[number]
        builder.append(timestamp, key, value, (("header", None),))
    batch = bytes(builder.build(base_offset=base_offset))
    return find_records(batch, 0, read_header(batch), LIMIT_BYTES)


def sifted_offsets(
    module: Any, found: Segment, offsets: Any, end_offset: int = EVERYTHING, keeps: bool = True
) -> list[int]:
    """Sift, and give the offsets of what is left after reading it back."""
    output = bytearray(found[2] - found[1])
    sifted = offsets.sift(found, end_offset, keeps, output)
    builder = BatchBuilder().build(base_offset=found[3].base_offset, last_offset_delta=10**6)
    builder[57:61] = sifted.record_count.to_bytes(4, "big")
    builder[8:12] = (HEADER_BYTES - 12 + sifted.size_bytes).to_bytes(4, "big")
    batch = bytes(builder) + output[: sifted.size_bytes]
    return [record.offset for record in read_records(batch)]


def test_latest_offset_of_a_key_is_known(module: Any) -> None:
    offsets = module.OffsetMap(MAP_BYTES)
    assert offsets.add(records([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], 10), 0) == -1
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c")) == (12, 11, -1)
    assert offsets.count == 2


def test_records_below_the_first_dirty_offset_are_not_noted(module: Any) -> None:
    offsets = module.OffsetMap(MAP_BYTES)
    offsets.add(records([(b"a", b"1"), (b"b", b"1")], 10), 11)
    assert (offsets.get(b"a"), offsets.get(b"b")) == (-1, 11)


def test_full_map_says_where_it_had_to_stop(module: Any) -> None:
    offsets = module.OffsetMap(24 * 4)
    assert offsets.capacity == 3
    pairs: Pairs = [(b"a", b""), (b"b", b""), (b"a", b""), (b"c", b""), (b"d", b""), (b"a", b"")]
    assert offsets.add(records(pairs, 100), 0) == 104
    assert (offsets.get(b"a"), offsets.get(b"d")) == (102, -1)


def test_map_of_no_memory_has_room_for_one_key(module: Any) -> None:
    offsets = module.OffsetMap(0)
    assert offsets.add(records([(b"a", b""), (b"b", b"")]), 0) == 1


@pytest.mark.parametrize("length", [0, 1, 6, 7, 8, 14, 15, 16, 17, 64, 1000])
def test_keys_of_every_length_are_told_apart(module: Any, length: int) -> None:
    offsets = module.OffsetMap(MAP_BYTES)
    key = bytes(range(256)) * 4
    twins = [key[:length], key[: length + 1], b"\0" * length, b"\0" * (length + 1)]
    twins += [key[: length - 1] + b"\xff"] if length else []
    offsets.add(records([(twin, b"") for twin in twins]), 0)
    known = {twin: number for number, twin in enumerate(twins)}
    assert {twin: offsets.get(twin) for twin in twins} == known


def test_long_keys_are_hashed_as_the_authors_of_siphash_do() -> None:
    # The vector for sixteen bytes, of those that come with the reference implementation.
    source = _mode.load_source(offset_map.__name__)
    walk = source._Walk()
    source.OffsetMap(0, SECRET)._hash(walk, bytes(range(16)), 0, 16)
    digest = walk.hash_low.to_bytes(8, "little") + walk.hash_high.to_bytes(8, "little")
    assert digest.hex() == "6ee2a4ca67b054bbfd3315bf85230577"


def test_record_stays_if_none_later_is_known(module: Any) -> None:
    offsets = module.OffsetMap(MAP_BYTES)
    offsets.add(records([(b"a", b"2"), (b"b", None)], 10), 0)
    old = records([(b"a", b"1"), (b"c", b"1"), (None, b"1"), (b"d", None)])
    assert sifted_offsets(module, old, offsets) == [1, 3]
    assert sifted_offsets(module, old, offsets, keeps=False) == [1]
    assert sifted_offsets(module, old, offsets, end_offset=2) == [1, 2, 3]
    assert sifted_offsets(module, records([(b"a", b"2")], 10), offsets) == [10]


def test_sieve_says_what_it_let_through(module: Any) -> None:
    offsets = module.OffsetMap(MAP_BYTES)
    offsets.add(records([(b"a", b"2")], 10), 0)
    found = records([(b"a", b"1"), (b"b", None), (b"c", b"")], timestamps=[100, 90, 95])
    sifted = offsets.sift(found, EVERYTHING, True, bytearray(1000))
    assert (sifted.record_count, sifted.has_tombstones, sifted.max_timestamp_delta) == (2, True, -5)
    nothing = offsets.sift(records([(b"a", b"1")]), EVERYTHING, True, bytearray(1000))
    assert nothing == (0, 0, False, 0)


@pytest.mark.parametrize("shift", [0, 1, -1, 10**12, -(10**12), 2**62, -(2**62)])
def test_times_are_the_same_relative_to_another_base(module: Any, shift: int) -> None:
    payload, begin, end, header = records([(b"a", b"1"), (None, None), (b"c" * 200, b"x" * 300)])
    plain = bytes(payload[begin:end])
    shifted = module.shift_times(plain, len(plain), header.record_count, shift)
    assert (shifted == plain) == (shift == 0)
    assert module.shift_times(shifted, len(shifted), header.record_count, -shift) == plain


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_is_no_record_is_refused_and_never_read_beyond_its_end(data: st.DataObject) -> None:
    payload, begin, end, header = records([(b"key", b"value"), (b"k" * 20, None)])
    plain = bytearray(payload[begin:end])
    position = data.draw(st.integers(0, len(plain) - 1))
    plain[position] = data.draw(st.integers(0, 255))
    cut = bytes(plain[: data.draw(st.integers(1, len(plain)))])
    found = (cut, 0, len(cut), header)
    outcomes = []
    for module in (offset_map, _mode.load_source(offset_map.__name__)):
        offsets = module.OffsetMap(MAP_BYTES)
        try:
            offsets.add(found, 0)
            outcomes.append(offsets.sift(found, EVERYTHING, True, bytearray(len(cut))))
        except CorruptBatch as error:
            outcomes.append(error.message)
    assert outcomes[0] == outcomes[1]
    if len(cut) < len(plain):
        assert isinstance(outcomes[0], str)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=3)), min_size=1))
def test_map_agrees_with_a_dict(pairs: Pairs) -> None:
    found = records(pairs, 5)
    for module in (offset_map, _mode.load_source(offset_map.__name__)):
        offsets = module.OffsetMap(MAP_BYTES)
        assert offsets.add(found, 0) == -1
        latest = {key: number for number, (key, _) in enumerate(pairs, 5)}
        assert {key: offsets.get(key) for key in latest} == latest
        assert sifted_offsets(module, found, offsets) == sorted(latest.values())
