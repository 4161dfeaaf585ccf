"""Tables without Spark: the same code, with tasks that run in the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headrace.client import Admin
from headrace.client.topics import TopicPartition
from headrace.spark.planning import Range
from headrace.spark.tables.administration import (
    create_table,
    find_table,
    read_options_of,
    store_options,
)
from headrace.spark.tables.engine import Here
from headrace.spark.tables.reading import plan_read, rows_of
from headrace.spark.tables.running import BatchDone, TableRun
from headrace.spark.tables.source import table_options
from headrace.spark.tables.table_store import LiveFile
from headrace.testing.broker import TestBroker


def produce(broker: TestBroker, topic: str, *values: Any, partition: int = 0) -> None:
    """Produce objects as JSON, and bytes as they are."""
    broker.produce(
        topic,
        *(each if isinstance(each, bytes) else json.dumps(each) for each in values),
        partition=partition,
    )


def delete_records(broker: TestBroker, offset: int, topic: str = "orders") -> None:
    """Delete the records of a partition below an offset, as retention does."""

    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 0): offset})

    broker.run(delete())


def create(broker: TestBroker, location: Path, **more: Any) -> None:
    given = {"topic": "orders", "location": str(location), **more}
    create_table(broker.bootstrap, "orders_t", **given)


def table_run(
    broker: TestBroker,
    name: str = "orders_t",
    on_step: Callable[[str], None] | None = None,
    **more: Any,
) -> TableRun:
    definition = find_table(broker.bootstrap, name)
    options = read_options_of(broker.bootstrap, definition.topic)
    return TableRun(definition, options, store_options(definition), Here(), on_step=on_step, **more)


def run_once(broker: TestBroker, **more: Any) -> list[BatchDone]:
    """Run a table until it has what the topic has."""
    run = table_run(broker, **more)
    run.begin()
    try:
        return run.run_available()
    finally:
        run.end()


def iceberg_rows(location: Path, name: str = "orders_t", catalog: str = "default") -> list[Any]:
    """What any pyiceberg reads, by offset."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  slow to import

    opened = load_catalog(
        catalog, type="sql", uri=f"sqlite:///{location}/catalog.db", warehouse=f"file://{location}"
    )
    rows = opened.load_table(f"headrace.{name}").scan().to_arrow().to_pylist()
    order = ("_partition", "_offset") if "_offset" in (rows or [{}])[0] else ("partition", "offset")
    return sorted(rows, key=lambda row: tuple(row[each] for each in order if each in row))


def stored_rows(location: Path, to: str, name: str = "orders_t") -> list[Any]:
    """What a reader that knows nothing of us finds in a table."""
    folder = location / "headrace" / name
    if to == "iceberg":
        return iceberg_rows(location, name)
    if to == "delta":
        from deltalake import DeltaTable  # noqa: PLC0415  slow to import

        return list(DeltaTable(str(folder)).to_pyarrow_table().to_pylist())
    files = sorted((folder / "data").rglob("*.parquet"))
    if any(each.parent != folder / "data" for each in files):  # what Hive's folders say, too
        found = ds.dataset(
            str(folder / "data"), partitioning="hive", ignore_prefixes=["."]
        ).to_table()
        return found.to_pylist()
    tables = [pq.ParquetFile(each).read() for each in files]
    return pa.concat_tables(tables, promote_options="permissive").to_pylist() if tables else []


def joined_rows(broker: TestBroker, name: str = "orders_t") -> list[Any]:
    """What a joined read of table and log finds, as Spark's tasks read it."""
    plan = plan_read(table_options({"kafka.bootstrap.servers": broker.bootstrap, "table": name}))
    parts: list[tuple[list[LiveFile], Range | None]] = (
        [(plan.files_of(each.partition), each) for each in plan.tails]
        if plan.is_upsert
        else [([], each) for each in plan.tails] + [([each], None) for each in plan.files]
    )
    return [
        row
        for files, tail in parts
        for rows in rows_of(plan.job, files, tail)
        for row in rows.to_pylist()
    ]
