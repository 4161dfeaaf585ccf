"""Topics that were deleted: nothing of them stays in the tier, whatever happens on the way."""

import asyncio

import pytest

from headrace.ids import REMOTE_METADATA_TOPIC, PartitionIndex, TopicId
from headrace.loop.counters import Counters
from headrace.remote.leases import Lease, end_lease, whole_topic, write_lease
from headrace.remote.segments import DeleteState, InvalidTransition
from headrace.remote.store import StoreError
from headrace.replication.partition import Partition
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import open_simulated
from tests.unit.tier.logs import until
from tests.unit.tier.tier_nodes import (
    HOUR_MS,
    ORDERS,
    TOPIC,
    TOPIC_ID,
    KnownTopics,
    TierNode,
    World,
    hidden,
    run_tier,
    running,
    segment_objects,
)


async def lead_metadata(node: TierNode) -> None:
    """Let a node lead the partition of the metadata that has the events of `orders`."""
    index = PartitionIndex(node.metadata.partition_of(ORDERS.key))
    partition = Partition(
        REMOTE_METADATA_TOPIC,
        index,
        TopicId(bytes(16)),
        open_simulated(SimulatedDisk()),
        Counters().topic(REMOTE_METADATA_TOPIC),
        around=node.around,
    )
    partition.is_leader = True
    node.tier.on_leading(partition)
    await asyncio.sleep(0)
    await until(lambda: int(index) in node.metadata.assigned)
    await until(lambda: node.metadata.is_ready(ORDERS.key))


async def copied(world: World) -> TierNode:
    """Return a node that has copied some segments and then lost its topic."""
    node = TierNode(world)
    await node.start()
    node.produce(20)
    await node.run()
    assert segment_objects(world)
    assert len(world.store.objects) > len(segment_objects(world)) * 5
    world.topics.ids.clear()
    node.stop_partition(is_deleted=True)
    return node


def test_everything_of_a_deleted_topic_goes() -> None:
    async def main() -> None:
        world = World()
        node = await copied(world)
        await lead_metadata(node)
        await node.tier.sweep()
        assert not world.store.objects
        assert node.metadata.keys_in(node.metadata.partition_of(ORDERS.key)) == []
        assert node.tier.deleted_topics.swept == 1
        await node.stop()

    run_tier(main())


def test_only_the_leader_of_the_metadata_sweeps() -> None:
    async def main() -> None:
        world = World()
        node = await copied(world)
        stored = dict(world.store.objects)
        await node.tier.sweep()
        assert world.store.objects == stored
        await node.stop()

    run_tier(main())


def test_a_topic_that_the_image_has_not_heard_of_yet_is_no_deleted_one() -> None:
    async def main() -> None:
        world = World()
        node = await copied(world)
        world.quorum_topics = KnownTopics()
        await lead_metadata(node)
        stored = dict(world.store.objects)
        await node.tier.sweep()
        assert world.store.objects == stored
        assert node.metadata.delete_state(ORDERS.key) is None
        await node.stop()

    run_tier(main())


@pytest.mark.parametrize("steps", range(12))
def test_a_crash_in_the_middle_leaks_nothing(steps: int) -> None:
    async def main() -> None:
        world = World()
        node = await copied(world)
        await lead_metadata(node)
        publish, done = world.events.publish, 0

        async def count(partition: int, event: bytes) -> int:
            nonlocal done
            if done == steps:
                raise asyncio.CancelledError
            done += 1
            return await publish(partition, event)

        world.events.publish = count  # type: ignore[method-assign]
        task = asyncio.ensure_future(node.tier.sweep())
        await asyncio.wait([task])
        world.events.publish = publish  # type: ignore[method-assign]
        await node.stop()
        again = TierNode(world, 2)
        await again.metadata.start()
        await lead_metadata(again)
        await again.tier.sweep()
        assert not world.store.objects
        assert again.metadata.keys_in(again.metadata.partition_of(ORDERS.key)) == []
        await again.stop()

    run_tier(main())


def test_a_store_that_fails_is_asked_again() -> None:
    async def main() -> None:
        world = World()
        node = await copied(world)
        await lead_metadata(node)
        world.store.fail("delete", times=2)
        with pytest.raises(StoreError):
            await node.tier.sweep()
        assert node.metadata.delete_state(ORDERS.key) is DeleteState.STARTED
        await node.tier.sweep()
        assert not world.store.objects
        await node.stop()

    run_tier(main())


def test_a_lease_delays_the_end() -> None:
    async def main() -> None:
        world = World()
        node = await copied(world)
        await lead_metadata(node)
        lease = Lease(
            id="spark",
            holder="a test",
            expires_ms=world.now_ms + HOUR_MS,
            topics=(whole_topic(TOPIC_ID, TOPIC),),
        )
        await write_lease(world.store, lease)
        stored = segment_objects(world)
        await node.tier.sweep()
        assert segment_objects(world) == hidden(stored)
        assert node.metadata.delete_state(ORDERS.key) is DeleteState.STARTED
        await end_lease(world.store, lease.id)
        await node.tier.sweep()
        assert not world.store.objects
        await node.stop()

    run_tier(main())


def test_a_copy_that_was_under_way_leaves_nothing() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node, running(world, 2, leader=1) as sweeping:
            node.produce(6)
            await node.log.flush()
            world.store.slow_down(1000)
            await node.tier.look()
            await until(lambda: bool(node.segments))
            world.topics.ids.clear()  # node 1 has not heard of that yet
            await lead_metadata(sweeping)
            await sweeping.tier.sweep()
            await node.settle()
            assert not segment_objects(world)
            with pytest.raises(InvalidTransition):
                await _announce_mark_twice(sweeping)

    run_tier(main())


async def _announce_mark_twice(node: TierNode) -> None:
    """Begin a deletion, then go back to its beginning."""
    step = node.tier.deleted_topics._step
    for state in (DeleteState.MARKED, DeleteState.STARTED, DeleteState.MARKED):
        await step(ORDERS, state)


def test_a_copy_that_begins_after_the_sweep_is_swept_by_the_next() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node, running(world, 2, leader=1) as sweeping:
            node.produce(20)
            await node.log.flush()
            world.topics.ids.clear()
            await lead_metadata(sweeping)
            await sweeping.tier.sweep()
            await node.run()  # it has not heard of the deletion
            assert segment_objects(world)
            node.stop_partition(is_deleted=True)
            await sweeping.tier.sweep()
            assert not world.store.objects

    run_tier(main())
