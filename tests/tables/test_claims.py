"""Who may change a table, and when."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.remote.store import StoreError
from headrace.remote.store_options import StoreOptions
from headrace.spark.tables import (
    administration,
    backfilling,
    claims,
    maintenance,
    replaying,
    task,
    writer_lease,
)
from headrace.spark.tables.administration import Unfinished, alter_table, drop_table, find_table
from headrace.spark.tables.backfilling import backfill_table
from headrace.spark.tables.claims import HeldClaim
from headrace.spark.tables.engine import Engine, Here
from headrace.spark.tables.maintenance import Limits, maintain_table
from headrace.spark.tables.planning import Gap
from headrace.spark.tables.registry import DefinitionChanged, UnknownTable
from headrace.spark.tables.replaying import replay_table
from headrace.spark.tables.verifying import verify_table
from headrace.spark.tables.writer_lease import Claim, HeldByAnother, WriterLease
from headrace.spark.tier.stores import BlockingStore
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, produce, run_once, stored_rows, table_run

TARGETS = ("iceberg", "delta", "parquet")
LETTERS = "orders_t_dead_letters"


class Killed(BaseException):
    """What a SIGKILL is to the rest of the code."""


def backfill(broker: TestBroker, engine: Engine) -> None:
    assert backfill_table(broker.bootstrap, "orders_t", engine).rows == 2


def replay(broker: TestBroker, engine: Engine) -> None:
    assert replay_table(broker.bootstrap, "orders_t", engine).rows == 1


def compact(broker: TestBroker, engine: Engine) -> None:
    done = maintain_table(broker.bootstrap, "orders_t", engine, Limits())
    assert (done.pieces, done.skipped) == (1, 0)


JOBS = {"replayed or backfilled": (backfill, replay), "compacted": (compact,)}
JOBS_AND_CLAIMS = [(job, claim) for claim, jobs in JOBS.items() for job in jobs]


def table_with_work(broker: TestBroker, location: Path, to: str = "parquet") -> None:
    """Make a table with something to do for each of the jobs."""
    broker.create_topic("orders")
    produce(broker, "orders", {"price": 20}, {"price": 21})
    create(broker, location, to=to, start_offsets={0: 2}, rules=("price >= 10",))
    produce(broker, "orders", {"price": 3}, {"price": 12})
    run_once(broker)
    alter_table(broker.bootstrap, "orders_t", rules=("price >= 0",))
    produce(broker, "orders", {"price": 13})
    run_once(broker)


class BesideADrop(Here):
    """Tasks in the middle of which somebody tries to drop the table."""

    def __init__(self, broker: TestBroker, claim: str) -> None:
        self.broker = broker
        self.claim = claim
        self.refused = 0

    def run(self, work: Any, inputs: Any) -> Any:
        with pytest.raises(HeldByAnother, match=f"table 'orders_t' is {self.claim} by process"):
            drop_table(self.broker.bootstrap, "orders_t", purges=True)
        self.refused += 1
        return super().run(work, inputs)


def is_equal(broker: TestBroker) -> bool:
    return verify_table(broker.bootstrap, "orders_t", Here()).is_equal


@pytest.mark.parametrize("to", TARGETS)
def test_a_batch_is_finished_by_the_rules_that_it_was_begun_with(
    headrace: TestBroker, tmp_path: Path, to: str
) -> None:
    def die(step: str) -> None:
        if step == "after letters":
            raise Killed

    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to=to, columns=("id:long",), rules=("id >= 0",))
    produce(headrace, "orders", {"id": 5}, {"id": 20}, b"bad")
    run = table_run(headrace, on_step=die)
    run.begin()
    with pytest.raises(Killed):
        run.run_available()
    run.end()
    with pytest.raises(Unfinished, match="`headrace table run orders_t --once` finishes it"):
        alter_table(headrace.bootstrap, "orders_t", rules=("id >= 10",))
    run_once(headrace)
    assert len(stored_rows(tmp_path / "lake", to)) == 2
    assert len(stored_rows(tmp_path / "lake", to, LETTERS)) == 1
    assert is_equal(headrace)
    alter_table(headrace.bootstrap, "orders_t", rules=("id >= 10",))
    produce(headrace, "orders", {"id": 6})
    assert run_once(headrace)[0].dead_letters == 1


def test_a_half_committed_batch_that_is_another_one_by_now_is_refused(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(step: str) -> None:
        if step == "after letters":
            raise Killed

    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", columns=("id:long",), rules=("id >= 10",))
    produce(headrace, "orders", {"id": 5}, {"id": 20})
    run = table_run(headrace, on_step=die)
    run.begin()
    with pytest.raises(Killed):
        run.run_available()
    run.end()
    monkeypatch.setattr(replaying, "pause", lambda _: None)
    with pytest.raises(Unfinished, match="finishes it first"):
        replay_table(headrace.bootstrap, "orders_t", Here())
    with monkeypatch.context() as patch:
        patch.setattr(task, "broken", lambda *_: None)  # as if another version judged the rules
        with pytest.raises(Gap, match="orders-0 offset 0 is none: the log, or what decodes it"):
            run_once(headrace)
    run_once(headrace)
    assert is_equal(headrace)


def test_a_table_is_altered_only_between_runs(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet")
    run, late = table_run(headrace), table_run(headrace)
    run.begin()
    with pytest.raises(HeldByAnother, match="is written by process"):
        alter_table(headrace.bootstrap, "orders_t", rules=("id >= 10",))
    run.end()
    alter_table(headrace.bootstrap, "orders_t", rules=("id >= 10",))
    with pytest.raises(DefinitionChanged, match="was altered"):
        late.begin()
    run_once(headrace)


def test_a_second_replay_is_refused(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet", rules=("price >= 10",))
    produce(headrace, "orders", {"price": 3}, {"price": 12})
    run_once(headrace)
    alter_table(headrace.bootstrap, "orders_t", rules=("price >= 0",))
    decode = replaying._replay_file

    def beside_another(*given: Any) -> Any:
        result = decode(*given)
        with pytest.raises(HeldByAnother, match="is replayed or backfilled by process"):
            replay_table(headrace.bootstrap, "orders_t", Here())
        with pytest.raises(HeldByAnother):
            backfill_table(headrace.bootstrap, "orders_t", Here())
        return result

    monkeypatch.setattr(replaying, "_replay_file", beside_another)
    assert replay_table(headrace.bootstrap, "orders_t", Here()).rows == 1
    assert is_equal(headrace)


def test_a_second_backfill_is_refused(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace.create_topic("orders")
    produce(headrace, "orders", *([{"id": 1}, b"bad"] * 5))
    create(headrace, tmp_path / "lake", to="parquet", start_offsets={0: 10})
    produce(headrace, "orders", {"id": 99})
    run_once(headrace)
    commit = backfilling._commit

    def beside_another(*given: Any, **more: Any) -> bool:
        with pytest.raises(HeldByAnother):
            backfill_table(headrace.bootstrap, "orders_t", Here(), start_offsets={0: 6})
        return commit(*given, **more)

    monkeypatch.setattr(backfilling, "_commit", beside_another)
    backfill_table(headrace.bootstrap, "orders_t", Here(), start_offsets={0: 0})
    assert len(stored_rows(tmp_path / "lake", "parquet", LETTERS)) == 5
    assert is_equal(headrace)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(("job", "claim"), JOBS_AND_CLAIMS)
def test_a_table_is_not_dropped_under_a_job(
    headrace: TestBroker,
    tmp_path: Path,
    to: str,
    job: Callable[[TestBroker, Engine], None],
    claim: str,
) -> None:
    table_with_work(headrace, tmp_path / "lake", to)
    engine = BesideADrop(headrace, claim)
    job(headrace, engine)
    assert engine.refused
    backfill_table(headrace.bootstrap, "orders_t", Here())
    replay_table(headrace.bootstrap, "orders_t", Here())
    assert is_equal(headrace)
    drop_table(headrace.bootstrap, "orders_t", purges=True)
    with pytest.raises(UnknownTable):
        find_table(headrace.bootstrap, "orders_t")
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_a_table_is_not_dropped_under_a_writer(headrace: TestBroker, tmp_path: Path) -> None:
    headrace.create_topic("orders")
    create(headrace, tmp_path / "lake", to="parquet")
    run = table_run(headrace)
    run.begin()
    with pytest.raises(HeldByAnother, match="is written by process"):
        drop_table(headrace.bootstrap, "orders_t", purges=True)
    produce(headrace, "orders", {"id": 1})
    run.run_available()
    run.end()
    assert len(stored_rows(tmp_path / "lake", "parquet")) == 1
    drop_table(headrace.bootstrap, "orders_t", purges=True)


def test_a_table_is_not_dropped_under_a_job_of_another_process(
    headrace: TestBroker, tmp_path: Path
) -> None:
    table_with_work(headrace, tmp_path / "lake")
    command = [sys.executable, "-m", "tests.tables.held_job", headrace.bootstrap, "orders_t"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "working\n"
            with pytest.raises(HeldByAnother, match=f"backfilled by process {process.pid} on"):
                drop_table(headrace.bootstrap, "orders_t", purges=True)
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline() == "2 rows\n"
        except BaseException:
            process.kill()
            raise
    drop_table(headrace.bootstrap, "orders_t", purges=True)


def test_nobody_begins_to_work_on_a_table_that_is_being_dropped(
    headrace: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_with_work(headrace, tmp_path / "lake")
    forget = administration._forget

    def beside_others(*given: Any) -> None:
        forget(*given)
        for work in (backfill, replay, compact):
            with pytest.raises(HeldByAnother):
                work(headrace, Here())
        with pytest.raises(HeldByAnother, match="is written by process"):
            drop_table(headrace.bootstrap, "orders_t", purges=True)

    monkeypatch.setattr(administration, "_forget", beside_others)
    drop_table(headrace.bootstrap, "orders_t", purges=True)
    with pytest.raises(UnknownTable):
        find_table(headrace.bootstrap, "orders_t")


@pytest.mark.parametrize(
    ("module", "job"), [(backfilling, backfill), (replaying, replay), (maintenance, compact)]
)
def test_a_job_that_comes_a_moment_after_a_drop_does_nothing(
    headrace: TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    job: Callable[[TestBroker, Engine], None],
) -> None:
    def after_a_drop(*given: Any) -> Any:
        drop_table(headrace.bootstrap, "orders_t", purges=True)
        return claims.held(*given)

    table_with_work(headrace, tmp_path / "lake")
    monkeypatch.setattr(module, "held", after_a_drop)
    with pytest.raises(UnknownTable):
        job(headrace, Here())
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_a_second_compaction_is_refused_unless_it_only_looks(
    headrace: TestBroker, tmp_path: Path
) -> None:
    class BesideAnother(Here):
        def run(self, work: Any, inputs: Any) -> Any:
            dry = maintain_table(headrace.bootstrap, "orders_t", Here(), Limits(is_dry=True))
            assert dry.pieces == 1
            with pytest.raises(HeldByAnother, match="is compacted by process"):
                maintain_table(headrace.bootstrap, "orders_t", Here(), Limits())
            return super().run(work, inputs)

    table_with_work(headrace, tmp_path / "lake")
    compact(headrace, BesideAnother())
    assert len(stored_rows(tmp_path / "lake", "parquet")) == 2


def test_a_claim_ends_by_the_clock_of_the_store(tmp_path: Path) -> None:
    store = BlockingStore(f"file://{tmp_path}", StoreOptions())
    key = ".headrace/tables/t/writer-000000000001.json"
    # Of another host whose clock is far behind ours; it was renewed just now.
    claim = Claim(epoch=1, host="there", pid=1, process_start="x", since_ms=0, renewed_ms=1000)
    data = msgspec.json.encode(claim)
    store.run(store.store.put(key, data, len(data)))
    with pytest.raises(HeldByAnother, match="by process 1 on there"):
        WriterLease(store, "t").claim()
    data = msgspec.json.encode(msgspec.structs.replace(claim, lasts_ms=-1))
    store.run(store.store.put(key, data, len(data)))
    assert WriterLease(store, "t").claim() == 2
    assert [each.name for each in tmp_path.rglob("*clock*")] == []
    store.close()


def test_a_renewal_that_fails_once_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_lease, "RENEW_MS", 1)
    store = BlockingStore(f"file://{tmp_path}", StoreOptions())
    lease = WriterLease(store, "t")
    lease.claim()
    renewals = iter([StoreError("503 once")])
    renewed = threading.Event()

    def renew(*, is_forced: bool = False) -> None:
        if error := next(renewals, None):
            raise error
        renewed.set()

    monkeypatch.setattr(lease, "renew", renew)
    held = HeldClaim(lease, "t")
    assert renewed.wait(10)
    held.check()
    held.leave()
    store.close()
