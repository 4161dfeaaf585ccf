"""Nodes that share the log of remote metadata, with random changes and faults: all know the same.

Changes are repeated while their outcome is unknown. Whoever reads the whole log afterwards knows
what the others know, and each offset of a finished segment has an answer.
"""

import asyncio
from random import Random

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.remote.segments import (
    DeleteState,
    MetadataEvent,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TierError,
    TopicIdPartition,
)
from headrace.testing.virtual_loop import run_virtual
from headrace.tier.event_log import PublishFailed
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.metadata_partition import OutcomeUnknown
from headrace.tier.ports import NotReady
from tests.unit.remote.segments import delete, partition, segment, update
from tests.unit.tier.logs import FaultyLog

PARTITIONS = [partition(index) for index in range(6)]
NODES = 3
CHANGES = 60
WAITS = MetadataWaits(consume_wait_ms=2_000)


class World:
    """Some nodes and their log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = FaultyLog(3)
        self.nodes: list[TopicMetadata] = []

    async def run(self) -> None:
        self.nodes = [TopicMetadata(self.log, waits=WAITS) for _ in range(NODES)]
        for node in self.nodes:
            await node.start()
            node.follow(PARTITIONS)
        faults = asyncio.create_task(self.make_faults())
        await asyncio.gather(*(self.change(number) for number in range(CHANGES)))
        faults.cancel()
        self.heal()
        late = TopicMetadata(self.log, waits=WAITS)
        await late.start()
        for node in (*self.nodes, late):
            node.follow(PARTITIONS)
            for known in PARTITIONS:
                await node.catch_up(known.key)
        self.check(late)
        for node in (*self.nodes, late):
            await node.stop()

    async def change(self, number: int) -> None:
        """Take a segment through some steps of its life, by nodes that change."""
        random = self.random
        await asyncio.sleep(random.random() * 30)
        known = random.choice(PARTITIONS)
        start = random.randrange(20) * 10
        one = segment(number + 1, start, start + random.choice([9, 19, 29]), of=known)
        if not await self.attempt(one):
            return
        for state in random.choice(
            [
                [],
                [SegmentState.COPY_FINISHED],
                [SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED],
                [SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED],
                [SegmentState.DELETE_FINISHED],
                [SegmentState.COPY_FINISHED, SegmentState.COPY_STARTED],
            ]
        ):
            await self.attempt(update(one, state))
        if random.random() < 0.1:
            for deletion in DeleteState:
                await self.attempt(delete(known, deletion))

    async def attempt(self, event: MetadataEvent) -> bool:
        """Have some node make a change, repeated while its outcome is unknown; False if refused."""
        for _ in range(20):
            try:
                node = self.random.choice(self.nodes)
                if isinstance(event, RemoteSegment):
                    await node.add(event)
                elif isinstance(event, SegmentUpdate):
                    await node.update(event)
                else:
                    await node.delete_partition(event)
            except (OutcomeUnknown, NotReady):
                continue
            except PublishFailed:
                await asyncio.sleep(0.5)
                continue
            except TierError:
                return False
            return True
        return False

    async def make_faults(self) -> None:
        random, log = self.random, self.log
        while True:
            await asyncio.sleep(random.random() * 3)
            fault = random.randrange(6)
            if fault == 0:
                log.is_delivering.clear()
            elif fault == 1:
                log.has_bounds = False
            elif fault == 2:
                log.is_publishing = False
            elif fault == 3:
                log.reading_error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a fault")
            elif fault == 4:
                some: list[TopicIdPartition] = random.sample(PARTITIONS, 2)
                random.choice(self.nodes).follow(some)
            else:
                self.heal()

    def heal(self) -> None:
        self.log.is_delivering.set()
        self.log.has_bounds = self.log.is_publishing = True
        self.log.reading_error = None

    def check(self, late: TopicMetadata) -> None:
        for known in PARTITIONS:
            key = known.key
            expected = list(late.segments(key))
            for node in self.nodes:
                assert list(node.segments(key)) == expected
                assert node.delete_state(key) == late.delete_state(key)
                assert node.unreferenced(key) == late.unreferenced(key)
                for offset in range(0, 230, 5):
                    assert node.find(key, 0, offset) == late.find(key, 0, offset)
            covered = {
                offset
                for one in expected
                if one.state == SegmentState.COPY_FINISHED
                for offset in range(one.start_offset, one.next_offset)
            }
            for offset in range(230):
                assert (late.find(key, 0, offset) is not None) == (offset in covered)


@pytest.mark.parametrize("seed", range(30))
def test_all_nodes_know_the_same_whatever_fails(seed: int) -> None:
    run_virtual(World(seed).run())
