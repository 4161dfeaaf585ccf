"""Deleting segments from the tier: retention, leftovers, readers' leases, topics that left."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from headrace.ids import BrokerId
from headrace.log.cutting import apply_retention, delete_records
from headrace.remote.events import decode_event, encode_event
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.leases import Lease, end_lease, whole_topic, write_lease
from headrace.remote.segments import RemoteSegment, SegmentEpoch, SegmentState, SegmentUpdate
from headrace.remote.store import StoreError, UploadsUnknown
from headrace.tier.expiring import LOOKED_AT_A_TURN
from headrace.tier.life import ExpiryPlan, Reason
from headrace.tier.metadata_partition import OutcomeUnknown
from headrace.tier.segment_files import new_segment_id
from tests.unit.tier.logs import until
from tests.unit.tier.tier_nodes import (
    HOUR_MS,
    LOG_SETTINGS,
    ORDERS,
    TOPIC,
    TOPIC_ID,
    LoopWithThreads,
    TierNode,
    World,
    hidden,
    is_clean,
    run_tier,
    running,
    segment_objects,
)

STARTED, FINISHED, DELETING, DELETED = SegmentState


def change(node: TierNode, **changes: int) -> None:
    node.log.change_settings(replace(node.log.settings, **changes))


async def announce(
    node: TierNode,
    start: int,
    end: int,
    *,
    epoch: int = 0,
    state: SegmentState = STARTED,
    broker: int | None = None,
) -> RemoteSegment:
    """Announce a segment as another attempt or another leader would, without objects."""
    segment = RemoteSegment(
        partition=ORDERS,
        id=new_segment_id(),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=node.world.now_ms,
        broker_id=node.id if broker is None else BrokerId(broker),
        event_timestamp_ms=node.world.now_ms,
        size_bytes=100,
        epochs=(SegmentEpoch(epoch, start),),
    )
    await node.metadata.add(segment)
    for following in SegmentState:
        if STARTED < following <= state:
            await node.metadata.update(
                SegmentUpdate(ORDERS, segment.id, node.world.now_ms, following, node.id)
            )
    return segment


def test_segments_go_when_they_are_too_old_and_the_log_starts_behind_them() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(10)
            world.now_ms += 9 * HOUR_MS
            node.produce(10)
            await node.run()
            assert node.log.start_offset == 0
            old = [pair for pair in node.finished if pair[1] < 10]
            world.now_ms += 2 * HOUR_MS
            await node.look()
            assert node.log.start_offset == old[-1][1] + 1
            assert node.finished == node.sealed
            assert node.checkpoints == [node.log.start_offset]
            assert is_clean(world, node)
            assert node.tier.expirer.counts[Reason.TOO_OLD] == len(old)

    run_tier(main())


def test_the_start_moves_and_is_durable_before_anything_is_deleted() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            count = len(segment_objects(world))
            seen: list[tuple[int, int]] = []

            async def checkpoint() -> None:
                seen.append((node.log.start_offset, len(segment_objects(world))))

            node.tier.expirer._checkpoint = checkpoint
            world.now_ms += 11 * HOUR_MS
            await node.look()
            assert seen == [(node.log.segments[-1].base_offset, count)]
            assert not segment_objects(world)

    run_tier(main())


def test_segments_without_a_timestamp_are_as_old_as_their_copies() -> None:
    """Not infinitely old, and they do not keep what is behind them for ever."""

    async def main() -> None:
        async with running(World()) as node:
            node.produce(20, timestamp=-1)
            await node.run()
            assert {segment.max_timestamp_ms for segment in node.segments} == {node.world.now_ms}
            node.world.now_ms += 10 * HOUR_MS
            await node.look()
            assert node.finished == node.sealed
            assert node.log.start_offset == 0
            node.world.now_ms += 1
            await node.look()
            assert not node.finished
            assert node.log.start_offset == node.log.segments[-1].base_offset

    run_tier(main())


def test_the_size_counts_what_the_tier_has_and_what_only_the_disk_has() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(40)
            await node.run()
            sizes = [segment.size_bytes for segment in node.segments]
            active = node.log.segments[-1].size_bytes
            limit = active + sum(sizes[-3:])
            change(node, retention_bytes=limit + 10)
            await node.look()
            assert len(node.segments) == 4  # as in Kafka, which stays above the limit
            change(node, retention_bytes=limit)
            await node.look()
            assert len(node.segments) == 3
            assert node.log.start_offset == node.segments[0].start_offset
            node.produce(8)
            await node.run()
            total = sum(segment.size_bytes for segment in node.segments)
            assert limit <= total + node.log.segments[-1].size_bytes < limit + 2 * sizes[0]

    run_tier(main())


def test_a_topic_without_delete_keeps_everything() -> None:
    async def main() -> None:
        async with running(
            World(), settings=replace(LOG_SETTINGS, is_deleted_by_age=False, retention_bytes=0)
        ) as node:
            node.produce(20)
            await node.run()
            node.world.now_ms += 1000 * HOUR_MS
            await node.look()
            assert node.finished == node.sealed

    run_tier(main())


def test_what_delete_records_passed_is_deleted() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            second, third = node.finished[1:3]
            delete_records(node.log, third[0] - 1)
            await node.look()
            assert node.finished[0] == second
            delete_records(node.log, third[0])
            await node.look()
            assert node.finished[0] == third
            assert is_clean(world, node)
            assert node.tier.expirer.counts[Reason.BELOW_START] == 2

    run_tier(main())


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_what_an_earlier_leader_left_half_done_is_finished(state: SegmentState) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await announce(node, 0, 10, state=state)
            await node.run()
            await node.look()
            assert node.finished == node.sealed
            assert is_clean(world, node)

    run_tier(main())


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_uploads_of_a_copy_that_was_cut_short_are_dropped(state: SegmentState) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            segment = await announce(node, 0, 10, state=state)
            for key in (object_key(segment, ObjectKind.LOG), "others/upload"):
                world.store.fail("put", leaves_upload=True)
                with pytest.raises(StoreError):
                    await world.store.put(key, b"some", 4)
            node.produce(20)
            await node.run()
            await node.look()
            assert node.finished == node.sealed
            assert [each.key for each in await world.store.list_uploads()] == ["others/upload"]

    run_tier(main())


def test_a_store_that_does_not_tell_of_uploads_keeps_no_deletion() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            await announce(node, 0, 10, state=STARTED)
            world.store.fail("list_uploads", error=UploadsUnknown)
            node.produce(20)
            await node.run()
            await node.look()
            assert node.finished == node.sealed
            assert is_clean(world, node)

    run_tier(main())


def test_a_copy_that_runs_is_not_taken_for_one_that_was_left() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.log.flush()
            world.store.slow_down(1000)
            await node.tier.look()
            await until(lambda: bool(node.segments))
            await node.tier.look()
            await node.tier.expirers.settle()
            assert [segment.state for segment in node.segments] == [STARTED]
            await node.settle()
            assert node.finished == node.sealed

    run_tier(main())


def test_a_deletion_that_fails_is_tried_again_until_it_succeeds() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            world.now_ms += 11 * HOUR_MS
            world.store.fail("delete", times=3)
            await node.look()
            assert node.tier.expirers.error_of(node.tiered) is not None
            assert not node.finished
            await until(lambda: not node.segments)
            assert not segment_objects(world)
            assert node.tier.remover.errors >= 3

    run_tier(main())


def test_of_overlapping_copies_each_offset_has_one_and_what_answers_for_none_goes() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(20)
            await node.log.flush()
            change(node, is_copied=False)
            first = await announce(node, 0, 9, state=FINISHED)
            second = await announce(node, 10, 17, state=FINISHED)
            third = await announce(node, 0, 12, state=FINISHED)
            await node.look()
            assert node.finished == [(0, 12), (10, 17)]
            found = [node.metadata.find(ORDERS.key, 0, offset) for offset in range(18)]
            assert [each and each.id for each in found] == [third.id] * 13 + [second.id] * 5
            assert first.id not in [segment.id for segment in node.segments]
            assert node.tier.expirer.counts[Reason.UNREFERENCED] == 1

    run_tier(main())


def test_segments_of_another_lineage_are_deleted() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(10)  # epoch 0
            node.become(epoch=2)
            await node.ready()
            node.produce(10)
            change(node, is_copied=False)
            await node.log.flush()
            await announce(node, 10, 15, epoch=1, state=FINISHED)
            shared = await announce(node, 5, 12, epoch=0, state=FINISHED)
            own = await announce(node, 10, 14, epoch=2, state=FINISHED)
            await node.look()
            assert {segment.id for segment in node.segments} == {shared.id, own.id}

    run_tier(main())


def test_a_leader_that_lost_its_disk_neither_deletes_nor_overwrites_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            stored, finished = segment_objects(world), node.finished
        async with running(world, 2, epoch=1) as again:
            again.log.release()  # as if a producer were faster than whoever wants to take over
            again.produce(30)
            await again.run()
            assert segment_objects(world) == stored
            assert again.finished == finished
            assert again.log.remote_end_offset == 0
            for crew in (again.tier.copiers, again.tier.expirers):
                assert "disk may have been lost" in (crew.error_of(again.tiered) or "")
            change(again, is_tiered=False, is_copied=False, remote_delete_on_disable=True)
            await until(lambda: not again.segments)
            again.log.change_settings(LOG_SETTINGS)
            await until(lambda: again.tier.copiers.error_of(again.tiered) is None)
            await again.look()
            assert again.finished == again.sealed
            assert is_clean(world, again)

    run_tier(main())


def test_a_leader_that_was_deposed_deletes_nothing() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(10)
            change(node, is_copied=False)
            await node.log.flush()
            await announce(node, 0, 5, state=STARTED)
            await announce(node, 5, 9, epoch=7, state=FINISHED)
            node.world.now_ms += 100 * HOUR_MS
            await node.look()
            assert len(node.segments) == 2
            assert node.log.start_offset == 0

    run_tier(main())


def test_a_log_that_forgot_its_start_passes_over_what_is_gone() -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world)
        await node.start()
        node.produce(30)
        await node.run()
        second = node.finished[1]
        for segment in list(node.log.segments[:3]):  # local retention
            segment.close()
            node.log.segments.remove(segment)
        delete_records(node.log, second[0])
        await node.look()
        node.log.start_offset = 0  # a crash before the checkpoint of starts
        node.log.epochs.assign(0, 0)
        await node.look()
        assert node.log.start_offset == second[0]
        await node.stop()

    run_tier(main())


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_the_store_has_is_not_given_up_although_no_event_names_it_any_more(
    is_whole: bool,
) -> None:
    """The events were deleted, as with their topic, and what is copied since has new ones.

    It need not reach the disk: an object may be lost, too.
    """

    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(30)
            await node.run()
            if not is_whole:
                world.store.remove(object_key(node.segments[-1], ObjectKind.LOG))
            forgotten = segment_objects(world)
            for segment in list(node.log.segments[:-1]):  # local retention
                segment.close()
                node.log.segments.remove(segment)
        world.events.partitions = [[] for _ in world.events.partitions]
        async with running(world, disk=node.disk, epoch=1) as again:
            again.log.epochs.assign(0, 0)
            again.log.segments[:] = again.log.segments[-1:]
            again.produce(30)
            for _ in range(3):
                world.now_ms += HOUR_MS
                await asyncio.sleep(100)
                await again.run()
            assert len(again.finished) > 1
            assert again.log.start_offset == 0
            assert forgotten.items() <= segment_objects(world).items()
            delete_records(again.log, again.finished[0][0])  # the way out
            await asyncio.sleep(100)
            await again.run()
            assert not again.tier.expirers.error_of(again.tiered)

    run_tier(main())


def test_without_any_trace_of_them_records_are_not_given_up() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(30)
            change(node, is_copied=False)
            await node.log.flush()
            for segment in list(node.log.segments[:3]):
                segment.close()
                node.log.segments.remove(segment)
            await announce(node, 40, 50)
            await node.look()
            assert node.log.start_offset == 0

    run_tier(main())


def test_a_topic_that_leaves_the_tier_keeps_what_is_on_the_disk() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            gone = node.log.segments[0]
            gone.close()
            node.log.segments.remove(gone)
            change(node, is_tiered=False, is_copied=False, remote_delete_on_disable=True)
            await node.look()
            assert node.log.start_offset == node.log.segments[0].base_offset
            assert not node.segments
            assert not segment_objects(world)
            assert node.log.remote_end_offset == 0

    run_tier(main())


def test_a_topic_that_comes_back_while_its_tier_is_deleted_loses_nothing_of_its_disk() -> None:
    """What was to be deleted is copied again before anything leaves the disk for it."""

    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(60)
            await node.run()
            change(node, local_retention_bytes=node.log.size_bytes // 2)
            apply_retention(node.log, world.now_ms)
            count, start = len(node.segments), node.log.segments[0].base_offset
            assert 0 < start < node.log.segments[-1].base_offset
            world.store.slow_down(1000)
            change(node, is_tiered=False, is_copied=False, remote_delete_on_disable=True)
            await node.tier.look()
            await until(lambda: any(each.state is DELETING for each in node.segments))
            change(node, is_tiered=True, is_copied=True, local_retention_bytes=1)
            while node.tier.copiers.running_count or node.tier.expirers.running_count:
                while apply_retention(node.log, world.now_ms):
                    pass
                await asyncio.sleep(0.1)
                await node.tier.look()
            world.store.heal()
            for _ in range(3):
                await node.run()
            assert node.log.start_offset == start
            _check_chain(start, node)
            assert node.tier.expirer.counts[Reason.NOT_TIERED] < count
            assert len(node.log.segments) == 1
            assert is_clean(world, node)

    run_tier(main())


def test_nothing_leaves_the_disk_while_it_is_in_doubt_whether_a_deletion_was_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            update, late = node.metadata.update, list[SegmentUpdate]()

            async def lose(asked: SegmentUpdate) -> None:
                late.append(asked)
                raise OutcomeUnknown("a test")

            monkeypatch.setattr(node.metadata, "update", lose)
            change(node, is_tiered=False, is_copied=False, remote_delete_on_disable=True)
            await node.look()
            change(node, is_tiered=True, local_retention_bytes=1)
            node.tiered.learn_remote_end(node.metadata)
            assert node.log.remote_end_offset == 0
            monkeypatch.setattr(node.metadata, "update", update)
            await update(late[0])
            change(node, is_copied=True)
            for _ in range(3):
                world.now_ms += 60_000
                await asyncio.sleep(100)
                await node.run()
            assert node.finished == node.sealed
            assert is_clean(world, node)

    run_tier(main())


def _check_chain(offset: int, node: TierNode) -> None:
    """Assert that the tier has every record from an offset up to what is on the disk only."""
    for first, last in node.finished:
        assert first == offset
        offset = last + 1
    assert offset == node.log.segments[-1].base_offset


def test_what_becomes_of_thousands_of_segments_is_decided_by_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where all go at once, that takes longer than a turn of the loop may."""
    works: list[object] = []
    real = LoopWithThreads.run_in_executor

    def note(self: LoopWithThreads, executor: object, work: Callable[..., Any], *given: Any) -> Any:
        works.append(getattr(work, "__func__", None))
        return real(self, executor, work, *given)

    monkeypatch.setattr(LoopWithThreads, "run_in_executor", note)

    async def main() -> None:
        async with running(World()) as node:
            change(node, is_copied=False)
            for number in range(LOOKED_AT_A_TURN):
                await announce(node, number, number, state=FINISHED)
            node.world.now_ms += 100 * HOUR_MS
            await node.tier.expirer._plan(node.tiered)
            assert works.count(ExpiryPlan.finish) == 1

    run_tier(main())


