"""`headrace table`, with tasks that run in the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from headrace.cli import table_jobs, table_run, table_verify
from headrace.cli.program import headrace as program
from headrace.spark.tables.engine import Here
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, delete_records, produce, run_once

Table: TypeAlias = Callable[..., Result]


@pytest.fixture
def table(headrace: TestBroker, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Return what runs a subcommand."""
    for module in (table_jobs, table_run, table_verify):
        monkeypatch.setattr(module, "spark_engine", lambda _: Here())
    headrace.create_topic("orders")

    def run(*words: str) -> Result:
        done = CliRunner().invoke(program, ["table", *words, "--bootstrap", headrace.bootstrap])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


def test_a_backfill_is_told_as_json(headrace: TestBroker, table: Table, tmp_path: Path) -> None:
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    create(headrace, tmp_path / "lake", to="parquet", columns=("id:long",), start="latest")
    produce(headrace, "orders", {"id": 3})
    run_once(headrace)
    done: Any = json.loads(table("backfill", "orders_t", "--json").stdout)
    assert (done["rows"], done["begins"]) == (2, {"0": 0})


def test_what_cannot_be_verified_is_told_as_json(
    headrace: TestBroker, table: Table, tmp_path: Path
) -> None:
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    create(headrace, tmp_path / "lake", to="parquet", columns=("id:long",))
    run_once(headrace)
    delete_records(headrace, 1)
    done = table("verify", "orders_t", "--json")
    found: Any = json.loads(done.stdout)
    assert (done.exit_code, found["equal"], found["gone"]) == (0, True, {"0": [0, 1]})
