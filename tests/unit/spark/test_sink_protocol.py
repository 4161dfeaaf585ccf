"""Every crash, pause and lost answer of a batch, and of the run after it: each row is seen once."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.spark.sink.decisions import Fenced, decision_of
from headrace.spark.sink.protocol import Place, TimedOut, abort_batch, commit_batch, open_place
from tests.unit.spark.sink_world import Actor, Cluster, Fate, Killed, Layout, Unreachable

ROWS = [f"row {number}" for number in range(5)]
LAYOUT: Layout = [ROWS[:2], ROWS[2:4], ROWS[4:]]
SHUFFLED: Layout = [ROWS[3:], ROWS[:3][::-1]]
LATER_ROWS = ["later 1", "later 2"]
LATER: Layout = [LATER_ROWS, []]
STEPS_MAX = 80


def steps_of_a_batch() -> int:
    """How many steps a batch has that nothing happens to."""
    actor = Actor(Cluster(), "run", Fate())
    asyncio.run(actor.run_batch(0, LAYOUT))
    assert actor.steps < STEPS_MAX
    return actor.steps


async def succeeds(work: Coroutine[Any, Any, Any]) -> bool:
    try:
        lost = await work
    except (HeadraceError, Killed):
        return False
    assert lost == []
    return True


async def drive(cluster: Cluster, run: str, fate: Fate, layout: Layout) -> bool:
    """One run of the query from its checkpoint on; True when it got through both batches."""
    actor = Actor(cluster, run, fate)
    while cluster.next_batch < 2:
        rows = LATER if cluster.next_batch else layout
        if not await succeeds(actor.run_batch(cluster.next_batch, rows)):
            return False
    return True


def check(cluster: Cluster) -> None:
    assert cluster.seen == Counter([*ROWS, *LATER_ROWS])
    assert cluster.open_ids() == []


def test_a_batch_that_nothing_happens_to_is_seen_once() -> None:
    cluster = Cluster()
    assert asyncio.run(drive(cluster, "run", Fate(), LAYOUT))
    check(cluster)


@pytest.mark.parametrize("kind", ["killed", "unanswered", "unreachable"])
def test_whatever_dies_at_whichever_step_each_row_is_seen_once(kind: str) -> None:
    for step in range(steps_of_a_batch()):
        cluster = Cluster()

        async def play(cluster: Cluster, step: int) -> None:
            if not await drive(cluster, "first", Fate(step, kind), LAYOUT):
                assert await drive(cluster, "second", Fate(), SHUFFLED)

        asyncio.run(play(cluster, step))
        check(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["killed", "unanswered", "unreachable"])
def test_whatever_dies_at_whichever_two_steps_each_row_is_seen_once(kind: str) -> None:
    steps = steps_of_a_batch()
    for first in range(steps):
        for second in range(steps):
            cluster = Cluster()

            async def play(cluster: Cluster, first: int, second: int) -> None:
                if await drive(cluster, "first", Fate(first, kind), LAYOUT):
                    return
                if await drive(cluster, "second", Fate(second, "killed"), SHUFFLED):
                    return
                assert await drive(cluster, "third", Fate(), LAYOUT[::-1])

            asyncio.run(play(cluster, first, second))
            check(cluster)


@pytest.mark.parametrize("kind", ["unanswered", "unreachable"])
def test_no_transaction_is_left_open_by_a_batch_that_spark_aborts(kind: str) -> None:
    for step in range(steps_of_a_batch()):
        cluster = Cluster()
        actor = Actor(cluster, "run", Fate(step, kind))
        if not asyncio.run(succeeds(actor.run_batch(0, LAYOUT))):
            assert cluster.open_ids() == [], f"step {step}"
            assert cluster.seen in (Counter(), Counter(ROWS)), f"step {step}"


@pytest.mark.parametrize("kind", ["paused", "killed"])
@pytest.mark.parametrize("earlier", [0, 1], ids=["first run", "second run"])
def test_a_query_that_is_stopped_at_whichever_step_leaves_no_transaction_open(
    kind: str, earlier: int
) -> None:
    for step in range(steps_of_a_batch()):
        cluster = Cluster()

        async def play(cluster: Cluster, step: int) -> None:
            if earlier:
                assert await succeeds(Actor(cluster, "earlier", Fate()).run_batch(0, [["first"]]))
            tasks = Actor(cluster, "tasks", Fate(step, kind), made_ns=1)
            writing = asyncio.ensure_future(succeeds(tasks.run_batch(earlier, LAYOUT)))
            stopped = asyncio.ensure_future(tasks.stands_still.wait())
            await asyncio.wait([writing, stopped], return_when=asyncio.FIRST_COMPLETED)
            # Of its name the driver knows nothing, as no task was done.
            await Actor(cluster, "driver", Fate(), made_ns=2).stop_query(earlier)
            tasks.goes_on.set()
            await writing
            stopped.cancel()
            assert cluster.open_ids() == [], f"step {step}"
            if not cluster.next_batch > earlier:
                again = Actor(cluster, "again", Fate(), made_ns=3)
                assert await succeeds(again.run_batch(earlier, SHUFFLED)), f"step {step}"
            assert await succeeds(
                Actor(cluster, "more", Fate(), made_ns=4).run_batch(earlier + 1, LATER)
            )

        asyncio.run(play(cluster, step))
        assert cluster.seen == Counter([*["first"][:earlier], *ROWS, *LATER_ROWS])
        assert cluster.open_ids() == []


def test_a_query_that_is_stopped_while_its_tasks_race_leaves_no_transaction_open() -> None:
    for steps_before in range(STEPS_MAX):
        cluster = Cluster()

        async def play(cluster: Cluster, steps_before: int) -> None:
            tasks = [Actor(cluster, "run", Fate(), made_ns=1) for _ in range(3)]
            writing = [
                asyncio.ensure_future(succeeds(_hold(each.write(0, (at, 0), ROWS[at : at + 2]))))
                for at, each in enumerate(tasks)
            ]
            for _ in range(steps_before):
                await asyncio.sleep(0)
            await Actor(cluster, "driver", Fate(), made_ns=2).stop_query(0)
            await asyncio.gather(*writing)

        asyncio.run(play(cluster, steps_before))
        assert cluster.open_ids() == [], f"after {steps_before} steps"


async def _hold(work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Do a task's work, of which nobody hears any more."""
    await work
    return []


