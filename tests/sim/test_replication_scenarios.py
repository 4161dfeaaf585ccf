"""Replicated partitions on bad days: what a user notices of each, on whole nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from headrace.api.fetch_replica import ReplicaFetch
from headrace.client import NotReachable, Producer
from headrace.cluster.cluster import Cluster
from headrace.cluster.joining import CannotJoin
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.raft.errors import RaftStopped
from headrace.replication.replica_reading import ReplicaReader
from headrace.testing.disk import SimulatedDisk
from headrace.testing.hosts import Crashed
from tests.sim.replication_clients import SETTINGS
from tests.sim.replication_stage import Stage

ORDERS = "orders"
NONE = ErrorCode.NONE
REFUSED = frozenset((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
NOT_NOW = REFUSED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


def play(scene: Callable[[Stage], Awaitable[None]], **settings: str) -> Stage:
    stage = Stage(settings)
    stage.run(scene)
    return stage


async def begin(stage: Stage, *, least: int = 2, nodes: tuple[int, ...] = (1, 2, 3)) -> None:
    """Start nodes with a topic that node 1 leads, and five records in it."""
    await stage.start_all(*nodes)
    await stage.create(ORDERS, (1, 2, 3), least=least)
    for number in range(5):
        assert await stage.produce(1, ORDERS, b"%d" % number) == (NONE, number)
    await stage.until(lambda: stage.is_in_sync(ORDERS))


# Leaders


def test_a_record_is_on_all_replicas_in_sync_when_it_is_acknowledged() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        for number in range(5, 30):
            values = [b"%d" % number, b"and", b"more"][: 1 + 2 * (number % 2)]
            code, offset = await stage.produce(1, ORDERS, *values)
            assert code is NONE
            for node in stage.row(ORDERS).isr:
                assert stage.end(node, ORDERS) >= offset + len(values)

    play(scene)


def test_a_leader_cut_off_from_the_controller_stops_acknowledging() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.isolate(1)
        code, _ = await stage.produce(1, ORDERS, b"nobody has it", timeout_ms=1500)
        assert code in NOT_NOW
        await stage.until(lambda: stage.leader(ORDERS) not in (1, -1))
        leader = stage.leader(ORDERS)
        assert leader in (2, 3)
        assert await stage.produce(leader, ORDERS, b"another") == (NONE, 5)
        code, _ = await stage.produce(1, ORDERS, b"nor this", timeout_ms=1500)
        assert code in NOT_NOW
        stage.heal()
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        stage.compare(ORDERS)
        assert stage.end(1, ORDERS) == 6

    play(scene)


def test_a_leader_that_only_followers_cannot_hear_drops_them_and_says_so() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.cut((1, 2), (1, 3))
        code, _ = await stage.produce(1, ORDERS, b"unheard", timeout_ms=3000)
        assert code in NOT_NOW
        stage.heal()
        await until_acknowledged(stage, b"heard")
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        stage.compare(ORDERS)

    play(scene)


def test_records_that_came_before_a_shrink_are_refused_after_the_append() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage, nodes=(1, 2, 3, 4, 5))
        leader_epoch = stage.row(ORDERS).leader_epoch
        for node in (2, 3):
            stage.host(node).pause(6)
        code, _ = await stage.produce(1, ORDERS, b"alone", timeout_ms=3500)
        assert code in (
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,  # as Kafka, where the high watermark does not get there
        )
        assert stage.high_watermark(1, ORDERS) == 5
        code, _ = await stage.produce(1, ORDERS, b"not even appended")
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        await stage.until(lambda: stage.high_watermark(1, ORDERS) == 6)
        assert stage.row(ORDERS).leader_epoch == leader_epoch, "an ISR needs no new leader epoch"

    play(scene, headrace_voters_max="5", broker_session_timeout_ms="20000")


def test_a_shrink_that_is_committed_lets_a_waiting_produce_go_on() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.host(3).pause(30)
        code, offset = await stage.produce(1, ORDERS, b"two have it", timeout_ms=8000)
        assert (code, offset) == (NONE, 5)
        assert set(stage.row(ORDERS).isr) == {1, 2}

    play(scene, broker_session_timeout_ms="20000")


def test_a_follower_that_may_be_in_the_isr_already_counts() -> None:
    """The leader has yet to hear that its proposal was taken; who leads next may be that one."""

    async def scene(stage: Stage) -> None:
        await begin(stage, nodes=(1, 2, 3, 4, 5))
        await control_by_4(stage)
        stage.host(3).pause(4)
        assert (await stage.produce(1, ORDERS, b"without 3", timeout_ms=8000))[0] is NONE
        leader = stage.replica(1, ORDERS)
        while leader.in_sync is None or leader.in_sync.pending != (1, 2, 3):
            await asyncio.sleep(0.0005)
        stage.cut((stage.controller, 1), (1, 3))
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        assert leader.isr == (1, 2)
        code, _ = await stage.produce(1, ORDERS, b"3 may lead without it", timeout_ms=1000)
        assert code in NOT_NOW

    play(scene, headrace_voters_max="5", broker_session_timeout_ms="20000")


def test_a_change_of_the_isr_that_failed_is_tried_again() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage, nodes=(1, 2, 3, 4, 5))
        await control_by_4(stage)
        stage.cut((1, 4), (4, 1), (1, 3))
        code, _ = await stage.produce(1, ORDERS, b"3 is still in the ISR", timeout_ms=6000)
        assert code is ErrorCode.REQUEST_TIMED_OUT
        stage.heal((1, 4), (4, 1))
        assert (await stage.produce(1, ORDERS, b"without 3", timeout_ms=10_000))[0] is NONE
        assert (stage.leader(ORDERS), stage.row(ORDERS).isr) == (1, (1, 2))

    play(
        scene,
        headrace_voters_max="5",
        broker_session_timeout_ms="60000",
        headrace_raft_proposal_timeout_ms="2000",
    )


def test_a_dead_follower_does_not_hold_up_others_once_it_is_fenced() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.crash(3)
        await stage.until(lambda: stage.is_fenced(3))
        began = stage.simulation.now
        assert await stage.produce(1, ORDERS, b"at once", timeout_ms=8000) == (NONE, 5)
        assert stage.simulation.now - began < 2

    play(scene, replica_lag_time_max_ms="30000")


# Followers


def test_a_follower_that_is_ahead_cuts_off_what_was_never_acknowledged() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.isolate(1)
        for number in range(3):
            await stage.produce(1, ORDERS, b"lost %d" % number, acks=1)
        assert stage.end(1, ORDERS) == 8
        await stage.until(lambda: stage.leader(ORDERS) in (2, 3))
        code, _ = await stage.produce(stage.leader(ORDERS), ORDERS, b"instead")
        assert code is NONE
        stage.heal()
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        stage.compare(ORDERS)

    play(scene)


def test_what_was_acknowledged_survives_two_changes_of_leaders_in_a_row() -> None:
    """A follower whose high watermark is behind leads, and then the one before it again.

    To truncate to the high watermark would lose the last record (KIP-101).
    """

    async def scene(stage: Stage) -> None:
        await begin(stage)
        code, offset = await stage.produce(1, ORDERS, b"the last one")
        assert code is NONE
        stage.crash(2)
        stage.crash(1)
        stage.crash(3)
        for node in (1, 2, 3):
            stage.start(node)
        await stage.until(
            lambda: len(stage.nodes) == 3 and all(n.is_ready for n in stage.nodes.values())
        )
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        for node in (1, 2, 3):
            assert stage.end(node, ORDERS) == offset + 1
        stage.compare(ORDERS)

    play(scene)


def test_a_follower_that_hears_of_another_leader_keeps_what_is_committed() -> None:
    """Its high watermark is behind: to truncate there would lose the last record (KIP-101)."""

    async def scene(stage: Stage) -> None:
        await begin(stage, nodes=(1, 2, 3, 4, 5))
        await control_by_4(stage)
        for number in range(3):
            assert (await stage.produce(1, ORDERS, b"and %d" % number))[0] is NONE
        stage.crash(1)
        stage.cut((2, 3))
        await stage.until(lambda: stage.replica(3, ORDERS).leader == 2)
        await asyncio.sleep(0.1)
        stage.crash(2)
        await stage.until(lambda: stage.leader(ORDERS) == 3)
        assert stage.end(3, ORDERS) == 8

    play(scene, headrace_voters_max="5")


def test_a_follower_whose_records_were_deleted_meanwhile_begins_anew() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.crash(3)
        await stage.until(lambda: 3 not in stage.row(ORDERS).isr)
        for number in range(5, 9):
            assert await stage.produce(1, ORDERS, b"%d" % number, b"x", b"y") == (
                NONE,
                3 * number - 10,
            )
        await stage.delete_records(1, ORDERS, 12)  # in the middle of a batch
        await stage.restart(3)
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        assert stage.replica(3, ORDERS).log.start_offset == 12
        stage.compare(ORDERS)

    play(scene)


def test_an_empty_answer_does_not_make_a_follower_forget_its_epoch() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        await asyncio.sleep(2)  # many empty answers
        assert stage.is_in_sync(ORDERS)
        stage.isolate(1)
        await stage.produce(1, ORDERS, b"never", acks=1)
        await stage.until(lambda: stage.leader(ORDERS) in (2, 3))
        assert (await stage.produce(stage.leader(ORDERS), ORDERS, b"instead"))[0] is NONE
        stage.heal()
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        stage.compare(ORDERS)

    play(scene)


# What it costs


def test_followers_fetch_once_for_each_record_not_for_its_high_watermark() -> None:
    count = 30

    async def scene(stage: Stage) -> None:
        await begin(stage)
        with counting(ReplicaFetch, "begin") as calls:
            for number in range(count):
                await stage.produce(1, ORDERS, b"%d" % number)
        assert len(calls) < 2 * count * 1.5

    play(scene)


def test_partitions_to_which_nothing_happens_are_not_read() -> None:
    count = 20

    async def scene(stage: Stage) -> None:
        await stage.start_all(1, 2, 3)
        await stage.create(ORDERS, *[(1, 2, 3)] * 40)
        await stage.produce(1, ORDERS, b"first")
        await asyncio.sleep(1)
        with counting(ReplicaReader, "_read_one") as calls:
            for number in range(count):
                await stage.produce(1, ORDERS, b"%d" % number)
        assert len(calls) < 2 * count * 4

    play(scene)


@contextmanager
def counting(owner: type, name: str) -> Iterator[list[str]]:
    """Count the calls of a method."""
    calls: list[str] = []
    real = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        calls.append(name)
        return real(*arguments)

    setattr(owner, name, call)
    try:
        yield calls
    finally:
        setattr(owner, name, real)


# Those who lie


def test_a_follower_that_lies_about_its_offset_commits_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        for node in (2, 3):
            stage.cut((1, node))
        await stage.produce(1, ORDERS, b"only here", acks=1)
        row = stage.row(ORDERS)
        for node in (2, 3):
            replica = node, stage.broker_epoch(node)
            beyond = await stage.fetch(
                1, ORDERS, 100, replica=replica, leader_epoch=row.leader_epoch, last_fetched_epoch=0
            )
            assert beyond.error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, NONE)
            assert stage.high_watermark(1, ORDERS) == 5
            diverging = await stage.fetch(
                1, ORDERS, 6, replica=replica, leader_epoch=row.leader_epoch, last_fetched_epoch=99
            )
            assert diverging.error_code or diverging.diverging_epoch.end_offset >= 0
            assert stage.high_watermark(1, ORDERS) == 5

    play(scene)


def test_a_fetch_of_a_former_life_commits_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        former = {node: stage.broker_epoch(node) for node in (2, 3)}
        for node in (2, 3):
            await stage.stop(node)
            await stage.restart(node)
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        leader = stage.leader(ORDERS)
        for node in (2, 3):
            if node == leader:
                continue
            stage.cut((leader, node))
            end = stage.end(leader, ORDERS)
            await stage.produce(leader, ORDERS, b"only here", acks=1)
            refused = await stage.fetch(
                leader,
                ORDERS,
                end + 1,
                replica=(node, former[node]),
                leader_epoch=stage.row(ORDERS).leader_epoch,
                last_fetched_epoch=stage.row(ORDERS).leader_epoch,
            )
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert stage.high_watermark(leader, ORDERS) <= end
            stage.heal()

    play(scene)


def test_a_node_without_a_replica_gets_an_error_as_a_follower() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start_all(1, 2, 3)
        await stage.create("pair", (1, 2))
        assert await stage.produce(1, "pair", b"one") == (NONE, 0)
        await stage.until(lambda: stage.is_in_sync("pair"))
        refused = await stage.fetch(
            1, "pair", 1, replica=(3, stage.broker_epoch(3)), leader_epoch=0, last_fetched_epoch=0
        )
        assert refused.error_code != NONE
        assert not refused.records
        assert set(stage.row("pair").isr) == {1, 2}

    play(scene)


# Disks


def test_a_full_disk_of_the_leader_refuses_and_loses_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        disk = stage.host(1).disk
        disk.fill_up(0)
        code, _ = await stage.produce(1, ORDERS, b"no room")
        assert code in NOT_NOW
        disk.make_room()
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        await until_acknowledged(stage, b"room again")
        stage.compare(ORDERS)

    play(scene)


def test_a_full_disk_of_a_follower_holds_up_no_others_for_long() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        disk = stage.host(3).disk
        disk.fill_up(0)
        code, _ = await stage.produce(1, ORDERS, b"two have it", timeout_ms=8000)
        assert code is NONE
        assert set(stage.row(ORDERS).isr) == {1, 2}
        disk.make_room()
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        stage.compare(ORDERS)

    play(scene)


def test_full_disks_everywhere_refuse_and_lose_nothing() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        for node in (1, 2, 3):
            stage.host(node).disk.fill_up(0)
        with suppress(NotReachable):
            code, _ = await stage.produce(1, ORDERS, b"no room")
            assert code in NOT_NOW
        for node in (1, 2, 3):
            stage.host(node).disk.make_room()
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        await until_acknowledged(stage, b"room again")
        stage.compare(ORDERS)

    play(scene)


def test_a_machine_without_its_last_writes_does_not_lead_with_what_is_left() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        for _ in range(3):
            leader = stage.leader(ORDERS)
            end = stage.end(leader, ORDERS)
            assert (await stage.produce(leader, ORDERS, b"synced nowhere"))[0] is NONE
            broker_epoch = stage.broker_epoch(leader)
            stage.crash(leader, power=True)
            starting = stage.start(leader)  # at once: nobody has noticed that it was gone
            while stage.broker_epoch(leader) == broker_epoch:
                await asyncio.sleep(0.001)
            assert leader not in stage.row(ORDERS).isr
            await starting
            await stage.until(lambda: stage.is_in_sync(ORDERS))
            for node in (1, 2, 3):
                assert stage.end(node, ORDERS) == end + 1
        stage.compare(ORDERS)

    play(scene)


def test_a_machine_without_its_last_writes_waits_for_who_stopped_cleanly() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start_all(1, 2, 3)
        await stage.create(ORDERS, (1, 2))
        for number in range(5):
            assert await stage.produce(1, ORDERS, b"%d" % number) == (NONE, number)
        await stage.stop(2)
        await stage.until(lambda: stage.row(ORDERS).isr == (1,))
        stage.crash(1, power=True)
        await stage.restart(1)
        assert stage.leader(ORDERS) == -1
        await stage.restart(2)
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        assert stage.end(1, ORDERS) == 5
        stage.compare(ORDERS)

    play(scene)


def test_a_node_takes_no_role_before_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would lead in the epoch of its former life, without the last records of that.

    What it wrote then would have the offsets and the epoch of records that others have.
    """
    real, late = Cluster.register, 0

    async def register(self: Cluster, *arguments: Any) -> None:
        if late:
            await stage.until(lambda: stage.leader(ORDERS) == -1)
            await asyncio.sleep(1)
            assert len(stage.nodes[late].broker.replicas) == 0
        await real(self, *arguments)

    monkeypatch.setattr(Cluster, "register", register)

    async def scene(stage: Stage) -> None:
        nonlocal late
        await stage.start_all(1, 2, 3)
        number = 1 + stage.controller % 3
        await stage.create(ORDERS, (number,), least=1)
        late = number
        stage.crash(number)
        await stage.restart(number)
        assert stage.leader(ORDERS) == number

    stage = Stage()
    stage.run(scene)


