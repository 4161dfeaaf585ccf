"""How the log of states stays short: cold snapshots, pruning, and topics that are deleted."""

import asyncio

from headrace.coordinator.machine import Outcome
from headrace.coordinator.shard import Shard
from headrace.errors import KafkaError
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.operations import Beginning, initialize
from headrace.share.state.records import RECORD_TYPES, snapshot
from headrace.share.state.states import ShareStates
from headrace.share.state.upkeep import RECORDS_AT_ONCE_MAX, forget_topic
from headrace.wire.messages.share_snapshot_value import ShareSnapshotValue
from tests.growth.steps import assert_stays_flat, steps
from tests.unit.coordinator.shards import Clock, Journal, run, turn
from tests.unit.share.state.world import ACKNOWLEDGED, OTHER, TOPIC, World, key

COLD_MS = 300_000
SETTINGS = {"share.coordinator.snapshot.update.records.per.snapshot": "3"}


def world_with(*partitions: int) -> World:
    world = World(SETTINGS)
    world.reload()
    for partition in partitions:
        world.begin(partition)
    return world


def test_nothing_is_pruned_that_a_state_needs() -> None:
    world = world_with(0, 1)
    for offset in range(20):
        world.write((offset, offset, ACKNOWLEDGED, 1), partition=1)
    assert world.states.redundant_offset == 0  # the quiet one's snapshot is the first record
    before = dict(world.states.states)
    world.reload()
    assert world.states.states == before


def test_a_quiet_share_partition_does_not_pin_the_log_of_the_others() -> None:
    world = world_with(0, 1)
    for _ in range(4):
        for offset in range(20):
            world.write((offset, offset, ACKNOWLEDGED, 1), partition=1, start=offset)
        world.pass_time(COLD_MS)
    assert world.start_offset > 60
    before = dict(world.states.states)
    world.reload()
    assert world.states.states == before


def test_a_cold_snapshot_says_that_nothing_was_new() -> None:
    world = world_with(0, 1)
    begun_ms = world.now_ms
    world.pass_time(COLD_MS - 1)
    world.begin(1)
    world.pass_time(1)
    value = world.log[-1].value
    assert isinstance(value, ShareSnapshotValue)
    assert (value.create_timestamp, value.write_timestamp) == (begun_ms, world.now_ms)
    assert value.snapshot_epoch == 1
    assert world.of(0).is_cold
    assert not world.of(1).is_cold


def test_a_partition_where_all_are_cold_is_left_alone() -> None:
    world = world_with(0, 1)
    world.pass_time(COLD_MS)
    written = len(world.log)
    world.pass_time(10 * COLD_MS)
    assert len(world.log) == written


def test_updates_of_a_share_partition_are_in_its_cold_snapshot() -> None:
    world = world_with(0)
    world.write((3, 4, ACKNOWLEDGED, 1), start=2, complete=2)
    world.pass_time(2 * COLD_MS)
    assert world.start_offset == len(world.log) - 1
    before = world.of(0)
    world.reload()
    assert world.of(0) == before


def test_everything_is_redundant_when_nothing_is_left() -> None:
    world = world_with(0)
    world.delete(0)
    assert world.states.redundant_offset == len(world.log)


def test_an_update_whose_snapshot_was_pruned_is_no_state() -> None:
    world = world_with(0)
    world.write(start=1)
    world.delete(0)
    world.start_offset = 1
    world.reload()
    assert not world.states.states


def test_a_deleted_topic_takes_its_states_along() -> None:
    world = world_with(0, 1)
    world.begin(2, topic_id=OTHER)
    world.commit(forget_topic(world.states, TOPIC, world.now_ms))
    assert set(world.states.states) == {key(2, topic_id=OTHER)}
    world.reload()
    assert set(world.states.states) == {key(2, topic_id=OTHER)}


def test_a_topic_with_many_states_is_forgotten_in_parts() -> None:
    world = world_with(0)
    begun = world.of(0)
    for group in range(11):
        for partition in range(100):
            where = key(partition, group=f"g{group}")
            world.commit(Outcome((snapshot(where, begun),)))
    outcome = forget_topic(world.states, TOPIC, world.now_ms)
    assert len(outcome.records) == RECORDS_AT_ONCE_MAX
    world.commit(outcome)
    world.pass_time(0)
    assert not world.states.states


def test_states_of_a_topic_that_was_deleted_unseen_go_when_they_are_cold() -> None:
    world = world_with(0)
    world.begin(1, topic_id=OTHER)
    topic = world.image.topic_by_id(TOPIC)
    assert topic is not None
    world.image.remove_topic(topic)
    world.pass_time(COLD_MS)
    assert set(world.states.states) == {key(1, topic_id=OTHER)}


def test_many_large_states_are_not_written_in_one_batch() -> None:
    world = world_with(*range(30))
    for partition in range(30):
        batches = [(2 * each, 2 * each, ACKNOWLEDGED, 1) for each in range(1, 1000)]
        world.write(*batches, partition=partition)
    sizes = []
    world.now_ms += COLD_MS
    while (due_ms := world.machine.next_deadline_ms()) is not None and due_ms <= world.now_ms:
        outcome = world.machine.on_deadline(world.now_ms)
        sizes.append(len(outcome.records))
        world.commit(outcome)
    assert sum(sizes) == 30
    assert max(sizes) < 12


def test_nothing_is_pruned_before_the_snapshot_that_replaces_it_is_committed() -> None:
    async def test(journal: Journal, clock: Clock) -> None:
        world, pruned = World(SETTINGS), list[int | KafkaError]()
        shard: Shard[ShareStatesMachine] = Shard(
            journal,
            lambda: ShareStatesMachine(
                ShareStates(world.settings, lambda: world.image, pruned.append)
            ),
            RECORD_TYPES,
            clock,
        )
        shard.start()
        await shard.loaded()
        beginning = Beginning(0, 0)
        for _ in range(2):
            shard.write(
                lambda machine, now_ms: initialize(machine.state, key(), beginning, now_ms, print),
                print,
            )
            await turn()
            journal.is_replicated = False  # the second snapshot stays with this node
        clock.ms += COLD_MS
        shard.rearm()
        deadline = asyncio.get_running_loop().time() + 10
        while journal.log.end_offset < 3:  # the cold snapshot; pruning is due at the same time
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0)
        await turn()
        assert not pruned
        journal.replicate()
        while not pruned:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0)
        assert pruned[0] == 2
        shard.close()

    run(test)


def test_states_are_known_by_their_topic_through_every_change() -> None:
    world = world_with(0, 1)
    world.delete(0)
    assert list(world.states.keys_of) == [TOPIC]
    world.reload()
    assert world.states.keys_of == {TOPIC: {key(1): None}}
    world.delete(1)
    assert world.states.keys_of == {}


def test_forgetting_a_topic_costs_nothing_for_states_of_others() -> None:
    def forget(count: int) -> int:
        world = world_with(*range(count))
        return steps(lambda: forget_topic(world.states, OTHER, world.now_ms))

    assert_stays_flat(forget, 10)