def test_a_run_that_stood_still_while_another_ran_does_no_harm() -> None:
    for step in range(steps_of_a_batch()):
        cluster = Cluster()

        async def play(cluster: Cluster, step: int) -> None:
            old = Actor(cluster, "old", Fate(step, "paused"))
            zombie = asyncio.ensure_future(succeeds(old.run_batch(0, LAYOUT)))
            await old.stands_still.wait()
            assert await drive(cluster, "new", Fate(), SHUFFLED)
            old.goes_on.set()
            await zombie

        asyncio.run(play(cluster, step))
        check(cluster)


@pytest.mark.slow
def test_two_runs_that_stop_and_go_past_each_other_never_double_a_row() -> None:
    steps = steps_of_a_batch()
    for first in range(steps):
        for second in range(steps):
            cluster = Cluster()

            async def play(cluster: Cluster, first: int, second: int) -> None:
                old = Actor(cluster, "old", Fate(first, "paused"))
                new = Actor(cluster, "new", Fate(second, "paused"))
                zombie = asyncio.ensure_future(succeeds(old.run_batch(0, LAYOUT)))
                await old.stands_still.wait()
                other = asyncio.ensure_future(succeeds(new.run_batch(0, SHUFFLED)))
                await asyncio.wait(
                    [other, asyncio.ensure_future(new.stands_still.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                old.goes_on.set()
                await zombie
                new.goes_on.set()
                await other
                assert await drive(cluster, "last", Fate(), LAYOUT)

            asyncio.run(play(cluster, first, second))
            check(cluster)


def test_batches_without_rows_are_decided_and_a_replay_of_one_is_known() -> None:
    cluster = Cluster()

    async def play() -> None:
        assert await Actor(cluster, "old", Fate()).run_batch(0, [[], []]) == []
        new = Actor(cluster, "new", Fate())
        assert await new.run_batch(0, [[], []]) == []
        assert await new.run_batch(1, LATER) == []
        with pytest.raises(Fenced):
            await Actor(cluster, "old", Fate()).run_batch(1, [[]])

    asyncio.run(play())
    assert cluster.seen == Counter(LATER_ROWS)


def test_a_second_attempt_at_a_partition_does_not_disturb_the_first() -> None:
    cluster = Cluster()

    async def play() -> None:
        actor = Actor(cluster, "run", Fate())
        slow = await actor.write(0, (0, 0), ROWS[:2])
        quick = await actor.write(0, (0, 1), ROWS[:2])
        assert slow != quick
        assert slow is not None
        assert await commit_batch(actor, actor, actor.sink, 0, (slow,)) == []

    asyncio.run(play())
    assert cluster.seen == Counter(ROWS[:2])
    assert cluster.open_ids() == []


def test_an_attempt_that_comes_after_the_decision_writes_nothing() -> None:
    cluster = Cluster()

    async def play() -> None:
        actor = Actor(cluster, "run", Fate())
        await actor.run_batch(0, LAYOUT)
        assert await open_place(actor, actor, Place(actor.sink, 0, 1, 7)) is None

    asyncio.run(play())


def test_a_task_that_spark_forgot_when_it_aborted_is_refused() -> None:
    cluster = Cluster()

    async def play() -> None:
        actor = Actor(cluster, "run", Fate(10, "unreachable"))
        with pytest.raises(Unreachable):
            await actor.run_batch(0, LAYOUT)
        with pytest.raises(Fenced, match="may not write any more"):
            await open_place(actor, actor, Place(actor.sink, 0, 9, 0))

    asyncio.run(play())


def test_a_checkpoint_older_than_what_was_written_is_refused() -> None:
    cluster = Cluster()

    async def play() -> None:
        assert await drive(cluster, "run", Fate(), LAYOUT)
        cluster.next_batch = 0
        restored = Actor(cluster, "restored", Fate())
        with pytest.raises(Fenced, match="batch 1 of this query is written already"):
            await restored.run_batch(0, LAYOUT)

    asyncio.run(play())


def test_a_batch_that_takes_too_long_fails_whole() -> None:
    cluster = Cluster()

    async def play() -> None:
        actor = Actor(cluster, "slow", Fate())
        slots = [await actor.write(0, (index, 0), rows) for index, rows in enumerate(LAYOUT)]
        cluster.begin(actor.sink.transactional_id(1, 0))  # its timeout passed
        done = tuple(slot for slot in slots if slot is not None)
        with pytest.raises(TimedOut, match="1 of its 3 transactions were ended before all tasks"):
            await commit_batch(actor, actor, actor.sink, 0, done)
        assert await abort_batch(actor, actor, actor.sink, 0)
        assert cluster.seen == Counter()
        assert await drive(cluster, "next", Fate(), SHUFFLED)

    asyncio.run(play())
    check(cluster)


def test_rows_that_the_cluster_aborted_after_the_decision_are_reported() -> None:
    cluster = Cluster()

    async def play() -> list[Any]:
        killed = Actor(cluster, "killed", Fate())
        slots = [await killed.write(0, (index, 0), rows) for index, rows in enumerate(LAYOUT)]
        decided = tuple(slot for slot in slots if slot is not None)
        await killed.append(decision_of(await killed.read(), 0, decided))
        cluster.begin(killed.sink.transactional_id(1, 0))  # its timeout passed
        return await Actor(cluster, "next", Fate()).run_batch(0, SHUFFLED)

    (lost,) = asyncio.run(play())
    assert lost.batch == 0
    assert lost.transactional_ids == ("headrace-spark-query-killed-1-0",)
    assert lost.total == 3
