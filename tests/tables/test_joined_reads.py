"""A table and the log beyond it as one, planned and read as Spark does."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.spark.options import InvalidOption
from headrace.spark.tables.reading import plan_read
from headrace.spark.tables.source import TableReader, table_options
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, produce, run_once


def read(broker: TestBroker) -> list[dict[str, Any]]:
    options = table_options({"kafka.bootstrap.servers": broker.bootstrap, "table": "orders_t"})
    schema = from_arrow_schema(plan_read(options).schema)
    reader = TableReader(options, schema)
    rows = [
        row
        for each in reader.partitions()
        for batch in reader.read(each)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def test_a_joined_read_has_every_row_once_and_is_fresh(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders", partitions=2)
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", {"id": 1, "tags": ["a"], "to": {"city": "Ulm"}}, b"bad")
    run_once(headrace)
    produce(headrace, "orders", {"id": 2}, b"bad", {"id": 3, "new": 1})
    produce(headrace, "orders", {"id": 4, "tags": []}, partition=1)
    rows = read(headrace)
    assert [(row["id"], row["tags"]) for row in rows] == [(1, ["a"]), (2, None), (3, None), (4, [])]
    assert rows[0]["to"] == {"city": "Ulm"}
    run_once(headrace)
    assert [row["id"] for row in read(headrace)] == [1, 2, 3, 4]


def test_a_joined_read_of_an_upserted_table_has_the_last_row_of_a_key(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", mode="upsert")
    headrace.produce("orders", ("a", '{"n": 1}'), ("b", '{"n": 2}'), ("c", '{"n": 3}'))
    run_once(headrace)
    headrace.produce("orders", ("a", '{"n": 4}'), ("b", None), ("a", '{"n": 5}'))
    assert [(row["_key"], row["n"]) for row in read(headrace)] == [(b"c", 3), (b"a", 5)]


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'table'"):
        table_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "tabel": "orders_t"})
