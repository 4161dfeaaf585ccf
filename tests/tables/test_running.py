"""A topic becomes a table: rows, columns that come later, records that cannot be decoded."""

from pathlib import Path

from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, iceberg_rows, produce, run_once


def values_of(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows without where they come from, and without nulls."""
    return [
        {name: value for name, value in row.items() if name[0] != "_" and value is not None}
        for row in rows
    ]


def test_a_topic_becomes_a_table_that_any_pyiceberg_reads(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders", partitions=2)
    produce(headrace, "orders", {"id": 1, "item": "tea"}, {"id": 2, "item": "milk"})
    produce(headrace, "orders", {"id": 3, "item": "jam"}, partition=1)
    create(headrace, tmp_path / "lake")
    done = run_once(headrace)
    assert [each.rows for each in done] == [3]
    rows = iceberg_rows(tmp_path / "lake")
    assert values_of(rows) == [
        {"id": 1, "item": "tea"},
        {"id": 2, "item": "milk"},
        {"id": 3, "item": "jam"},
    ]
    assert [(row["_partition"], row["_offset"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert rows == iceberg_rows(tmp_path / "lake", catalog="headrace")


def test_columns_that_come_later_are_added_and_bad_records_kept_as_dead_letters(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", {"id": 1})
    run_once(headrace)
    produce(
        headrace,
        "orders",
        {"id": 2, "to": {"city": "Ulm"}},
        b"nope",
        {"id": "x"},
        {"to": {"city": "Bonn", "zip": 5}},
        {"id": None, "when": "2024-01-01"},
    )
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (3, 2)
    assert values_of(iceberg_rows(tmp_path / "lake")) == [
        {"id": 1},
        {"id": 2, "to": {"city": "Ulm", "zip": None}},
        {"to": {"city": "Bonn", "zip": 5}},
        {"when": "2024-01-01"},
    ]
    letters = iceberg_rows(tmp_path / "lake", "orders_t_dead_letters")
    assert [(each["offset"], each["value"]) for each in letters] == [
        (2, b"nope"),
        (3, b'{"id": "x"}'),
    ]
    assert letters[0]["reason"] == "not a JSON object"
    assert run_once(headrace) == []
