"""What is loaded again, and what time does."""

import pytest

from headrace.txn.state import Status
from tests.unit.txn.world import T0, TIMEOUT_MS, World

P0, P1, P2 = ("orders", 0), ("stock", 0), ("orders", 1)
DAY_MS = 24 * 60 * 60 * 1000


def test_a_log_gives_the_same_transactions_after_each_of_its_records() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0, P1, P2)
    following = world.end(producer)
    world.complete()
    world.init(producer=following)
    world.init("b")
    seen = []
    for end in range(len(world.log) + 1):
        loaded = World()
        loaded.log = world.log[:end]
        loaded.reload()
        seen.append({name: each.status for name, each in loaded.state.transactions.items()})
    assert [each.get("a") for each in seen] == [
        None,
        Status.EMPTY,
        Status.ONGOING,
        Status.PREPARE_COMMIT,
        Status.COMPLETE_COMMIT,
        Status.EMPTY,
        Status.EMPTY,
    ]
    before = world.state.transactions
    world.reload()
    assert world.state.transactions == before


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_was_decided_is_brought_to_its_end_after_a_restart(is_commit: bool) -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0, P1, P2)
    world.end(producer, is_commit=is_commit)
    world.decided.clear()
    world.reload()
    (decided,) = world.decided
    assert (decided.is_commit, decided.producer_epoch) == (is_commit, 1)
    assert set(decided.partitions) == {P0, P1, P2}
    world.complete()
    assert world.of().status is (Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT)


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    world.reload()
    assert world.decided == []
    world.end(producer)
    assert world.decided[0].is_commit


def test_a_transaction_that_is_open_too_long_is_aborted_even_after_a_restart() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    world.reload()
    world.pass_time(TIMEOUT_MS - 1)
    assert world.decided == []
    world.pass_time(10_000)
    assert not world.decided[0].is_commit


def test_a_transaction_that_ended_is_not_aborted_later() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    world.end(producer)
    world.complete()
    world.pass_time(DAY_MS)
    assert world.of().status is Status.COMPLETE_COMMIT


def test_it_is_looked_for_late_transactions_at_intervals() -> None:
    interval_ms = 7000
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    world = World(settings={name: str(interval_ms)})
    world.add(world.init(), P0)
    due_ms = world.machine.next_deadline_ms()
    assert due_ms is not None
    assert due_ms % interval_ms == 0
    assert T0 + TIMEOUT_MS <= due_ms < T0 + TIMEOUT_MS + interval_ms


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    world = World()
    world.init("idle")
    open_one = world.init("open")
    world.pass_time(6 * DAY_MS)
    world.add(open_one, P0)
    world.pass_time(DAY_MS + 60 * 60 * 1000)
    assert "idle" not in world.state.transactions
    assert "open" in world.state.transactions
    world.reload()
    assert "idle" not in world.state.transactions


def test_what_waits_for_markers_is_never_forgotten() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    world.end(producer)
    world.pass_time(30 * DAY_MS)
    assert world.of().status is Status.PREPARE_COMMIT