@pytest.mark.parametrize("number", [1, 3])
def test_an_older_disk_does_not_lead(number: int) -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        await stage.stop(number)
        old = stage.host(number).disk.clone()
        await stage.restart(number)
        await stage.until(lambda: stage.is_in_sync(ORDERS))
        for _ in range(3):
            assert (await stage.produce(stage.leader(ORDERS), ORDERS, b"newer"))[0] is NONE
        stage.crash(number)
        stage.host(number).disk = old
        with suppress(CannotJoin, Crashed, RaftStopped):
            await stage.restart(number)
            await stage.until(lambda: stage.is_in_sync(ORDERS))
            for node in (1, 2, 3):
                assert stage.end(node, ORDERS) == 8
            stage.compare(ORDERS)

    play(scene)


def test_another_nodes_disk_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.crash(3)
        copy = stage.host(2).disk.clone()
        copy.crash()
        stage.host(3).disk = copy
        with pytest.raises(Exception, match="2"):
            await stage.start(3)
        await stage.until(lambda: stage.is_fenced(3))
        assert 3 not in stage.row(ORDERS).isr

    play(scene)


def test_an_empty_disk_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        stage.crash(3)
        stage.host(3).disk = SimulatedDisk(9)
        with pytest.raises(CannotJoin):
            await stage.start(3)
        assert (await stage.produce(stage.leader(ORDERS), ORDERS, b"without it", timeout_ms=8000))[
            0
        ] is NONE

    play(scene)