def test_what_a_reader_has_leased_stays_until_the_lease_ends() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            stored = segment_objects(world)
            world.now_ms += 11 * HOUR_MS
            lease = Lease(
                id="spark",
                holder="a test",
                expires_ms=world.now_ms + HOUR_MS,
                topics=(whole_topic(TOPIC_ID, TOPIC),),
            )
            await write_lease(world.store, lease)
            await node.look()
            assert segment_objects(world) == hidden(stored)
            assert {segment.state for segment in node.segments} == {DELETING}
            assert node.tier.remover.leased == len(stored)
            await end_lease(world.store, lease.id)
            await node.look()
            assert not segment_objects(world)
            assert not node.segments

    run_tier(main())


def test_a_lease_that_nobody_understands_keeps_everything() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.run()
            stored = segment_objects(world)
            world.now_ms += 11 * HOUR_MS
            world.store.write(".headrace/leases/odd.json", b"{")
            await node.look()
            assert segment_objects(world) == hidden(stored)
            assert "lease" in (node.tier.expirers.error_of(node.tiered) or "")

    run_tier(main())


def test_nothing_is_looked_through_while_nothing_can_have_changed() -> None:
    async def main() -> None:
        async with running(World()) as node:
            node.produce(20)
            await node.run()
            await node.look()
            assert not node.tier.expirer.is_due(node.tiered)
            node.world.now_ms += 11 * HOUR_MS
            assert node.tier.expirer.is_due(node.tiered)
            node.world.now_ms -= 11 * HOUR_MS
            change(node, retention_bytes=100)
            assert node.tier.expirer.is_due(node.tiered)

    run_tier(main())


