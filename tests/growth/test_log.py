"""Logs and their upkeep: cost follows what is asked for, not what happens to exist."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.ids import TopicName
from headrace.log.producers import ProducerState, RecordedBatch
from headrace.log.real_disk import RealDisk
from headrace.log.transactions import TransactionIndex, search
from headrace.loop.clock import Clock
from headrace.loop.counters import Counters
from headrace.metadata.applier import Outcome
from headrace.metadata.events import ConfigsChanged, Event
from headrace.metadata.state import ResourceType
from headrace.node import compactor, upkeep
from headrace.node.compactor import Compactor
from headrace.node.upkeep import Upkeep
from headrace.records.aborted import BLOCK_ENTRIES, AbortedTransaction
from headrace.replication import replicas, topic_settings
from headrace.replication.partition import Partition
from headrace.testing.disk import SimulatedDisk
from tests.crash.topic_histories import ROLLED, Node
from tests.growth.steps import assert_stays_flat, steps
from tests.unit.log.logs import NOW_MS, append, open_simulated


def rename_a_file(folder_count: int, files_beside: int = 1) -> int:
    """Rename one file while many are open, in other folders and beside it."""
    with TemporaryDirectory() as root:
        disk = RealDisk(Path(root), open_files_max=10)
        files = []
        for number in range(folder_count):
            disk.make_folder(f"t-{number}")
            files.append(disk.open(f"t-{number}/log", create=True))
        files += [disk.open(f"t-0/{number}", create=True) for number in range(files_beside)]
        count = steps(lambda: disk.rename("t-0/log", "t-0/log.deleted"))
        assert files[0].path == "t-0/log.deleted"
        disk.close()
        return count


def test_a_rename_costs_the_same_however_many_folders_are_open() -> None:
    assert_stays_flat(rename_a_file, 20)


def test_a_rename_costs_the_same_however_many_files_lie_beside() -> None:
    assert_stays_flat(lambda count: rename_a_file(1, count), 20)


def rename_a_folder(folder_count: int) -> int:
    with TemporaryDirectory() as root:
        disk = RealDisk(Path(root), open_files_max=10)
        files = []
        for number in range(folder_count):
            disk.make_folder(f"t-{number}")
            files.append(disk.open(f"t-{number}/log", create=True))
        count = steps(lambda: disk.rename("t-0", "t-0-delete"))
        assert files[0].path == "t-0-delete/log"
        disk.close()
        return count


def test_a_deletion_costs_the_same_however_many_folders_are_open() -> None:
    assert_stays_flat(rename_a_folder, 20)


def roll_with_producers(producer_count: int) -> int:
    log = open_simulated(SimulatedDisk())
    append(log, b"a")
    batches = [RecordedBatch(0, 0, 0, NOW_MS)]
    log.producers.restore(
        ProducerState(number, 0, 0, NOW_MS, None, list(batches)) for number in range(producer_count)
    )
    return steps(lambda: log.roll(log.end_offset))


def test_a_roll_costs_the_loop_the_same_however_many_producers_there_are() -> None:
    """Their snapshot is made by the thread that syncs."""
    assert_stays_flat(roll_with_producers, 200)


def look_for_aborted_transactions_again(entry_count: int) -> int:
    """Search indexes of less than a block, behind a transaction that was open for long."""
    indexes = [TransactionIndex(SimulatedDisk(), f"{number}.txnindex") for number in range(20)]
    for index in indexes:
        for number in range(entry_count):
            index.append(AbortedTransaction(1, 2 * number + 10, 2 * number + 11, 0))
    assert search(indexes, 0, 5) == []
    return steps(lambda: search(indexes, 0, 5, unread_max=0))


def test_a_second_look_at_aborted_transactions_reads_no_entries() -> None:
    assert BLOCK_ENTRIES > 8 * 30
    assert_stays_flat(look_for_aborted_transactions_again, 30)


def expire_some(producer_count: int) -> int:
    log = open_simulated(SimulatedDisk())
    log.producers.restore(
        ProducerState(number, last_timestamp=NOW_MS) for number in range(producer_count)
    )
    parts = log.producers.expire_in_parts(NOW_MS + 1, 1)
    return steps(lambda: next(parts))


def test_one_part_of_an_expiry_costs_the_same_however_many_producers_there_are() -> None:
    assert_stays_flat(expire_some, 10_000)


def topics(count: int) -> Node:
    """Return a node with so many topics; its disk is a simulated one."""
    node = Node(SimulatedDisk(), ROLLED)

    async def create() -> None:
        for number in range(count):
            node.create(TopicName(f"t{number}"))
        await node.replicas.settle()
        assert len(node.replicas) == count

    node.run(create())
    return node


def steps_of_outcome(node: Node, *events: Event) -> int:
    count = 0

    async def change() -> None:
        nonlocal count
        count = steps(lambda: node.replicas.on_outcome(Outcome(1, events)))

    node.run(change())
    return count


def change_one_topic(topic_count: int) -> int:
    changed = ConfigsChanged(ResourceType.TOPIC, "t0", ())
    return steps_of_outcome(topics(topic_count), changed)


def test_a_change_of_a_topics_configs_costs_the_same_however_many_partitions_there_are() -> None:
    assert_stays_flat(change_one_topic, 20)


def test_changes_of_many_topics_are_applied_in_parts() -> None:
    at_once = topic_settings.PARTITIONS_A_TURN // topic_settings.LOOKUP_COST
    node = topics(4 * at_once)
    node.lookups = 0
    names = [f"t{number}" for number in range(4 * at_once)]
    events = [ConfigsChanged(ResourceType.TOPIC, name, ()) for name in names]

    async def change() -> None:
        for event in events:
            node.replicas.on_outcome(Outcome(1, (event,)))
        assert node.lookups <= at_once
        while node.lookups < len(names):
            before = node.lookups
            await asyncio.sleep(0)
            assert before < node.lookups <= before + at_once

    node.run(change())


def upkeep_of(node: Node) -> Upkeep:
    broker: Any = SimpleNamespace(
        replicas=node.replicas, folder=node.folder, clock=Clock(), counters=Counters()
    )
    return Upkeep(broker)


def most_steps_in_a_turn(work: Coroutine[Any, Any, object]) -> int:
    """Drive work that waits for nothing but its turn."""
    most, is_done = 0, False

    def take_a_turn() -> None:
        nonlocal is_done
        try:
            assert work.send(None) is None
        except StopIteration:
            is_done = True

    while not is_done:
        most = max(most, steps(take_a_turn))
    return most


@pytest.mark.parametrize("kind", ["run_retention", "run_flushes", "run_producer_expiry"])
def test_a_turn_of_the_upkeep_costs_the_same_however_many_partitions_there_are(kind: str) -> None:
    def cost(partition_count: int) -> int:
        return most_steps_in_a_turn(getattr(upkeep_of(topics(partition_count)), kind)())

    assert_stays_flat(cost, 2 * upkeep.PARTITIONS_A_TURN)


def test_a_turn_of_the_choice_what_to_compact_costs_the_same() -> None:
    def cost(partition_count: int) -> int:
        broker: Any = SimpleNamespace(
            replicas=topics(partition_count).replicas, clock=Clock(), counters=Counters()
        )
        return most_steps_in_a_turn(Compactor(broker).choose())

    assert_stays_flat(cost, 2 * compactor.PLANS_A_TURN)


def test_those_who_wait_for_a_deleted_topic_are_told_in_parts() -> None:
    node = topics(1)
    count = 3 * replicas.TOLD_A_TURN
    listener = Listener()
    name = TopicName("wide")

    async def delete() -> None:
        node.create(name, partition_count=count)
        await node.replicas.settle()
        node.replicas.listeners.append(listener)
        node.delete(name)
        assert all(node.replicas.find(name, index) is None for index in range(count))
        assert len(listener.stopped) == replicas.TOLD_A_TURN
        node.create(name, partition_count=count)
        await node.replicas.settle()

    node.run(delete())
    assert len(listener.stopped) == count
    assert listener.leading_after == count, (
        "the old ones are gone for everybody before new ones are"
    )


class Listener:
    """Notes what it is told of partitions."""

    def __init__(self) -> None:
        self.stopped: list[Partition] = []
        self.leading_after = 0
        """Of how many partitions it was told that they are gone before the first new one came."""

    def on_leading(self, partition: Partition) -> None:
        self.leading_after = self.leading_after or len(self.stopped)

    def on_following(self, partition: Partition) -> None:
        raise AssertionError

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        assert is_deleted
        self.stopped.append(partition)
