"""Metadata of remote segments of a cluster: its topic is on other nodes, and its leaders move."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.client.settings import ClientSettings
from headrace.ids import REMOTE_METADATA_TOPIC as TOPIC
from headrace.remote.segments import RemoteSegment, SegmentState, TopicIdPartition
from headrace.testing.cluster import TestCluster
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.topic_event_log import TopicEventLog
from tests.unit.remote.segments import partition, segment, update

FOLLOWED = [partition(index) for index in range(12)]
SETTINGS = ClientSettings(request_timeout_ms=5_000, api_timeout_ms=5_000)


async def create() -> None:
    raise AssertionError("the topic is there")


@asynccontextmanager
async def manager(bootstrap: str, followed: list[TopicIdPartition]) -> AsyncIterator[TopicMetadata]:
    """Run the manager of a node, which knows only its own address."""
    log = TopicEventLog(lambda: bootstrap, create, settings=SETTINGS)
    await log.start()
    metadata = TopicMetadata(log, waits=MetadataWaits(consume_wait_ms=90_000))
    await metadata.start()
    metadata.follow(followed)
    try:
        yield metadata
    finally:
        await metadata.stop()
        await log.stop()


async def copy(metadata: TopicMetadata, one: RemoteSegment) -> None:
    await metadata.add(one)
    await metadata.update(update(one, SegmentState.COPY_FINISHED))


async def copy_all(metadata: TopicMetadata, turn: int) -> None:
    """Copy the next segment of every partition, as its leader does."""
    start = turn * 100
    await asyncio.gather(
        *(
            copy(metadata, segment(turn * 100 + number + 1, start, start + 99, of=known))
            for number, known in enumerate(FOLLOWED)
        )
    )


async def check_all(metadata: TopicMetadata, turns: int) -> None:
    for known in FOLLOWED:
        await metadata.catch_up(known.key)
        starts = [one.start_offset for one in metadata.segments(known.key)]
        assert starts == [turn * 100 for turn in range(turns)]
        assert metadata.highest_offset(known.key, 0) == turns * 100 - 1
    assert metadata.refused_count == 0


def test_managers_follow_the_leaders_of_their_topic() -> None:
    with TestCluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, 6, {"min.insync.replicas": "2"}, replicas=3)
        addresses = [node.bootstrap for node in cluster.nodes.values()]

        async def main() -> None:
            async with (
                manager(addresses[0], FOLLOWED) as first,
                manager(addresses[1], FOLLOWED) as second,
            ):
                await copy_all(first, 0)
                await check_all(second, 1)
                await asyncio.to_thread(cluster.kill, 3)
                await copy_all(second, 1)
                await check_all(first, 2)
                await asyncio.to_thread(cluster.restart, 3)
                await copy_all(first, 2)
                await check_all(second, 3)
                async with manager(addresses[2], FOLLOWED) as third:
                    await check_all(third, 3)

        asyncio.run(main())
