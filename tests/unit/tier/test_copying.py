"""Copying segments to the tier: what goes, what does not yet, and what is left when it fails."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from headrace.ids import BrokerId
from headrace.log.checkpoints import parse_epochs
from headrace.log.cutting import apply_retention, delete_records
from headrace.log.epochs import EpochStart
from headrace.log.producer_snapshots import decode_snapshot
from headrace.records.header import read_headers
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.segments import RemoteSegment, SegmentEpoch, SegmentState, SegmentUpdate
from headrace.remote.store import StoreError
from tests.unit.log.logs import end_transaction
from tests.unit.tier.logs import until
from tests.unit.tier.tier_nodes import (
    HOUR_MS,
    LOG_SETTINGS,
    TierNode,
    World,
    is_clean,
    run_tier,
    running,
    segment_objects,
)

STARTED, FINISHED, DELETING, DELETED = SegmentState


def test_finished_segments_are_copied_with_all_their_files() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.become(epoch=3)
            await node.ready()
            node.log.release()
            node.produce(30)
            await node.run()
            assert node.finished == node.sealed
            assert len(node.sealed) > 3
            assert node.log.remote_end_offset == node.log.segments[-1].base_offset
            assert is_clean(world, node)
            for segment, local in zip(node.segments, node.log.segments, strict=False):
                data = world.store.objects[object_key(segment, ObjectKind.LOG)]
                assert data == local.file.read(0, local.size_bytes)
                assert segment.size_bytes == len(data)
                offsets = [header.last_offset for _, header in read_headers(memoryview(data))]
                assert offsets[-1] == segment.end_offset
                assert segment.max_timestamp_ms == world.now_ms
                assert segment.epochs == (SegmentEpoch(3, segment.start_offset),)
                assert segment.is_txn_index_empty
                index = world.store.objects[object_key(segment, ObjectKind.TIME_INDEX)]
                assert index == node.disk.read(local.path(".timeindex"))
                epochs = world.store.objects[object_key(segment, ObjectKind.LEADER_EPOCHS)]
                assert parse_epochs(epochs.decode()) == [EpochStart(3, 0)]

    run_tier(main())


def test_leader_epochs_and_producers_go_with_a_segment() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(producer_id=7, producer_epoch=0, base_sequence=0)
            node.become(epoch=2)
            node.produce(producer_id=8, producer_epoch=0, base_sequence=0)
            node.become(epoch=5)
            await node.ready()
            node.produce(12)
            await node.run()
            first = node.segments[0]
            assert first.epochs == (SegmentEpoch(0, 0), SegmentEpoch(2, 1), SegmentEpoch(5, 2))
            assert node.segments[1].epochs == (SegmentEpoch(5, first.next_offset),)
            snapshot = world.store.objects[object_key(first, ObjectKind.PRODUCER_SNAPSHOT)]
            assert [each.producer_id for each in decode_snapshot(snapshot, "there")] == [7, 8]
            epochs = world.store.objects[object_key(node.segments[-1], ObjectKind.LEADER_EPOCHS)]
            assert parse_epochs(epochs.decode()) == node.log.epochs.entries()

    run_tier(main())


def test_a_segment_is_copied_whose_first_records_were_deleted() -> None:
    async def main() -> None:
        world = World()
        async with running(world, epoch=3) as node:
            node.log.release()
            node.produce(30)
            await node.log.flush()
            base = node.log.segments[1].base_offset
            delete_records(node.log, base + 1)  # its epochs begin there now
            await node.run()
            assert node.finished == node.sealed
            assert node.segments[0].start_offset == base
            assert node.segments[0].epochs == (SegmentEpoch(3, base + 1),)
            assert node.log.remote_end_offset == node.log.segments[-1].base_offset

    run_tier(main())


def test_a_segment_that_was_just_finished_goes_with_producers_that_no_flush_has_written() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(producer_id=7, producer_epoch=0, base_sequence=0)
            await node.log.flush()
            node.log.roll(node.log.end_offset)
            await node.run()
            snapshot = world.store.objects[
                object_key(node.segments[0], ObjectKind.PRODUCER_SNAPSHOT)
            ]
            assert [each.producer_id for each in decode_snapshot(snapshot, "there")] == [7]

    run_tier(main())


def test_a_log_that_a_crash_ended_is_copied_with_producers_read_again() -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world)
        node.become(epoch=0)
        for sequence in range(20):
            node.produce(producer_id=7, producer_epoch=0, base_sequence=sequence)
        await node.log.flush()
        node.disk.crash()
        async with running(
            world, disk=node.disk, is_clean=False, recovery_point=0, epoch=1
        ) as again:
            await again.run()
            assert again.finished == again.sealed
            for segment in again.segments:
                key = object_key(segment, ObjectKind.PRODUCER_SNAPSHOT)
                (state,) = decode_snapshot(world.store.objects[key], key)
                assert state.batches[-1].last_offset == segment.end_offset

    run_tier(main())


def test_producers_of_segments_that_left_the_disk_meanwhile_are_copied_after_a_crash() -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world)
        node.become(epoch=0)
        node.produce(producer_id=7, producer_epoch=0, base_sequence=0)
        for sequence in range(20):
            node.produce(producer_id=8, producer_epoch=0, base_sequence=sequence)
        await node.log.flush()
        node.disk.crash()
        settings = msgspec.structs.replace(LOG_SETTINGS, local_retention_bytes=1)
        async with running(
            world, disk=node.disk, is_clean=False, recovery_point=0, epoch=1, settings=settings
        ) as again:
            count = len(again.sealed)
            assert count > 3
            again.metadata.on_changed.append(lambda key: free_disk(again, world))
            await again.run()
            assert len(again.finished) == count
            assert len(again.log.segments) < 3, "segments left the disk while others were copied"
            for segment in again.segments:
                key = object_key(segment, ObjectKind.PRODUCER_SNAPSHOT)
                states = decode_snapshot(world.store.objects[key], key)
                assert {state.producer_id for state in states} == {7, 8}

    def free_disk(node: TierNode, world: World) -> None:
        apply_retention(node.log, world.now_ms)

    run_tier(main())


def test_nothing_above_an_open_transaction_is_copied() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(5)
            node.produce(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
            node.produce(20)
            await node.run()
            assert node.finished == [pair for pair in node.sealed if pair[1] < 5]
            end_transaction(node.log, 7, is_commit=False)
            node.log.advance_high_watermark(node.log.end_offset)
            node.produce(5)
            await node.run()
            assert node.finished == node.sealed
            empty = [segment.is_txn_index_empty for segment in node.segments]
            assert empty.count(False) == 1
            marked = node.segments[empty.index(False)]
            assert object_key(marked, ObjectKind.TXN_INDEX) in world.store.objects

    run_tier(main())


def test_nothing_that_a_power_loss_could_take_back_is_copied() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(8)
            await node.log.flush()
            synced = node.log.recovery_point
            node.produce(20)
            await node.look()
            assert node.finished == [pair for pair in node.sealed if pair[1] < synced]
            assert len(node.finished) < len(node.sealed)

    run_tier(main())


def test_nothing_above_the_high_watermark_is_copied() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(20)
            node.log.high_watermark = 7
            await node.run()
            assert node.finished == [pair for pair in node.sealed if pair[1] < 7]

    run_tier(main())


def test_a_second_look_copies_nothing_twice() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            puts = world.store.counts.puts
            await node.run()
            assert world.store.counts.puts == puts

    run_tier(main())


@pytest.mark.parametrize("kind", list(ObjectKind))
@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_copy_that_fails_is_deleted_and_made_again_under_another_id(
    kind: ObjectKind, takes_effect: bool
) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
            end_transaction(node.log, 7, is_commit=False)
            node.produce(20)
            world.store.fail("put", f"*{kind}", takes_effect=takes_effect)
            await node.run()
            assert node.tier.copiers.error_of(node.tiered) is not None
            assert not segment_objects(world)
            await until(lambda: node.finished == node.sealed)
            await node.look()
            assert is_clean(world, node)
            assert node.tier.copiers.error_of(node.tiered) is None
            assert (node.tier.copier.requests, node.tier.copier.errors) == (
                len(node.sealed) + 1,
                1,
            )

    run_tier(main())


Step = Callable[[TierNode], Awaitable[None]]


@pytest.mark.parametrize("event_count", range(6))
def test_a_crash_at_any_step_leaves_nothing_that_the_next_leader_does_not_clean_up(
    event_count: int,
) -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world)
        await node.start()
        node.produce(12)
        await node.log.flush()
        await _die_after(node, event_count)
        async with running(world, disk=node.disk, epoch=1) as again:
            await again.run()
            await again.run()
            assert again.finished == again.sealed
            assert is_clean(world, again)

    run_tier(main())


async def _die_after(node: TierNode, steps: int) -> None:
    """Let a node do so many puts and events, and end it in the middle of the next."""
    done = 0
    is_dead = asyncio.Event()
    world, put, publish = node.world, node.world.store.put, node.world.events.publish

    async def count(call: Callable[..., Awaitable[object]], *arguments: object) -> object:
        nonlocal done
        if done == steps:
            is_dead.set()
            await asyncio.Event().wait()
        done += 1
        return await call(*arguments)

    world.store.put = lambda *given: count(put, *given)  # type: ignore[method-assign,assignment]
    world.events.publish = lambda *given: count(publish, *given)  # type: ignore[method-assign,assignment]
    await node.tier.look()
    await is_dead.wait()
    world.store.put, world.events.publish = put, publish  # type: ignore[method-assign]
    await node.stop()


def test_a_copy_ends_when_another_node_leads() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            world.store.slow_down(1000)
            await node.log.flush()
            await node.tier.look()
            await until(lambda: node.tiered.copying is not None)
            node.become(epoch=1, leader=2)
            await node.settle()
            assert not node.finished
            assert not segment_objects(world)

    run_tier(main())


@pytest.mark.parametrize("turns", range(0, 60, 7))
def test_a_node_that_leads_again_leaves_nothing_of_a_copy_under_way(turns: int) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.log.flush()
            world.store.slow_down(10, 400)
            await node.tier.look()
            await until(lambda: node.tiered.copying is not None)
            for _ in range(turns):
                await asyncio.sleep(0.01)
            node.become(epoch=1)
            for _ in range(3):
                await node.tier.look()
                await asyncio.sleep(0.3)
            await node.settle()
            world.store.heal()
            for _ in range(2):
                await node.run()
            assert node.finished == node.sealed
            assert is_clean(world, node)

    run_tier(main())


async def _delete_as_another_leader(node: TierNode, segment: RemoteSegment) -> None:
    """Announce what a leader does that saw none of the objects yet."""
    for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
        await node.metadata.update(
            SegmentUpdate(segment.partition, segment.id, node.world.now_ms, state, BrokerId(2))
        )


def test_what_was_written_after_another_leader_deleted_the_copy_goes() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.log.flush()
            world.store.slow_down(50)
            await node.tier.look()
            await until(lambda: any(key.endswith(".log") for key in world.store.objects))
            (segment,) = node.segments
            await _delete_as_another_leader(node, segment)
            node.become(epoch=1, leader=2)
            world.store.fail("delete", times=3)
            await node.settle()
            assert not segment_objects(world)

    run_tier(main())


def test_a_copy_ends_when_the_log_is_cut_or_deleted() -> None:
    async def main(change: Callable[[TierNode], None]) -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            world.store.slow_down(1000)
            await node.log.flush()
            await node.tier.look()
            await until(lambda: node.tiered.copying is not None)
            change(node)
            world.store.heal()
            await node.settle()
            assert not node.tier.copier.copied_bytes
            assert not segment_objects(world)

    def cut(node: TierNode) -> None:
        node.log.cuts += 1
        node.log.is_being_cut = True

    run_tier(main(cut))
    run_tier(main(lambda node: node.stop_partition(is_deleted=True)))


def test_who_deletes_a_log_waits_until_nobody_reads_it() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            world.store.slow_down(1000)
            await node.log.flush()
            await node.tier.look()
            await until(lambda: node.tiered.copying is not None)
            node.stop_partition(is_deleted=True)
            await node.tier.abandon(node.log)
            assert node.tier.copiers.running_count == 0
            node.log.retire()

    run_tier(main())


def test_a_finish_that_is_refused_takes_the_objects_away() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(6)
            world.store.slow_down(1000)
            await node.log.flush()
            await node.tier.look()
            await until(lambda: "leader_epoch_checkpoint" in str(segment_objects(world)))
            (segment,) = node.segments
            await _delete_as_another_leader(node, segment)
            await node.settle()
            assert not segment_objects(world)
            await until(lambda: node.finished == node.sealed)

    run_tier(main())


def test_the_quota_paces_copies() -> None:
    async def main() -> float:
        world = World()
        given = {
            "remote.log.manager.copy.max.bytes.per.second": "1000",
            "remote.log.manager.copy.quota.window.num": "2",
        }
        loop = asyncio.get_running_loop()
        async with running(world, given=given) as node:
            node.produce(120)
            await node.log.flush()
            world.now_ms = int(loop.time() * 1000)
            began, began_ms = loop.time(), world.now_ms

            async def pass_time() -> None:
                while True:
                    await asyncio.sleep(0.01)
                    world.now_ms = began_ms + int((loop.time() - began) * 1000)

            ticking = asyncio.ensure_future(pass_time())
            await node.look()
            ticking.cancel()
            assert node.finished == node.sealed
            copied = node.tier.copier.copied_bytes
            assert copied / 1000 - 2 <= loop.time() - began <= copied / 1000 + 2
            return copied

    assert run_tier(main()) > 5_000


def test_not_more_partitions_are_copied_at_a_time_than_allowed() -> None:
    async def main() -> None:
        world = World()
        async with running(
            world, given={"remote.log.manager.copier.thread.pool.size": "1"}
        ) as node:
            node.produce(20)
            await node.log.flush()
            world.store.slow_down(1000)
            await node.tier.look()
            others = [msgspec.structs.replace(node.tiered.id, index=index) for index in (1, 2)]
            for other in others:
                waiting = type(node.tiered)(node.partition)
                waiting.id = other
                node.tier.copiers.call(waiting)
            assert node.tier.copiers.running_count == 1

    run_tier(main())


def test_a_copy_that_was_lost_is_made_again_and_the_others_stay() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(30)
            await node.run()
            first, *others = node.segments
            await node.tier.remover.delete([first])  # as fsck deletes what is damaged
            await node.run()
            await node.run()
            assert node.finished == node.sealed
            assert {segment.id for segment in others} <= {segment.id for segment in node.segments}
            assert node.log.remote_end_offset == node.log.segments[-1].base_offset
            assert is_clean(world, node)

    run_tier(main())


def test_copying_can_be_switched_off_for_a_topic() -> None:
    async def main() -> None:
        async with running(
            World(), settings=msgspec.structs.replace(LOG_SETTINGS, is_copied=False)
        ) as node:
            node.produce(20)
            await node.run()
            assert not node.segments

    run_tier(main())


def test_what_the_store_adds_to_a_description_is_bounded() -> None:
    async def main() -> None:
        world = World()
        async with running(
            world, given={"remote.log.metadata.custom.metadata.max.bytes": "5"}
        ) as node:
            node.produce(20)
            await node.run()
            assert "custom.metadata.max.bytes" in (node.tier.copiers.error_of(node.tiered) or "")
            assert not node.finished
            assert not segment_objects(world)

    run_tier(main())


def test_a_store_that_is_away_is_reported_once_and_copying_goes_on_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.log.flush()
            world.store.go_away()
            await node.tier.look()
            await until(lambda: node.tier.copiers.failures > 5)
            world.store.come_back()
            await until(lambda: node.finished == node.sealed)
            await node.look()
            assert is_clean(world, node)

    run_tier(main())
    lines = [each for each in caplog.records if "copying to the tier" in each.getMessage()]
    assert len(lines) < 6
    assert StoreError.__name__ not in caplog.text


def test_a_new_leader_goes_on_where_the_old_one_stopped() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as old:
            old.produce(20)
            await old.run()
            async with running(world, 2, epoch=0, leader=1) as new:
                for position in range(20):
                    chunk = old.log.read(position, 1, up_to=position + 1, may_block=True)
                    assert chunk is not None
                    new.log.append_replicated(memoryview(bytearray(chunk)))
                new.log.advance_high_watermark(20)
                old.become(epoch=1, leader=2)
                new.become(epoch=1)
                await new.ready()
                copied = new.finished
                new.produce(20)
                await new.run()
                assert new.finished[: len(copied)] == copied
                assert new.finished[-1][1] + 1 == new.log.segments[-1].base_offset
                starts = [pair[0] for pair in new.finished]
                assert starts == sorted(set(starts))
                assert new.log.remote_end_offset == new.log.segments[-1].base_offset

    run_tier(main())


def test_a_follower_learns_what_is_in_the_tier() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as leader, running(world, 2, leader=1) as follower:
            leader.produce(20)
            chunk = leader.log.read(0, 100_000, up_to=20, may_block=True)
            assert chunk is not None
            follower.log.append_replicated(memoryview(bytearray(chunk)))
            await leader.run()
            await until(lambda: follower.log.remote_end_offset > 0)
            await follower.look()
            assert follower.log.remote_end_offset == min(
                leader.log.remote_end_offset, follower.log.end_offset
            )
            assert not follower.tier.copier.requests

    run_tier(main())


@pytest.mark.parametrize("kind", ObjectKind)
def test_nothing_leaves_the_disk_for_a_copy_that_the_store_has_lost(kind: ObjectKind) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(30)
            world.store.lose_puts(f"*{kind}")
            await node.run()
            first = node.sealed[0]
            if kind is not ObjectKind.TXN_INDEX:  # there is none
                assert first not in node.finished
                assert node.log.remote_end_offset == 0
                assert "does not have it" in (node.tier.copiers.error_of(node.tiered) or "")
            world.now_ms += 2 * HOUR_MS
            while apply_retention(node.log, world.now_ms):
                pass
            assert node.log.segments[0].base_offset <= node.log.remote_end_offset
            await asyncio.sleep(100)
            await node.run()
            assert first in node.finished
            assert is_clean(world, node)

    run_tier(main())
