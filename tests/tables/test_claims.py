"""Who may change a table, and when."""

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.remote.store import StoreError
from headrace.remote.store_options import StoreOptions
from headrace.spark.tables import backfilling, replaying, task, writer_lease
from headrace.spark.tables.administration import Unfinished, alter_table
from headrace.spark.tables.backfilling import backfill_table
from headrace.spark.tables.claims import HeldClaim
from headrace.spark.tables.engine import Here
from headrace.spark.tables.planning import Gap
from headrace.spark.tables.replaying import replay_table
from headrace.spark.tables.running import DefinitionChanged
from headrace.spark.tables.verifying import verify_table
from headrace.spark.tables.writer_lease import Claim, HeldByAnother, WriterLease
from headrace.spark.tier.stores import BlockingStore
from headrace.testing.broker import TestBroker
from tests.tables.worlds import create, produce, run_once, stored_rows, table_run

TARGETS = ("iceberg", "delta", "parquet")
LETTERS = "orders_t_dead_letters"


class Killed(BaseException):
    """What a SIGKILL is to the rest of the code."""


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
