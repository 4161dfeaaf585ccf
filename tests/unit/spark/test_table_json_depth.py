"""How deep JSON is nested: brackets in strings do not count, and nothing deep reaches a parser."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.tables.column_types import DEPTH_MAX
from headrace.spark.tables.json_decoding import JsonDecoder
from headrace.spark.tables.json_depth import bytes_of, depth_of, rows_deeper_than

ID = pa.schema([pa.field("id", pa.int64())])


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"", 0),
        (b"1", 0),
        (b"{}", 1),
        (b'{"a":[{"b":[]}]}', 4),
        (b'{"[[[[":"{{{{"}', 1),
        (b'{"a":"\\"[[["}', 1),
        (b'{"a":"\\\\","b":[1]}', 2),
        (b'{"a":"[[[', 1),  # a string without an end
        (b"[[[", 3),
        (nested(20_000), 20_000),
    ],
)
def test_brackets_that_are_open_at_once_are_counted(text: bytes, depth: int) -> None:
    assert depth_of(text) == depth


def plain_depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(plain_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(plain_depth, value), default=0)
    return 0


VALUES = st.recursive(
    st.none() | st.text('[]{}"\\a', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(VALUES)
def test_the_depth_is_that_of_the_parsed_value(value: object) -> None:
    assert depth_of(json.dumps(value).encode()) == plain_depth(value)


@given(st.lists(st.binary(max_size=40) | st.integers(0, 60).map(nested), max_size=6))
def test_a_chunk_is_judged_as_its_values_are(values: list[bytes]) -> None:
    found = rows_deeper_than(pa.array(values, pa.binary()), DEPTH_MAX)
    assert found == [row for row, each in enumerate(values) if depth_of(each) > DEPTH_MAX]


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 900, 20_000])
def test_a_value_that_is_nested_too_deep_is_a_bad_one_and_its_neighbours_are_not(
    depth: int,
) -> None:
    values = [b'{"id":1}', nested(depth), b'{"id":2}', b"[" * depth, b'{"id":3}']
    for evolves in (True, False):
        decoded = JsonDecoder(ID, evolves=evolves).decode(pa.array(values, pa.binary()))
        assert decoded.kept == [0, 2, 4]
        assert decoded.columns.to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert [
            (each.row, f"more than {DEPTH_MAX} deep" in each.reason) for each in decoded.bad
        ] == [
            (1, True),
            (3, True),
        ]
        assert not len(decoded.seen)


def test_a_slice_of_a_chunk_has_only_its_own_values() -> None:
    values = pa.array([nested(50), b'{"id":1}', b'{"id":2}', nested(50)], pa.binary())
    decoded = JsonDecoder(ID, evolves=True).decode(values.slice(1, 2))
    assert (decoded.kept, decoded.bad) == ([0, 1], [])
    assert decoded.columns.to_pylist() == [{"id": 1}, {"id": 2}]


def test_of_a_slice_nothing_else_is_looked_at() -> None:
    values = pa.array([b"a" * 1_000, b"{}", None, b"[1]", b"b" * 1_000], pa.binary())
    assert bytes_of(values.slice(1, 3)) == b"{}[1]"
    assert bytes_of(values.slice(1, 3).slice(2)) == b"[1]"
    assert bytes_of(values.slice(5)) == bytes_of(pa.array([], pa.binary())) == b""
