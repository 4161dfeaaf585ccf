"""A topic becomes a table: rows, columns that come later, records that cannot be decoded."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Producer
from headrace.spark.tables.administration import drop_table
from headrace.spark.tables.engine import Here
from headrace.spark.tables.opened import UnstableSchema
from headrace.spark.tables.state import state_of
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import (
    create,
    iceberg_rows,
    joined_rows,
    produce,
    run_once,
    stored_rows,
    table_run,
)


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


WIDE = ("i:int", "f:float", "m:decimal(5,2)", "n:struct<i:int>", "l:array<int>")


@pytest.mark.parametrize("to", ["iceberg", "parquet", "delta"])
def test_columns_become_wider_when_larger_values_come(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=WIDE)
    small = [{"i": 1, "f": 1.5, "m": 1.25, "n": {"i": 1}, "l": [1, None]}]
    large: list[dict[str, Any]] = [
        {"i": 2**31},
        {"f": -1e40},
        {"m": 12345678.25},
        {"n": {"i": -(2**31) - 1, "new": "x"}},
        {"l": [2**40]},
    ]
    produce(headrace, "orders", *small)
    run_once(headrace)
    produce(headrace, "orders", *large, {"m": "123456789.5"}, {"m": 1.125}, {"i": 5})
    if to != "delta":
        with pytest.raises(UnstableSchema, match="need wider columns than table 'orders_t' has"):
            joined_rows(headrace)
    (done,) = run_once(headrace)
    columns = state_of(headrace.bootstrap, "orders_t").columns
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal
    if to == "delta":
        assert (done.rows, done.dead_letters) == (1, 7)
        return
    assert (done.rows, done.dead_letters) == (7, 1)
    assert [columns[name] for name in ("i", "f", "m", "l")] == [
        "long",
        "double",
        "decimal(11,2)",
        "array<long>",
    ]
    rows = sorted(joined_rows(headrace), key=lambda row: int(row["_offset"]))
    assert [row["i"] for row in rows] == [1, 2**31, None, None, None, None, None, 5]
    assert (rows[2]["f"], rows[3]["m"]) == (-1e40, Decimal("12345678.25"))
    assert (rows[4]["n"], rows[5]["l"]) == ({"i": -(2**31) - 1, "new": "x"}, [2**40])
    assert len(stored_rows(tmp_path / "lake", to)) == 8


def test_given_columns_stay_as_they_are_without_evolution_and_in_partitions(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", columns=("i:int",), evolves=False)
    produce(headrace, "orders", {"i": 2**31}, {"i": 1})
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 1)
    drop_table(headrace.bootstrap, "orders_t", purges=True)
    create(headrace, tmp_path / "lake", columns=("i:int",), partition_by=("i",))
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters) == (1, 1)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_may_begin_at_an_offset_that_cannot_be_read_yet(
    headrace: TestBroker, tmp_path: Path, mode: str
) -> None:
    headrace.create_topic("orders", partitions=2)
    headrace.produce("orders", ("a", '{"id": 0}'))
    headrace.produce("orders", ("b", '{"id": 1}'), partition=1)

    async def create_beside_a_transaction() -> None:
        async with (
            Producer(headrace.bootstrap, transactional_id="pay") as producer,
            producer.transaction(),
        ):
            await producer.send("orders", '{"id": 2}', "a", 0)
            await producer.flush()
            more = {"start": "latest", "start_offsets": {1: 3}, "mode": mode, "to": "parquet"}
            await asyncio.to_thread(create, headrace, tmp_path / "lake", **more)
            assert await asyncio.to_thread(run_once, headrace) == []
            assert await asyncio.to_thread(joined_rows, headrace) == []

    headrace.run(create_beside_a_transaction())
    run_once(headrace)
    begun = state_of(headrace.bootstrap, "orders_t").partitions
    assert [(each.table, each.lag) for each in begun] == [(3, 0), (None, 0)]
    headrace.produce("orders", *((f"k{number}", f'{{"id": {number}}}') for number in range(3, 5)))
    for number in range(5, 8):
        headrace.produce("orders", (f"k{number}", f'{{"id": {number}}}'), partition=1)
    run_once(headrace)
    rows = stored_rows(tmp_path / "lake", "parquet")
    assert sorted(row["id"] for row in rows) == [3, 4, 7]
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal


def test_a_run_to_the_end_stops_between_batches_when_it_is_told_to(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", batch_records=1)
    produce(headrace, "orders", *({"id": number} for number in range(3)))
    run = table_run(headrace)
    run.begin()
    stops: list[Any] = []
    assert len(run.run_available(stops.append, lambda: bool(stops))) == 1
    run.end()
    assert len(run_once(headrace)) == 2
