"""A leader whose log is empty takes over what the tier has."""

import asyncio

import pytest
from msgspec.structs import replace

from headrace.log.errors import ReadOnlyLog
from headrace.log.truncating import Cut
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.repair import TOOL_ID
from headrace.remote.segments import PartitionKey, SegmentEpoch, SegmentState
from headrace.replication.partition import Partition
from headrace.tier.segment_files import new_segment_id
from headrace.tier.status import describe_partition
from tests.unit.log.logs import append
from tests.unit.tier.test_expiring import announce
from tests.unit.tier.tier_nodes import TierNode, World, run_tier, running


def prepare(node: TierNode) -> None:
    """Let cuts of the node's log be finished."""

    async def finish(cut: Cut) -> bool:
        cut.run()
        cut.finish()
        return True

    def start(_: Partition, cut: Cut) -> asyncio.Task[bool]:
        return asyncio.get_running_loop().create_task(finish(cut))

    node.tier.adopter.start_cut = start


async def look(node: TierNode) -> None:
    await node.look()
    await node.tier.adopters.settle()


async def copied(world: World) -> tuple[int, int]:
    """Run a node that copies its log, and lose its disk; return the ends of what was copied."""
    async with running(world) as node:
        node.produce(30)
        await node.run()
        return node.finished[0][0], node.finished[-1][1] + 1


def test_the_log_begins_behind_the_tier_and_goes_on_there() -> None:
    async def main() -> None:
        world = World()
        start, end = await copied(world)
        async with running(world, 2, epoch=3) as node:
            prepare(node)
            before = node.finished
            await look(node)
            log = node.log
            assert (log.start_offset, log.local_start_offset, log.end_offset) == (start, end, end)
            assert log.high_watermark == end
            assert [tuple(each) for each in log.epochs.entries()] == [(0, 0), (3, end)]
            assert node.finished == before
            node.produce(30)
            await node.run()
            assert node.finished[: len(before)] == before
            assert node.finished[len(before)][0] == end
            assert node.tier.adopters.failures == 0

    run_tier(main())


def test_nothing_is_taken_over_or_deleted_while_a_restore_is_not_finished() -> None:
    async def main() -> None:
        world = World()
        await copied(world)
        async with running(world, 2, epoch=1) as node:
            prepare(node)
            last = node.segments[-1]
            await node.metadata.add(
                replace(
                    last,
                    id=new_segment_id(),
                    start_offset=last.next_offset,
                    end_offset=last.next_offset + 9,
                    epochs=(SegmentEpoch(0, last.next_offset),),
                    broker_id=TOOL_ID,
                    state=SegmentState.COPY_STARTED,
                    custom_metadata=None,
                )
            )
            before = node.segments
            await look(node)
            assert node.log.end_offset == 0
            assert node.segments == before
            problem = str(describe_partition(node.tier, node.tiered).problem)
            assert "`headrace tier restore` has not finished" in problem

    run_tier(main())


def test_a_restore_that_begins_while_a_new_topic_is_looked_at_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with running(World()) as node:
            catch_up = node.metadata.catch_up

            async def restore_meanwhile(key: PartitionKey) -> None:
                await catch_up(key)
                for first in (0, 10):
                    await announce(node, first, first + 9, broker=TOOL_ID)

            monkeypatch.setattr(node.metadata, "catch_up", restore_meanwhile)
            await node.tier.expirer.expire(node.tiered)
            assert [each.state for each in node.segments] == [SegmentState.COPY_STARTED] * 2

    run_tier(main())


def test_a_tier_with_a_gap_is_not_taken_over_and_nothing_is_deleted() -> None:
    async def main() -> None:
        world = World()
        await copied(world)
        async with running(world, 2, epoch=1) as node:
            prepare(node)
            await announce(node, 1000, 1010, state=SegmentState.COPY_FINISHED)
            before = node.segments
            await look(node)
            assert node.log.end_offset == 0
            assert node.segments == before
            assert "lacks offsets" in str(describe_partition(node.tier, node.tiered).problem)

    run_tier(main())


def test_a_store_that_fails_is_asked_again() -> None:
    async def main() -> None:
        world = World()
        _, end = await copied(world)
        async with running(world, 2, epoch=1) as node:
            prepare(node)
            last = node.segments[-1]
            world.store.fail("get", object_key(last, ObjectKind.LEADER_EPOCHS))
            await look(node)
            assert node.log.end_offset == 0
            assert node.tier.adopters.failures == 1
            await asyncio.sleep(60)
            await look(node)
            assert node.log.end_offset == end

    run_tier(main())


def test_nothing_is_written_before_it_is_known_what_the_tier_has() -> None:
    async def main() -> None:
        world = World()
        _, end = await copied(world)
        async with running(world, 2, epoch=1) as node:
            prepare(node)
            with pytest.raises(ReadOnlyLog):
                append(node.log, b"too early", leader_epoch=1)
            await look(node)
            node.produce(1)
            assert (node.log.local_start_offset, node.log.end_offset) == (end, end + 1)

    run_tier(main())