def test_a_follower_deletes_nothing() -> None:
    async def main() -> None:
        world = World()
        async with running(world) as leader, running(world, 2, leader=1) as follower:
            leader.produce(20)
            await leader.run()
            world.now_ms += 100 * HOUR_MS
            stored = segment_objects(world)
            await follower.look()
            assert segment_objects(world) == stored

    run_tier(main())


@pytest.mark.parametrize("calls", range(8))
def test_a_crash_at_any_step_of_a_deletion_leaks_nothing(calls: int) -> None:
    async def main() -> None:
        world = World()
        node = TierNode(world)
        await node.start()
        node.produce(6)
        await node.run()
        count = len(node.segments)
        assert count == 1
        world.now_ms += 11 * HOUR_MS
        await _die_after(node, calls)
        async with running(
            world, disk=node.disk, epoch=1, start_offset=node.log.start_offset
        ) as again:
            await again.run()
            await again.run()
            assert not again.segments
            assert not segment_objects(world)

    run_tier(main())


async def _die_after(node: TierNode, steps: int) -> None:
    """Let a node do so many events and deletions, and end it in the middle of the next."""
    done = 0
    is_dead = asyncio.Event()
    store, events = node.world.store, node.world.events
    delete, publish = store.delete, events.publish

    async def count(call: Callable[..., Awaitable[object]], *arguments: object) -> object:
        nonlocal done
        if done == steps:
            is_dead.set()
            await asyncio.Event().wait()
        done += 1
        return await call(*arguments)

    store.delete = lambda *given: count(delete, *given)  # type: ignore[method-assign,assignment]
    events.publish = lambda *given: count(publish, *given)  # type: ignore[method-assign,assignment]
    await node.tier.look()
    settled = asyncio.ensure_future(node.settle())
    dead = asyncio.ensure_future(is_dead.wait())
    await asyncio.wait([settled, dead], return_when=asyncio.FIRST_COMPLETED)
    settled.cancel()
    dead.cancel()
    store.delete, events.publish = delete, publish  # type: ignore[method-assign]
    await node.stop()


def test_nothing_leaves_the_disk_for_a_copy_that_is_finished_while_it_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an earlier life of this node sent arrives late."""

    async def main() -> None:
        world = World()
        async with running(world) as node:
            node.produce(20)
            await node.log.flush()
            first, last = node.sealed[0]
            segment = await announce(node, first, last)
            update, learned = node.metadata.update, list[int]()

            async def finish_before(asked: SegmentUpdate) -> None:
                if asked.state is DELETING:
                    await update(asked._replace(state=FINISHED))
                    node.tiered.learn_remote_end(node.metadata)
                    learned.append(node.log.remote_end_offset)
                await update(asked)

            monkeypatch.setattr(node.metadata, "update", finish_before)
            await node.tier.expirer.expire(node.tiered)
            assert segment.id not in [each.id for each in node.segments]
            assert learned == [0]

    run_tier(main())


class Deposed(NamedTuple):
    """Two nodes, after the leader dealt with a copy that node 3 finished late."""

    leader: TierNode
    follower: TierNode
    segment: RemoteSegment
    learned: set[int]
    """Up to where the follower took its log for copied, at any time."""


@asynccontextmanager
async def finishing_late(patch: pytest.MonkeyPatch, at: SegmentState) -> AsyncIterator[Deposed]:
    """Have a copy deleted that a deposed leader finishes as the new one announces a state."""
    world = World()
    async with running(world, 1) as leader, running(world, 2) as follower:
        for node in (leader, follower):
            node.produce(20)
            await node.log.flush()
            node.become(epoch=1, leader=1)
        segment = await announce(leader, *leader.sealed[0], broker=3)
        finish = SegmentUpdate(ORDERS, segment.id, world.now_ms, FINISHED, BrokerId(3))
        learned, publish = set[int](), world.events.publish

        async def publish_after(partition: int, data: bytes) -> int:
            event = decode_event(data)
            if isinstance(event, RemoteSegment | SegmentUpdate) and event.state is at:
                patch.setattr(world.events, "publish", publish)
                await publish(partition, encode_event(finish))
                await until(lambda: bool(follower.metadata.refused_count or follower.finished))
            return await publish(partition, data)

        await until(lambda: bool(follower.segments))
        follower.metadata.on_changed.append(lambda _: learned.add(follower.log.remote_end_offset))
        patch.setattr(world.events, "publish", publish_after)
        await leader.tier.expirer.expire(leader.tiered)
        await until(lambda: follower.segments == leader.segments)
        yield Deposed(leader, follower, segment, learned)


def test_no_follower_frees_its_disk_for_a_copy_that_is_finished_while_a_new_leader_deletes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deposed leader has not heard yet that it is one: its event is there, and refused."""

    async def main() -> None:
        async with finishing_late(monkeypatch, DELETING) as (leader, follower, _, learned):
            assert learned == {0}
            assert not leader.segments
            assert leader.metadata.refused_count == follower.metadata.refused_count == 1

    run_tier(main())


def test_a_copy_that_a_deposed_leader_finishes_just_before_its_deletion_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with finishing_late(monkeypatch, STARTED) as (leader, follower, segment, learned):
            for node in (leader, follower):
                assert node.finished == [(segment.start_offset, segment.end_offset)]
            leader.tiered.learn_remote_end(leader.metadata)
            assert leader.log.remote_end_offset == follower.log.remote_end_offset
            assert max(learned) == segment.next_offset

    run_tier(main())
