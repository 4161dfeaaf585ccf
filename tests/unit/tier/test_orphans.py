"""Objects that belong to no segment: leaders delete them, and nothing that may be needed."""

from collections.abc import AsyncIterator

import pytest

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log.cutting import apply_retention
from headrace.remote.layout import partition_prefix, topic_key
from headrace.remote.leases import Lease, end_lease, whole_topic, write_lease
from headrace.remote.segments import TopicIdPartition
from headrace.remote.store import StoredObject
from headrace.testing.disk import SimulatedDisk
from headrace.tier import orphans
from headrace.tier.event_log import InProcessEventLog
from tests.unit.tier.test_deleted_topics import copied, lead_metadata
from tests.unit.tier.tier_nodes import (
    HOUR_MS,
    ORDERS,
    TOPIC,
    TOPIC_ID,
    TierNode,
    World,
    is_clean,
    run_tier,
    running,
    segment_objects,
)

DAY_MS = 24 * HOUR_MS
ID = TopicId(b"sixteen bytes id")
KINDS = (".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint")


async def leave_orphan(
    world: World, start_offset: int = 0, partition: TopicIdPartition = ORDERS
) -> list[str]:
    """Write what a deposed leader leaves that dies over its copy; return the keys."""
    stem = f"{partition_prefix(partition)}{start_offset:020d}-{'A' * 21}Q"
    keys = [stem + kind for kind in KINDS]
    for key in keys:
        await world.store.put(key, b"some bytes", 10)
    return keys


def test_what_a_deposed_leader_left_goes_when_it_is_old() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            await leave_orphan(world)
            world.now_ms += DAY_MS
            await node.tier.sweep_orphans()
            assert not is_clean(world, node), "it may be a copy that is not announced yet"
            world.now_ms += 1
            await node.tier.sweep_orphans()
            assert is_clean(world, node)
            assert node.tier.orphans.deleted == len(KINDS)
            assert node.tier.orphans.deleted_bytes == 10 * len(KINDS)

    run_tier(main())


def test_a_copy_that_another_leader_announced_meanwhile_is_no_orphan() -> None:
    """Not even if the clocks differ so much that its objects look old."""

    async def main() -> None:
        world = World()
        async with running(world) as node, running(world, 2) as other:
            node.produce(20)
            other.produce(20)
            list_objects = world.store.list_objects

            async def list_late(prefix: str = "") -> AsyncIterator[list[StoredObject]]:
                world.now_ms -= 2 * DAY_MS
                await other.run()
                world.now_ms += 2 * DAY_MS
                async for page in list_objects(prefix):
                    yield page

            world.store.list_objects = list_late  # type: ignore[method-assign]
            await node.tier.orphans.sweep_partition(node.tiered)
            assert segment_objects(world)
            assert is_clean(world, node)

    run_tier(main())


def test_nothing_goes_if_the_events_are_lost() -> None:
    """Then the objects are all there is of the records that left the disk."""

    async def main() -> None:
        world = World()
        disk = SimulatedDisk()
        async with running(world, disk=disk) as node:
            node.produce(40)
            await node.run()
            world.now_ms += 2 * HOUR_MS
            assert apply_retention(node.log, world.now_ms)
            assert node.log.start_offset < node.tiered.disk_start
        stored = dict(world.store.objects)
        world.events = InProcessEventLog(3)
        world.now_ms += 2 * DAY_MS
        async with running(world, disk=disk) as node:
            await node.tier.sweep_orphans()
            assert world.store.objects == stored

    run_tier(main())


def test_what_somebody_reads_stays() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            keys = await leave_orphan(world)
            world.now_ms += DAY_MS + 1
            lease = Lease(
                id="a",
                holder="a reader",
                expires_ms=world.now_ms + HOUR_MS,
                topics=(whole_topic(TOPIC_ID, TOPIC),),
            )
            await write_lease(world.store, lease)
            await node.tier.sweep_orphans()
            assert set(keys) <= world.store.objects.keys()
            await end_lease(world.store, "a")
            await node.tier.sweep_orphans()
            assert is_clean(world, node)

    run_tier(main())


def test_what_begins_behind_the_end_of_the_log_stays() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            keys = await leave_orphan(world, 20)
            world.now_ms += DAY_MS + 1
            await node.tier.sweep_orphans()
            assert set(keys) <= world.store.objects.keys()

    run_tier(main())


async def deleted_from_the_tier(world: World) -> TierNode:
    """Return a node that has deleted all of a topic that was deleted."""
    node = await copied(world)
    await lead_metadata(node)
    node.tier._lead_metadata(0, is_led=True)
    await node.tier.sweep()
    assert not world.store.objects
    return node


def test_what_is_left_of_a_topic_that_is_gone_goes_too() -> None:
    async def main() -> None:
        world = World()
        node = await deleted_from_the_tier(world)
        await leave_orphan(world)
        await world.store.put(topic_key(ID), b"{}", 2)
        await world.store.put(".headrace/cluster.json", b"{}", 2)
        await node.tier.sweep_orphans()
        assert len(world.store.objects) == len(KINDS) + 2, "they are new"
        world.now_ms += DAY_MS + 1
        await node.tier.sweep_orphans()
        assert list(world.store.objects) == [".headrace/cluster.json"]
        assert node.tier.orphans.deleted == len(KINDS) + 1
        await node.stop()

    run_tier(main())


def test_what_an_image_that_went_back_in_time_does_not_know_stays() -> None:
    """A topic that has objects and a description was not deleted: the image has forgotten it."""

    async def main() -> None:
        world = World()
        node = await deleted_from_the_tier(world)
        await leave_orphan(world)
        await world.store.put(topic_key(TOPIC_ID), b"{}", 2)
        world.now_ms += DAY_MS + 1
        await node.tier.sweep_orphans()
        assert len(world.store.objects) == len(KINDS) + 1
        await node.stop()

    run_tier(main())


def test_what_stays_keeps_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(orphans, "FOUND_MAX", len(KINDS))
        world = World()
        node = await deleted_from_the_tier(world)
        kept = await leave_orphan(world)
        await world.store.put(topic_key(TOPIC_ID), b"{}", 2)
        gone = TopicIdPartition(ID, TopicName("payments"), PartitionIndex(0))
        await leave_orphan(world, partition=gone)
        world.now_ms += DAY_MS + 1
        await node.tier.sweep_orphans()
        assert set(world.store.objects) == {*kept, topic_key(TOPIC_ID)}
        await node.stop()

    run_tier(main())
