"""Jobs beside the writer: verify, replay, backfill, compact, drop; and upserts."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from headrace.spark.tables import administration
from headrace.spark.tables.administration import (
    alter_table,
    drop_table,
    find_table,
    store_options,
)
from headrace.spark.tables.backfilling import backfill_table
from headrace.spark.tables.claims import held
from headrace.spark.tables.engine import Here
from headrace.spark.tables.maintenance import Limits, maintain_table
from headrace.spark.tables.replaying import replay_table
from headrace.spark.tables.state import state_of
from headrace.spark.tables.table_store import TableExists, open_table
from headrace.spark.tables.verifying import verify_table
from headrace.spark.tables.writer_lease import Role
from headrace.surroundings import clocks
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, produce, run_once, stored_rows

TARGETS = ("iceberg", "delta", "parquet")


def verify(broker: TestBroker) -> Any:
    return verify_table(broker.bootstrap, "orders_t", Here())


@pytest.mark.parametrize("to", TARGETS)
def test_verify_says_which_offsets_differ(headrace: TestBroker, tmp_path: Path, to: str) -> None:
    headrace.create_topic("orders", partitions=2)
    create(headrace, tmp_path / "lake", to=to)
    produce(headrace, "orders", *({"id": number} for number in range(5)), b"bad")
    produce(headrace, "orders", {"id": 7, "new": [1]}, partition=1)
    run_once(headrace)
    report = verify(headrace)
    assert report.is_equal
    assert [(each.log_rows, each.table_rows, each.table_dead) for each in report.ranges] == [
        (5, 5, 1),
        (1, 1, 0),
    ]
    if to == "iceberg":
        catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
        catalog.load_table("headrace.orders_t").delete("_offset = 3")
        catalog.close()
        assert verify(headrace).ranges[0].missing == [3]
        assert not verify(headrace).is_equal


def test_verify_finds_rows_where_the_table_says_it_has_none(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="delta", columns=("id:long",))
    produce(headrace, "orders", {"id": 0}, b"bad")
    run_once(headrace)
    url = str(tmp_path / "lake" / "headrace" / "orders_t")
    row = DeltaTable(url).to_pyarrow_table()
    for partition, offset in ((0, 50), (7, 0)):
        row = row.set_column(0, "_partition", pa.array([partition], pa.int32()))
        row = row.set_column(1, "_offset", pa.array([offset], pa.int64()))
        write_deltalake(url, row, mode="append")
    report = verify(headrace)
    assert not report.is_equal
    assert [(each.partition, each.surplus) for each in report.ranges if not each.is_equal] == [
        (0, [50]),
        (7, [0]),
    ]


@pytest.mark.parametrize("to", TARGETS)
def test_replay_brings_dead_letters_back_after_a_fix(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, rules=("price >= 10",))
    produce(headrace, "orders", {"price": 3}, {"price": 12}, b"bad")
    (done,) = run_once(headrace)
    assert (done.rows, done.dead_letters, done.violations) == (1, 2, {"price >= 10": 1})
    alter_table(headrace.bootstrap, "orders_t", rules=("price >= 0",))
    replayed = replay_table(headrace.bootstrap, "orders_t", Here())
    assert (replayed.tried, replayed.rows, replayed.still_dead) == (2, 1, 1)
    assert verify(headrace).is_equal
    again = replay_table(headrace.bootstrap, "orders_t", Here())
    assert (again.tried, again.rows) == (1, 0)
    assert len(stored_rows(tmp_path / "lake", to)) == 2


@pytest.mark.parametrize("to", TARGETS)
def test_a_backfill_extends_the_table_downwards_beside_the_writer(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    produce(headrace, "orders", *({"id": number} for number in range(9)), b"bad")
    create(headrace, tmp_path / "lake", to=to, start_offsets={0: 6}, batch_records=2)
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", to)) == 3
    done = backfill_table(headrace.bootstrap, "orders_t", Here(), start_offsets={0: 1})
    assert (done.records, done.begins) == (5, {0: 1})
    produce(headrace, "orders", {"id": 10})
    run_once(headrace)
    assert backfill_table(headrace.bootstrap, "orders_t", Here()).records == 1
    assert verify(headrace).is_equal
    assert len(stored_rows(tmp_path / "lake", to)) == 10


@pytest.mark.parametrize("to", TARGETS)
def test_compaction_merges_small_files_and_keeps_offsets_and_rows(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    for number in range(6):
        produce(headrace, "orders", {"id": number, f"c{number % 2}": "x"})
        run_once(headrace)
    before = state_of(headrace.bootstrap, "orders_t")
    assert before.files == 6
    dry = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(is_dry=True))
    assert (dry.pieces, dry.files_after) == (1, 1)
    limits = Limits(snapshots_kept=2, orphan_age_ms=0)
    done = maintain_table(headrace.bootstrap, "orders_t", Here(), limits)
    after = state_of(headrace.bootstrap, "orders_t")
    assert (after.files, after.rows) == (1, 6)
    assert after.partitions == before.partitions
    if to == "iceberg":
        assert done.snapshots_expired > 2
        assert done.orphans
    assert verify(headrace).is_equal
    produce(headrace, "orders", {"id": 7})
    run_once(headrace)
    assert verify(headrace).is_equal


@pytest.mark.parametrize("to", TARGETS)
def test_compaction_merges_files_of_dead_letters_unless_a_replay_has_them(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders", partitions=2)
    create(headrace, tmp_path / "lake", to=to, rules=("id >= 0",))
    for number in range(4):
        produce(headrace, "orders", {"id": -number - 1}, b"bad", partition=number % 2)
        run_once(headrace)
    letters = stored_rows(tmp_path / "lake", to, "orders_t_dead_letters")
    definition = find_table(headrace.bootstrap, "orders_t")
    with held(definition, store_options(definition), Role.JOB):
        assert maintain_table(headrace.bootstrap, "orders_t", Here(), Limits()).pieces == 0
    dry = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(is_dry=True))
    assert (dry.pieces, dry.files_before, dry.files_after) == (1, 4, 1)
    done = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())
    assert (done.pieces, done.files_before, done.files_after) == (1, 4, 1)
    merged = stored_rows(tmp_path / "lake", to, "orders_t_dead_letters")
    assert sorted(merged, key=repr) == sorted(letters, key=repr)
    assert verify(headrace).is_equal
    alter_table(headrace.bootstrap, "orders_t", rules=())
    assert replay_table(headrace.bootstrap, "orders_t", Here()).rows == 4
    assert len(stored_rows(tmp_path / "lake", to, "orders_t_dead_letters")) == 4
    assert verify(headrace).is_equal


def test_threads_of_a_program_work_on_a_table_at_once(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet")

    def compact() -> None:
        for _ in range(5):
            maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())

    with ThreadPoolExecutor(1) as pool:
        compacted = pool.submit(compact)
        for number in range(5):
            produce(headrace, "orders", {"id": number})
            run_once(headrace)
        compacted.result()
    assert verify(headrace).is_equal
    assert len(stored_rows(tmp_path / "lake", "parquet")) == 5


def test_old_entries_of_the_log_of_delta_are_removed_behind_a_checkpoint(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="delta")
    for number in range(3):
        produce(headrace, "orders", {"id": number})
        run_once(headrace)
    folder = tmp_path / "lake" / "headrace" / "orders_t"
    DeltaTable(str(folder)).create_checkpoint()
    old = clocks().time_ns() // 1_000_000_000 - 2 * 86_400
    for each in (folder / "_delta_log").iterdir():
        os.utime(each, (old, old))
    before = len(list((folder / "_delta_log").glob("*.json")))
    maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(is_dry=True))
    assert len(list((folder / "_delta_log").glob("*.json"))) == before
    maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(pieces_max=0))
    assert len(list((folder / "_delta_log").glob("*.json"))) < before
    produce(headrace, "orders", {"id": 3})
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", "delta")) == 4
    assert verify(headrace).is_equal


@pytest.mark.slow
@pytest.mark.parametrize("to", TARGETS)
def test_files_and_snapshots_stay_few_with_maintenance_beside_small_batches(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    """A day of batches in small: what is there stays the same from one maintenance to the next."""
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    limits = Limits(snapshots_kept=3, orphan_age_ms=0)
    counts = []
    for _ in range(10):
        for number in range(4):
            produce(headrace, "orders", {"id": number}, b"bad")
            run_once(headrace)
        maintain_table(headrace.bootstrap, "orders_t", Here(), limits)
        files = [each for each in (tmp_path / "lake" / "headrace").rglob("*") if each.is_file()]
        counts.append(len(files))
    assert state_of(headrace.bootstrap, "orders_t").files == 1
    if to != "delta":  # whose entries and files are removed after a day, and an hour
        assert max(counts[5:]) <= max(counts[:5]) + 1
    assert verify(headrace).is_equal


@pytest.mark.parametrize("to", TARGETS)
def test_an_upserted_table_has_the_last_row_of_every_key(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, mode="upsert")

    def put(key: str, value: str | None) -> None:
        headrace.produce("orders", (key, value))

    for key, value in (("a", '{"n": 1}'), ("b", '{"n": 2}'), ("a", '{"n": 3}'), ("c", '{"n": 4}')):
        put(key, value)
    run_once(headrace)
    put("b", None)
    put("c", "bad")
    put("d", '{"n": 5}')
    put("a", '{"n": 6, "m": 1}')
    produce(headrace, "orders", {"n": 9})  # no key
    (done,) = run_once(headrace)
    assert done.dead_letters == 2
    rows = {row["_key"]: row["n"] for row in stored_rows(tmp_path / "lake", to)}
    assert rows == {b"a": 6, b"c": 4, b"d": 5}
    assert len(stored_rows(tmp_path / "lake", to)) == 3
    assert verify(headrace).is_equal


@pytest.mark.parametrize("to", ["iceberg", "delta"])
def test_a_piece_of_a_compaction_whose_files_are_gone_is_left_out_at_once(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, mode="upsert")
    for number in range(3):
        headrace.produce("orders", (f"k{number}", '{"id": 1}'))
        run_once(headrace)

    class BesideAWriter(Here):
        def run(self, work: Any, inputs: Any) -> Any:
            merged = super().run(work, inputs)
            headrace.produce("orders", ("k0", '{"id": 2}'))
            run_once(headrace)
            return merged

    waits: list[int] = []
    monkeypatch.setattr("headrace.spark.tables.replaying.pause", waits.append)
    done = maintain_table(headrace.bootstrap, "orders_t", BesideAWriter(), Limits())
    assert (done.skipped, waits) == (1, [])
    assert len(stored_rows(tmp_path / "lake", to)) == 3
    assert verify(headrace).is_equal


def test_a_dropped_table_can_be_created_again(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", {"id": 1})
    run_once(headrace)
    drop_table(headrace.bootstrap, "orders_t", purges=True)
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    create(headrace, tmp_path / "lake")
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", "iceberg")) == 1


@pytest.mark.parametrize("to", TARGETS)
def test_a_create_that_died_can_be_dropped(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    class Killed(BaseException):
        pass

    def die(definition: Any, name: str, options: Any) -> Any:
        if name.endswith("_dead_letters"):
            raise Killed
        return open_table(definition, name, options)

    headrace.create_topic("orders")
    monkeypatch.setattr(administration, "open_table", die)
    with pytest.raises(Killed):
        create(headrace, tmp_path / "lake", to=to)
    monkeypatch.undo()
    with pytest.raises(TableExists, match="`headrace table drop` removes it"):
        create(headrace, tmp_path / "lake", to=to)
    drop_table(headrace.bootstrap, "orders_t", purges=True)
    create(headrace, tmp_path / "lake", to=to)
    produce(headrace, "orders", {"id": 1})
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", to)) == 1


@pytest.mark.parametrize("to", ["delta", "parquet"])
def test_rows_of_a_dropped_table_are_never_rows_of_the_next_one(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    produce(headrace, "orders", {"id": 1})
    run_once(headrace)
    drop_table(headrace.bootstrap, "orders_t", purges=False)
    with pytest.raises(TableExists, match=r"there (are files|is a Delta table) in"):
        create(headrace, tmp_path / "lake", to=to)
    create(headrace, tmp_path / "other", to=to)
    run_once(headrace)
    assert len(stored_rows(tmp_path / "other", to)) == 1
