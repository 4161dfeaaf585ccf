"""Tables that are partitioned by what records say."""

from pathlib import Path
from typing import Any

import pytest

from headrace.spark.tables.engine import Here
from headrace.spark.tables.maintenance import Limits, maintain_table
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, joined_rows, produce, run_once, stored_rows

TARGETS = ("iceberg", "delta", "parquet")
COLUMNS = ("country:string", "id:long", "at:timestamp", "d:date", "price:decimal(10,2)")
LETTERS = "orders_t_dead_letters"


def is_equal(broker: TestBroker) -> bool:
    return verify_table(broker.bootstrap, "orders_t", Here()).is_equal


def countries(rows: list[Any]) -> list[tuple[Any, Any]]:
    return sorted((row["country"], row["id"]) for row in rows)


@pytest.mark.parametrize("to", TARGETS)
def test_a_column_that_the_table_is_partitioned_by_is_never_lost(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, mode="upsert", columns=COLUMNS,
           partition_by=("country",))  # fmt: skip
    headrace.produce("orders", ("a", '{"country":"de","id":1}'), ("b", '{"country":"de","id":2}'))
    run_once(headrace)
    headrace.produce("orders", ("a", '{"country":"de","id":3}'))
    run_once(headrace)
    expected = [("de", 2), ("de", 3)]
    assert countries(stored_rows(tmp_path / "lake", to)) == expected
    assert countries(joined_rows(headrace)) == expected
    assert is_equal(headrace)


@pytest.mark.parametrize("to", TARGETS)
def test_small_files_of_a_partition_are_merged(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=COLUMNS,
           partition_by=("country", "day(_timestamp)"))  # fmt: skip
    for number in range(3):
        produce(headrace, "orders", {"country": "de", "id": number}, {"country": None, "id": 9})
        run_once(headrace)
    done = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())
    assert (done.files_before, done.files_after) == (6, 2)
    assert [row["country"] for row in stored_rows(tmp_path / "lake", to)].count("de") == 3
    assert is_equal(headrace)


@pytest.mark.parametrize("to", TARGETS)
def test_where_rows_come_from_may_be_what_partitions_a_table(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders", partitions=2)
    create(headrace, tmp_path / "lake", to=to, partition_by=("_partition",), rules=("id < 5",))
    for number in range(2):
        produce(headrace, "orders", {"id": number}, {"id": 7}, partition=number)
    run_once(headrace)
    assert is_equal(headrace)
    assert sorted(row["_partition"] for row in joined_rows(headrace)) == [0, 1]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("country", "New Zealand "),
        ("country", "a/b%2Fc=ä\n\0.."),
        ("id", 2**60),
        ("d", "2024-02-29"),
        ("at", "2024-01-01T10:00:00.123456Z"),
        ("at", "0001-01-01T00:00:00Z"),
        ("price", "1.50"),
    ],
)
def test_what_a_partition_is_named_after_comes_back(
    headrace: TestBroker, tmp_path: Path, to: str, column: str, value: Any
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=COLUMNS, partition_by=(column,))
    produce(headrace, "orders", {column: value}, {"id": None})
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", to)) == 2
    limits = Limits(orphan_age_ms=0)
    assert not [
        each
        for each in maintain_table(headrace.bootstrap, "orders_t", Here(), limits).orphans
        if each.endswith(".parquet")
    ]
    rows = stored_rows(tmp_path / "lake", to)
    if to != "parquet":  # a reader of folders guesses types
        known = joined_rows(headrace)
        assert sorted(str(row[column]) for row in rows) == sorted(str(row[column]) for row in known)
    assert is_equal(headrace)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    ("by", "bad"),
    [
        ("country", {"country": ""}),
        ("country", {"country": "x" * 300}),
        ("country", {"country": "__HIVE_DEFAULT_PARTITION__"}),
        ("day(at)", {"at": "0000-01-01 00:00:00"}),
        ("at", {"at": "0000-01-01 00:00:00"}),
    ],
)
def test_a_row_that_no_partition_can_have_is_a_dead_letter(
    headrace: TestBroker, tmp_path: Path, to: str, by: str, bad: Any
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=COLUMNS, partition_by=(by,))
    produce(headrace, "orders", {"country": "de", "id": 1}, {**bad, "id": 2}, {"id": 3})
    (done,) = run_once(headrace)
    is_text = by == "country" and (to == "iceberg" or (to == "delta" and bad["country"]))
    assert (done.rows, done.dead_letters) == ((3, 0) if is_text else (2, 1))
    assert is_equal(headrace)
    assert len(joined_rows(headrace)) == done.rows


@pytest.mark.parametrize("to", TARGETS)
def test_a_time_before_the_first_year_stops_no_table(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=COLUMNS)
    produce(headrace, "orders", {"at": "0000-01-01 00:00:00"}, {"id": 3})
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (2, 0)
    assert is_equal(headrace)