# Clocks and restarts


@pytest.mark.parametrize("seconds", [-3_000, 86_400])
def test_a_clock_that_jumps_takes_nobody_out_of_the_isr(seconds: int) -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        for node in (1, 2, 3):
            stage.host(node).wall_offset_ns += seconds * 10**9
            await asyncio.sleep(1)
            assert stage.is_in_sync(ORDERS)
            assert (await stage.produce(1, ORDERS, b"whenever"))[0] is NONE
            assert stage.leader(ORDERS) == 1

    play(scene)


def test_a_rolling_restart_fails_no_produce() -> None:
    async def scene(stage: Stage) -> None:
        await begin(stage)
        places: list[int] = []
        is_over = False

        async def produce() -> None:
            async with Producer("10.0.0.1:9092,10.0.0.2:9092,10.0.0.3:9092", SETTINGS) as producer:
                while not is_over:
                    value = b"rolling %d" % len(places)
                    stage.checks.sent.add(value)
                    placed = await producer.deliver(ORDERS, value)
                    places.append(placed.offset)
                    await asyncio.sleep(0.05)

        producing = stage.client.start(produce())
        for node in (1, 2, 3):
            await asyncio.sleep(0.5)
            await stage.stop(node)
            await stage.restart(node)
            await stage.until(lambda: stage.is_in_sync(ORDERS))
        is_over = True
        await producing
        assert places == list(range(5, 5 + len(places)))
        stage.compare(ORDERS)

    play(scene)


async def control_by_4(stage: Stage) -> None:
    """Let a node be the controller that has no replica of the topic."""
    while stage.controller != 4:
        stage.nodes[stage.controller].broker.quorum.driver.transfer(BrokerId(4))
        await asyncio.sleep(1)


async def until_acknowledged(stage: Stage, value: bytes) -> None:
    """Produce as a client does that tries again."""
    for _ in range(50):
        code, _ = await stage.produce(stage.leader(ORDERS), ORDERS, value)
        if code is NONE:
            return
        assert code in NOT_NOW
        await asyncio.sleep(0.2)
    pytest.fail("it is never acknowledged")
