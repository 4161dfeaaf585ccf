"""A folder of Parquet: what its readers see while others write it."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.planning import Range
from headrace.spark.tables.administration import find_table, store_options
from headrace.spark.tables.commits import FilesGone
from headrace.spark.tables.engine import Here
from headrace.spark.tables.maintenance import JOURNAL_AGE_MS, Limits, maintain_table
from headrace.spark.tables.parquet_table import ENTRIES_MAX, ParquetTable
from headrace.spark.tables.reading import plan_read, rows_of
from headrace.spark.tables.source import table_options
from headrace.spark.tables.verifying import verify_table
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, produce, run_once, stored_rows, table_run


class Killed(BaseException):
    """What a SIGKILL is to the rest of the code."""


def test_whoever_places_a_file_late_does_not_bring_it_back(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet")
    produce(headrace, "orders", {"id": 0})
    run_once(headrace)
    produce(headrace, "orders", {"id": 1})
    place = ParquetTable._place

    async def die(self: ParquetTable, entry: Any) -> None:
        if self._entries[-1] is entry and self._entries[-1].number > 2:
            raise Killed
        await place(self, entry)

    run = table_run(headrace)
    run.begin()
    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, "_place", die)
        with pytest.raises(Killed):
            run.run_available()
    run.end()
    definition = find_table(headrace.bootstrap, "orders_t")
    late = ParquetTable(definition, "orders_t", store_options(definition))
    has_read, may_go = threading.Event(), threading.Event()
    put = late._store.put

    async def paused(key: str, data: Any, size_bytes: int) -> None:
        has_read.set()
        await asyncio.to_thread(may_go.wait, 20)
        await put(key, data, size_bytes)

    monkeypatch.setattr(late._store, "put", paused)
    reader = threading.Thread(target=late.head)
    reader.start()
    assert has_read.wait(10)
    assert maintain_table(headrace.bootstrap, "orders_t", Here(), Limits()).files_after == 1
    may_go.set()
    reader.join()
    late.close()
    assert sorted(row["id"] for row in stored_rows(tmp_path / "lake", "parquet")) == [0, 1]


def test_a_file_that_was_replaced_meanwhile_is_said(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", mode="upsert")
    headrace.produce("orders", ("a", '{"id": 1}'))
    run_once(headrace)
    options = {"kafka.bootstrap.servers": headrace.bootstrap, "table": "orders_t"}
    plan = plan_read(table_options(options))
    headrace.produce("orders", ("a", '{"id": 2}'))
    run_once(headrace)
    tail: Range = plan.tails[0]
    with pytest.raises(FilesGone, match="Read the table again"):
        list(rows_of(plan.job, plan.files_of(0), tail))


def test_the_journal_is_cut_behind_an_entry_that_holds_everything(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", columns=("id:long",), batch_records=1)
    produce(headrace, "orders", *({"id": number} for number in range(ENTRIES_MAX + 5)))
    run_once(headrace)
    log = tmp_path / "lake" / ".headrace" / "tables" / "orders_t" / "log"
    for each in log.iterdir():
        os.utime(each, (each.stat().st_mtime - JOURNAL_AGE_MS,) * 2)
    maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(orphan_age_ms=0))
    assert len(list(log.iterdir())) < 20
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal
