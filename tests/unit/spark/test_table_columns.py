"""Column types, JSON values, rules and partitions of tables."""

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.tables.admission import admit, fills, refusal
from headrace.spark.tables.column_types import (
    InvalidType,
    TypeConflict,
    grow,
    parse_type,
    type_text,
    unify_fields,
)
from headrace.spark.tables.definition import Definition, InvalidTable
from headrace.spark.tables.json_decoding import JsonDecoder
from headrace.spark.tables.partitioning import parse_partition, path_text, split_rows
from headrace.spark.tables.rules import broken, parse_rule

UTC: Any = pa.timestamp("us", tz="UTC")
Make: Any = pa


def values(*texts: str | bytes) -> "pa.Array[pa.Scalar[pa.DataType]]":
    return pa.array([each.encode() if isinstance(each, str) else each for each in texts])


@pytest.mark.parametrize(
    "text", ["long", "decimal(10,2)", "array<string>", "struct<a:int,b:array<struct<c:date>>>"]
)
def test_a_type_is_written_as_it_is_read(text: str) -> None:
    assert type_text(parse_type(text)) == text


def test_text_that_is_no_type_is_refused_with_the_types_there_are() -> None:
    for text in ("strin", "array<x>", "decimal(99,1)", "struct<a>", "array<" * 40 + ">" * 40):
        with pytest.raises(InvalidType):
            parse_type(text)


def test_a_stored_column_only_widens_where_old_files_can_be_read() -> None:
    known = Make.schema([("a", pa.int32()), ("s", Make.struct([("x", pa.float32())]))])
    wanted = Make.schema([("a", pa.int64()), ("s", Make.struct([("y", pa.string())])), ("A", UTC)])
    grown = grow(known, wanted)
    assert grown.field("a").type == pa.int64()
    assert grown.field("s").type == Make.struct([("x", pa.float32()), ("y", pa.string())])
    assert grown.names == ["a", "s"]
    with pytest.raises(TypeConflict, match="column 'a': it is int and cannot become string"):
        grow(known, Make.schema([("a", pa.string())]))
    with pytest.raises(TypeConflict, match="cannot become double"):
        grow(Make.schema([("n", pa.int64())]), Make.schema([("n", pa.float64())]))


def test_columns_that_are_not_stored_yet_become_what_holds_all_values() -> None:
    seen = [
        Make.schema([("n", pa.int64()), ("t", pa.timestamp("s")), ("none", pa.null())]),
        Make.schema([("n", pa.float64()), ("t", pa.string()), ("e", Make.struct([]))]),
        Make.schema([("n", pa.string())]),
    ]
    assert unify_fields(seen) == Make.schema([("n", pa.float64()), ("t", pa.string())])


def test_bad_json_is_found_among_good_and_nothing_is_dropped_silently() -> None:
    columns = Make.schema([("a", pa.int64()), ("d", pa.date32())])
    decoded = JsonDecoder(columns, evolves=True).decode(
        values(
            '{"a": 1, "d": "2024-02-03"}',
            "",
            '{"a": 1.5}',
            '{"a": 2}{"a": 3}',
            ' {\n"a": 4} ',
            '{"a": 5, "a": 6}',
            b'{"a": 7, "x": "\xff"}',
            '{"A": 8}',
            '{"_offset": 9}',
            '{"d": "soon"}',
            '{"a": null, "new": {"deep": [1]}}',
        )
    )
    assert decoded.kept == [0, 4, 10]
    assert decoded.columns.column("a").to_pylist() == [1, 4, None]
    assert decoded.columns.column("d").to_pylist() == [datetime.date(2024, 2, 3), None, None]
    assert [each.row for each in decoded.bad] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert type_text(decoded.seen.field("new").type) == "struct<deep:array<long>>"


@pytest.mark.parametrize("inside", [False, True])
def test_a_number_that_is_too_large_for_a_float_is_not_made_infinite(inside: bool) -> None:
    kind = pa.list_(pa.field("element", pa.float32())) if inside else pa.float32()
    texts = ["[1.5, null]", "[1e40]", "[Infinity]"] if inside else ["1.5", "1e40", "Infinity"]
    decoded = JsonDecoder(pa.schema([("f", kind)]), evolves=False).decode(
        values(*(f'{{"f": {each}}}' for each in texts))
    )
    found = [[1.5, None], [math.inf]] if inside else [1.5, math.inf]
    assert decoded.columns.column("f").to_pylist() == found
    assert [(each.row, each.reason) for each in decoded.bad] == [
        (1, "a number is too large for a float")
    ]


