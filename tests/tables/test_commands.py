"""`headrace table`, with tasks that run in the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from headrace.cli import table_jobs, table_run, table_verify
from headrace.cli.program import headrace as program
from headrace.spark.tables.administration import list_tables
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


def decimal(**more: Any) -> str:
    kind = {"type": "bytes", "logicalType": "decimal", **more}
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]})


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "avro", "--schema", "not-text"),
        ("--format", "avro", "--schema", "no-digits"),
        ("--format", "avro", "--schema", "many-digits"),
        ("--column", "bytes \udcff:long"),
        ("--partition-by", f"bucket({'9' * 5000}, _offset)"),
        ("--partition-by", "bucket(²,_offset)"),
        ("--partition-by", "day(_timestamp)", "--partition-by", "day( _timestamp )"),
        ("--partition-by", "day(_timestamp)", "--partition-by", "hour(_timestamp)"),
        ("--from", "0:5,0:7"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_in_a_line(
    headrace: TestBroker,
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    (tmp_path / "not-text").write_bytes(b"\xff\xfe")
    (tmp_path / "no-digits").write_text(decimal())
    (tmp_path / "many-digits").write_text(decimal(precision=60))
    monkeypatch.chdir(tmp_path)
    done = table("create", "orders_t", "--topic", "orders", "--location", "lake", *words)
    assert done.exit_code in (1, 2)
    assert done.stderr.startswith("headrace: ")
    assert done.stderr.count("\n") == 1
    assert "run the table again" not in done.stderr
    assert list_tables(headrace.bootstrap) == []


@pytest.mark.parametrize(
    "name", ["a\0b", "a\nb", "a\tb", "a\udcffb", "a\\b", "~nobody-has-this-home/x", "a%b"]
)
def test_a_location_that_means_several_places_is_refused(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for to in ("iceberg", "delta", "parquet"):
        done = table("create", "orders_t", "--topic", "orders", "--to", to, "--location", name)
        assert done.exit_code == 1
        assert done.stderr.startswith("headrace: --location ")
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_as_old_as_hours_that_have_no_end(table: Table) -> None:
    done = table("compact", "orders_t", "--orphans-older-than", "1e305")
    assert done.exit_code == 2
    assert "--orphans-older-than" in done.stderr
