"""Exactly once, whatever dies: the writer at every step, the catalog before and after a commit."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.offsets import epoch_ends
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.spark.tables import topic_view
from headrace.spark.tables.administration import alter_table
from headrace.spark.tables.commits import OutcomeUnknown, Superseded
from headrace.spark.tables.delta_table import DeltaLakeTable
from headrace.spark.tables.engine import Here
from headrace.spark.tables.iceberg_table import IcebergTable
from headrace.spark.tables.maintenance import Limits, maintain_table
from headrace.spark.tables.parquet_table import ParquetTable
from headrace.spark.tables.planning import Gap
from headrace.spark.tables.replaying import replay_table
from headrace.spark.tables.running import STEPS, TableRun
from headrace.spark.tables.table_store import CatalogFailed, Change
from headrace.spark.tables.verifying import verify_table
from headrace.spark.tables.writer_lease import HeldByAnother
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, delete_records, produce, run_once, stored_rows, table_run

TARGETS = ("iceberg", "delta", "parquet")


class Killed(BaseException):
    """What a SIGKILL is to the rest of the code: nothing of it runs any more."""


def killed_at(step: str) -> Callable[[str], None]:
    def meet(reached: str) -> None:
        if reached == step:
            raise Killed

    return meet


def die(run: TableRun) -> None:
    """Leave everything as a killed process does, but for the claim: the same process goes on."""
    run.end()


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    names = ("_partition", "_offset") if rows and "_offset" in rows[0] else ("partition", "offset")
    return sorted((row[names[0]], row[names[1]]) for row in rows)


@pytest.mark.parametrize("to", TARGETS)
def test_every_record_is_in_the_table_once_wherever_the_writer_dies(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders", partitions=2)
    create(headrace, tmp_path / "lake", to=to)
    for number, step in enumerate(STEPS):
        # A new column, a bad record and a good one in each batch.
        produce(headrace, "orders", {"id": number, f"c{number}": 1}, b"bad", partition=number % 2)
        run = table_run(headrace, on_step=killed_at(step))
        run.begin()
        with pytest.raises(Killed):
            run.run_available()
        die(run)
        produce(headrace, "orders", {"late": number}, partition=(number + 1) % 2)
    run_once(headrace)
    rows = stored_rows(tmp_path / "lake", to)
    letters = stored_rows(tmp_path / "lake", to, "orders_t_dead_letters")
    assert len(rows) == 2 * len(STEPS)
    assert len(letters) == len(STEPS)
    assert len(set(places(rows) + places(letters))) == 3 * len(STEPS)


@pytest.mark.parametrize("to", TARGETS)
def test_an_upserted_table_equals_its_topic_wherever_the_writer_dies(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders", partitions=2)
    create(headrace, tmp_path / "lake", to=to, mode="upsert")
    wanted: dict[bytes, int] = {}
    for number, step in enumerate(STEPS):
        # Each batch replaces a row of the one before, deletes one, and has a bad record.
        place = number % 2
        headrace.produce(
            "orders",
            (f"a{place}", f'{{"id": {number}, "c{number}": 1}}'),
            (f"b{number}", f'{{"id": {number}}}'),
            (f"b{number - 2}", None),
            ("bad", b"bad"),
            partition=place,
        )
        wanted[f"a{place}".encode()] = wanted[f"b{number}".encode()] = number
        wanted.pop(f"b{number - 2}".encode(), None)
        run = table_run(headrace, on_step=killed_at(step))
        run.begin()
        with pytest.raises(Killed):
            run.run_available()
        die(run)
    run_once(headrace)
    rows = stored_rows(tmp_path / "lake", to)
    assert sorted((row["_key"], row["id"]) for row in rows) == sorted(wanted.items())
    letters = stored_rows(tmp_path / "lake", to, "orders_t_dead_letters")
    assert len(set(places(letters))) == len(letters) == len(STEPS)
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal


def test_a_file_that_is_committed_is_never_committed_again_by_the_next_writer(
    headrace: TestBroker, tmp_path: Path
) -> None:
    """Iceberg's sink for Kafka Connect does that (#16282).

    Its first coordinator commits and dies before it has noted its progress; the second one begins
    from the older note. Here the commit is the note.
    """
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    first = table_run(headrace, on_step=killed_at("after commit"))
    first.begin()
    with pytest.raises(Killed):
        first.run_available()
    die(first)
    assert run_once(headrace) == []
    produce(headrace, "orders", {"id": 3})
    run_once(headrace)
    assert places(stored_rows(tmp_path / "lake", "iceberg")) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("rewound", [0, 5])
def test_offsets_that_a_zombie_writes_to_the_group_lose_and_double_nothing(
    headrace: TestBroker, tmp_path: Path, rewound: int
) -> None:
    """Iceberg's sink for Kafka Connect loses rows then (#17551).

    An old coordinator goes on writing its offset of the control topic. Once retention has passed
    that, the next one begins at the end of the log.
    """
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", *({"id": number} for number in range(3)))
    run_once(headrace)
    produce(headrace, "orders", *({"id": number} for number in range(3, 5)))

    async def write_offset_of_a_zombie() -> None:
        async with Cluster(headrace.bootstrap) as cluster:
            group = "headrace-table-orders_t"
            found = await commit_offsets(cluster, group, {TopicPartition("orders", 0): rewound})
            values_of(found)

    headrace.run(write_offset_of_a_zombie())
    delete_records(headrace, 2)
    run_once(headrace)
    rows = stored_rows(tmp_path / "lake", "iceberg")
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("to", "kind"),
    [("iceberg", IcebergTable), ("delta", DeltaLakeTable), ("parquet", ParquetTable)],
)
@pytest.mark.parametrize("got_through", [True, False])
def test_a_commit_with_an_unknown_outcome_is_looked_up_and_no_file_removed(
    headrace: TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    to: str,
    kind: Any,
    got_through: bool,
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    commit, failures = kind.commit, iter([True])

    def fail_once(self: Any, head: Any, change: Change) -> None:
        if next(failures, False):
            if got_through:
                commit(self, head, change)
            raise OutcomeUnknown("the response was lost")
        commit(self, head, change)

    monkeypatch.setattr(kind, "commit", fail_once)
    run_once(headrace)
    assert places(stored_rows(tmp_path / "lake", to)) == [(0, 0), (0, 1)]


def test_a_second_writer_is_refused_and_told_who_has_the_table(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    first = table_run(headrace)
    first.begin()
    try:
        with pytest.raises(HeldByAnother, match=r"is written by process \d+ on "):
            table_run(headrace).begin()
    finally:
        first.end()
    run_once(headrace)


@pytest.mark.parametrize("to", TARGETS)
def test_a_writer_that_was_taken_over_commits_nothing_more(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    produce(headrace, "orders", {"id": 1})

    def overtake(step: str) -> None:
        if step == "before commit" and not overtaken:
            overtaken.append(step)
            old._lease.release()  # as if its claim had expired during a long pause
            run_once(headrace)
            produce(headrace, "orders", {"id": 2})

    overtaken: list[str] = []
    old = table_run(headrace, on_step=overtake)
    old.begin()
    with pytest.raises(Superseded, match="newer writer"):
        old.run_available()
    old.end()
    run_once(headrace)
    assert places(stored_rows(tmp_path / "lake", to)) == [(0, 0), (0, 1)]


def test_a_catalog_that_is_down_is_named_and_nothing_is_lost(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake")
    produce(headrace, "orders", {"id": 1})
    monkeypatch.setattr("headrace.spark.tables.committing.RETRY_SECONDS_MAX", 0.0)
    database = tmp_path / "lake" / "catalog.db"
    away = tmp_path / "away.db"

    def take_away(step: str) -> None:
        if step == "before commit":
            database.rename(away)
            sqlite3.connect(database).close()

    run = table_run(headrace, on_step=take_away)
    run.begin()
    with pytest.raises(CatalogFailed, match=r"could not be committed .*next run"):
        run.run_available()
    run.end()
    database.unlink()
    away.rename(database)
    run_once(headrace)
    assert places(stored_rows(tmp_path / "lake", "iceberg")) == [(0, 0)]


def test_a_loss_of_a_batch_whose_letters_are_committed_is_passed(
    headrace: TestBroker, tmp_path: Path
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet")
    produce(headrace, "orders", {"id": 0}, {"id": 1})
    run_once(headrace)
    produce(headrace, "orders", {"id": 2}, b"bad", {"id": 4})
    run = table_run(headrace, on_step=killed_at("after letters"))
    run.begin()
    with pytest.raises(Killed):
        run.run_available()
    die(run)
    produce(headrace, "orders", {"id": 5}, {"id": 6}, b"bad", {"id": 8})
    delete_records(headrace, 6)
    (done,) = run_once(headrace, accepts_loss=True)
    assert (done.rows, done.dead_letters) == (2, 1)
    rows = stored_rows(tmp_path / "lake", "parquet")
    assert sorted(row["id"] for row in rows) == [0, 1, 6, 8]
    letters = stored_rows(tmp_path / "lake", "parquet", "orders_t_dead_letters")
    assert sorted(row["offset"] for row in letters) == [3, 7]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("has_begun", [True, False])
def test_a_loss_behind_which_there_is_nothing_is_accepted_once(
    headrace: TestBroker, tmp_path: Path, to: str, has_begun: bool
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, start_offsets={0: 0}, columns=("id:long",))
    produce(headrace, "orders", {"id": 0})
    if has_begun:
        run_once(headrace)
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    delete_records(headrace, 3)
    with pytest.raises(Gap, match="are gone"):
        run_once(headrace)
    (done,) = run_once(headrace, accepts_loss=True)
    assert (done.records, done.rows, len(done.gaps)) == (0, 0, 1)
    assert run_once(headrace, accepts_loss=True) == []
    assert run_once(headrace) == []
    produce(headrace, "orders", {"id": 3})
    run_once(headrace)
    rows = stored_rows(tmp_path / "lake", to)
    assert sorted(row["id"] for row in rows) == ([0, 3] if has_begun else [3])
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal


@pytest.mark.parametrize("to", TARGETS)
def test_a_table_asks_whether_the_log_that_it_has_read_is_still_there(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to)
    produce(headrace, "orders", {"id": 1}, {"id": 2})
    run_once(headrace)
    produce(headrace, "orders", {"id": 3})
    asked: list[Any] = []

    async def ends_of_a_log_that_was_cut(cluster: Any, epochs: Any) -> Any:
        found = await epoch_ends(cluster, epochs)
        asked.append((epochs, found))
        return dict.fromkeys(found, 1)

    with monkeypatch.context() as patch:
        patch.setattr(topic_view, "epoch_ends", ends_of_a_log_that_was_cut)
        with pytest.raises(Gap, match="orders-0 has other records from offset 1 on"):
            run_once(headrace)
    here = TopicPartition("orders", 0)
    assert asked == [({here: 0}, {here: 3})]
    assert run_once(headrace)[0].rows == 1


@pytest.mark.parametrize(
    ("to", "kind"),
    [("iceberg", IcebergTable), ("delta", DeltaLakeTable), ("parquet", ParquetTable)],
)
def test_rows_of_a_replay_are_not_committed_twice_if_a_compaction_has_merged_them(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, kind: Any
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, rules=("id >= 0",), columns=("id:long",))
    produce(headrace, "orders", {"id": 1}, {"id": -1})
    run_once(headrace)
    alter_table(headrace.bootstrap, "orders_t", rules=())
    commit, failures = kind.commit, iter([True])

    def lose_the_response(self: Any, head: Any, change: Change) -> None:
        commit(self, head, change)
        if next(failures, False):
            maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())
            raise OutcomeUnknown("the response was lost")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit", lose_the_response)
        with pytest.raises(CatalogFailed, match="run it again"):
            replay_table(headrace.bootstrap, "orders_t", Here())
    assert replay_table(headrace.bootstrap, "orders_t", Here()).known == 1
    assert places(stored_rows(tmp_path / "lake", to)) == [(0, 0), (0, 1)]
    assert verify_table(headrace.bootstrap, "orders_t", Here()).is_equal