def test_columns_that_are_too_narrow_are_seen_as_wide_as_they_have_to_be() -> None:
    wide = pa.decimal128(5, 2)
    columns = Make.schema([("i", pa.int32()), ("m", wide), ("s", pa.struct([("i", pa.int32())]))])
    decoder = JsonDecoder(columns, evolves=True)
    assert not len(decoder.decode(values('{"i": 2147483647, "m": -999.99, "s": {"i": 1}}')).seen)
    seen = decoder.decode(
        values('{"i": -2147483649}', '{"m": -1000.25}', '{"m": 99999}', '{"s": {"i": 4294967296}}')
    ).seen
    assert {each.name: type_text(each.type) for each in seen} == {
        "i": "long",
        "m": "decimal(7,2)",
        "s": "struct<i:long>",
    }


@pytest.mark.parametrize("digits", [28, 29, 30, 37, 38])
def test_a_decimal_gets_as_many_digits_as_its_values_have(digits: int) -> None:
    text = "9" * (digits - 2) + ".99"
    columns = Make.schema([("m", pa.decimal128(5, 2))])
    decoded = JsonDecoder(columns, evolves=True).decode(values(f'{{"m": "-{text}"}}', '{"m": 1}'))
    assert (decoded.kept, decoded.bad) == ([0, 1], [])
    assert decoded.seen.field("m").type == pa.decimal128(digits, 2)


def test_without_evolution_other_fields_are_left_out() -> None:
    columns = pa.schema([("a", pa.int64())])
    decoded = JsonDecoder(columns, evolves=False).decode(values('{"a": 1, "b": 2}'))
    assert decoded.columns.to_pylist() == [{"a": 1}]
    assert not len(decoded.seen)


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        ("n not null", [2]),
        ("n >= 0", [1]),
        ("n > 0", [0, 1]),
        ("n between 0 and 5", [1, 3]),
        ("s matches [a-z]+", [3]),
        ("s in a, b", [2, 3]),
        ("missing not null", [0, 1, 2, 3]),
        ("missing > 1", []),
        ("o.x < 2", [1]),
    ],
)
def test_a_rule_finds_the_rows_that_break_it(rule: str, bad: list[int]) -> None:
    rows = pa.table(
        {
            "n": [0, -1, None, 9],
            "s": ["a", "b", "c", "D"],
            "o": [{"x": 1}, {"x": 2}, {"x": None}, None],
        }
    )
    mask = broken(parse_rule(rule), rows)
    found = [] if mask is None else [row for row, each in enumerate(mask.to_pylist()) if each]
    assert found == bad


def test_text_that_is_no_rule_is_refused() -> None:
    for text in ("price", "price >", "price between 5 and 1", "s matches ["):
        with pytest.raises(InvalidTable):
            parse_rule(text)


def test_partition_values_are_those_of_iceberg() -> None:
    times = [datetime.datetime(2024, 3, 1, 5, tzinfo=datetime.UTC), None,
             datetime.datetime(1969, 12, 31, 23, tzinfo=datetime.UTC)]  # fmt: skip
    rows = pa.table({"t": pa.array(times, UTC), "c": ["x", "y", "x"]})
    for transform, expected, text in (
        ("year", [54, None, -1], "2024"),
        ("month", [650, None, -1], "2024-03"),
        ("day", [19783, None, -1], "2024-03-01"),
        ("hour", [474797, None, -1], "2024-03-01-05"),
    ):
        field = parse_partition(f"{transform}(t)")
        assert [values[0] for values, _ in split_rows(rows, [field])] == expected
        assert path_text(expected[0], field) == text
    parts = split_rows(rows, [parse_partition("c")])
    assert [(part[0], part[1].num_rows) for part in parts] == [(("x",), 2), (("y",), 1)]


TABLE = Definition(name="t", id="i", topic="orders", location="file:///lake")


def test_of_many_columns_those_that_can_be_are_added() -> None:
    known = Make.schema([("a", pa.int64())])
    inside = Make.struct(
        [("x", pa.int64()), ("\0", pa.int64()), ("y", Make.struct([("z", pa.string())]))]
    )
    wanted = Make.schema(
        [*((f"c{number}", pa.int64()) for number in range(50)), ("", pa.int64()), ("s", inside)]
    )
    assert "zero character" in refusal(TABLE, known, wanted)
    grown = admit(TABLE, known, wanted)
    assert grown.names == ["a", *(f"c{number}" for number in range(50)), "s"]
    assert type_text(grown.field("s").type) == "struct<x:long,y:struct<z:string>>"
    assert admit(TABLE, grown, wanted).equals(grown)


def test_names_that_are_values_fill_a_table_at_once() -> None:
    known = Make.schema([("a", pa.int64())])
    assert not fills(known, Make.schema([(str(number), UTC) for number in range(4_000)]))
    assert fills(known, Make.schema([(str(number), UTC) for number in range(5_000)]))
