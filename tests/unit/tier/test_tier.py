"""A node's tier: which partitions it looks at, what it follows, and how it starts and stops."""

import asyncio

from msgspec.structs import replace

from headrace.loop.slices import run_whole
from headrace.remote.layout import topic_key
from headrace.remote.topic_manifest import decode_manifest
from headrace.tier.read_limits import ReadLimits
from headrace.tier.reading import RemoteReader
from headrace.tier.status import describe_tier
from tests.unit.tier.logs import until
from tests.unit.tier.tier_nodes import (
    LOG_SETTINGS,
    ORDERS,
    TOPIC,
    TOPIC_ID,
    KnownTopics,
    TierNode,
    World,
    run_tier,
    running,
    segment_objects,
)

NOT_TIERED = replace(LOG_SETTINGS, is_tiered=False, is_copied=False)
KEY = topic_key(TOPIC_ID)


def test_partitions_are_looked_at_regularly() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.tier.start()
            node.produce(20)
            await node.log.flush()
            began = asyncio.get_running_loop().time()
            await until(lambda: node.finished == node.sealed)
            assert 29 < asyncio.get_running_loop().time() - began < 60

    run_tier(main())


def test_a_topic_enters_the_tier_when_its_configs_say_so() -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world, settings=NOT_TIERED)
        await node.metadata.start()
        node.become(epoch=0)
        node.produce(20)
        await node.run()
        assert not world.store.objects
        node.log.change_settings(LOG_SETTINGS)
        await node.look()
        await node.ready()
        await node.look()
        assert node.finished == node.sealed
        await node.stop()

    run_tier(main())


def test_a_topic_that_has_left_is_not_followed_any_more() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(20)
            await node.run()
            node.log.change_settings(replace(NOT_TIERED, remote_delete_on_disable=True))
            await node.look()
            assert not node.segments
            node.log.change_settings(NOT_TIERED)
            await node.look()
            assert ORDERS.key not in node.tier.tiered
            await until(lambda: not node.metadata.is_ready(ORDERS.key))

    run_tier(main())


def test_a_topic_that_comes_back_is_copied_again() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(20)
            await node.run()
            node.log.change_settings(replace(NOT_TIERED, remote_delete_on_disable=True))
            await node.look()
            assert not node.segments
            node.log.change_settings(LOG_SETTINGS)
            await node.look()
            await node.look()
            assert node.finished == node.sealed

    run_tier(main())


def test_nothing_happens_while_the_metadata_is_not_ready() -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world)
        node.become(epoch=0)
        node.produce(20)
        await node.run()
        assert not world.store.objects
        assert node.log.remote_end_offset == 0
        await node.stop()

    run_tier(main())


def test_a_stop_leaves_a_copy_that_the_next_life_cleans_up() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.log.flush()
            world.store.slow_down(1000)
            await node.tier.look()
            await until(lambda: bool(world.store.calls))
        world.store.heal()
        async with running(world, disk=node.disk, epoch=1) as again:
            await again.run()
            await again.run()
            assert again.finished == again.sealed
            assert len(segment_objects(world)) == len(again.sealed)

    run_tier(main())


def test_the_store_has_a_description_of_the_topic() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            manifest = decode_manifest(world.store.objects[KEY], KEY)
            assert (manifest.id, manifest.name, manifest.partitions) == (TOPIC_ID, TOPIC, 1)
            assert manifest.configs == {"remote.storage.enable": "true"}
            puts = world.store.counts.puts
            await node.run()
            assert world.store.counts.puts == puts
            before = set(world.store.objects)
            node.produce(10)
            await node.run()
            written = set(world.store.objects) - before
            assert written
            assert world.store.counts.puts == puts + len(written)  # and not the description again
            world.topics.partition_count = 5
            world.topics.own_configs = {"remote.storage.enable": "true", "retention.ms": "7"}
            await node.run()
            manifest = decode_manifest(world.store.objects[KEY], KEY)
            assert manifest.partitions == 5
            assert manifest.configs["retention.ms"] == "7"

    run_tier(main())


def test_a_topic_without_records_in_the_tier_is_not_described() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            await node.run()
            # Nothing would find it if the topic were deleted now.
            assert not world.store.objects

    run_tier(main())


def test_a_description_that_was_written_after_its_topic_was_deleted_goes() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            world.quorum_topics = KnownTopics()
            world.quorum_topics.ids = {}  # this node has not heard of it yet
            node.produce(20)
            await node.run()
            assert KEY not in world.store.objects

    run_tier(main())


def test_a_new_leader_does_not_write_a_description_that_is_there() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
        puts = world.store.counts.puts
        async with running(world, disk=node.disk, epoch=1) as again:
            await again.run()
        assert world.store.counts.puts == puts

    run_tier(main())


def test_a_damaged_description_is_replaced() -> None:
    async def main() -> None:
        world = World()
        world.store.write(KEY, b"{")
        async with running(world) as node:
            node.produce(20)
            await node.run()
            assert decode_manifest(world.store.objects[KEY], KEY).name == TOPIC

    run_tier(main())


def test_the_status_says_what_there_is() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            reader = RemoteReader(
                node.metadata, node.objects, node.disk, ReadLimits(), now_ms=lambda: world.now_ms
            )

            def describe() -> object:
                return run_whole(
                    describe_tier(node.id, node.tier, reader, node.metadata, uptime_ms=1000)
                )

            (row,) = describe().partitions  # type: ignore[attr-defined]
            sizes = [segment.size_bytes for segment in node.log.segments[:-1]]
            assert (row.lag_segments, row.lag_bytes) == (len(sizes), sum(sizes))
            world.store.go_away()
            await node.run()
            (row,) = describe().partitions  # type: ignore[attr-defined]
            assert "away" in row.problem
            world.store.come_back()
            await until(lambda: node.finished == node.sealed)
            await node.run()
            status = describe()
            (row,) = status.partitions  # type: ignore[attr-defined]
            assert (row.topic, row.partition, row.is_leader, row.is_ready) == (TOPIC, 0, True, True)
            assert (row.lag_segments, row.lag_bytes, row.problem) == (0, 0, None)
            assert (row.remote_segments, row.remote_bytes) == (len(sizes), sum(sizes))
            assert row.remote_end_offset == node.log.segments[-1].base_offset
            assert status.copied.bytes == sum(sizes)  # type: ignore[attr-defined]
            assert status.store == world.store.url  # type: ignore[attr-defined]
            await reader.close()

    run_tier(main())
