import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from headrace.ids import BrokerId
from headrace.remote.audit import Ages, Class, Report
from headrace.remote.inventory import Inventory, Known, LeaderFacts, judge, take_inventory
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.leases import Lease, read_leases, whole_topic, write_lease
from headrace.remote.repair import Repair, carry_out, plan_repairs
from headrace.remote.segments import (
    DeleteState,
    MetadataEvent,
    PartitionDelete,
    RemoteSegment,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
)
from headrace.remote.store import StoreError
from headrace.testing.store import SimulatedStore
from tests.unit.remote.described import PARTITION, segment
from tests.unit.remote.tiered import TieredLog

NOW = 10_000_000_000_000
AGES = Ages(NOW)


class EventList:
    """Events in a list."""

    def __init__(self) -> None:
        self.written: list[MetadataEvent] = []

    async def read(self) -> Known:
        known = Known()
        for event in self.written:
            known.apply(event)
        return known

    async def publish(self, event: MetadataEvent) -> None:
        (await self.read()).cache.check(event)  # a tool's steps are legal, always
        self.written.append(event)

    def add(
        self, *segments: RemoteSegment, state: SegmentState = SegmentState.COPY_FINISHED
    ) -> None:
        for each in segments:
            self.written.append(_started(each))
            for following in _path(state):
                self.written.append(
                    SegmentUpdate(
                        each.partition, each.id, 0, following, BrokerId(1), each.custom_metadata
                    )
                )


def _started(one: RemoteSegment) -> RemoteSegment:
    return msgspec.structs.replace(
        one, state=SegmentState.COPY_STARTED, custom_metadata=None, event_timestamp_ms=0
    )


def _path(state: SegmentState) -> list[SegmentState]:
    return {
        SegmentState.COPY_STARTED: [],
        SegmentState.COPY_FINISHED: [SegmentState.COPY_FINISHED],
        SegmentState.DELETE_STARTED: [SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED],
    }[state]


async def fsck(store: SimulatedStore, events: EventList) -> Report:
    inventory = await take_inventory(store, events)
    report = await judge(store, inventory, AGES)
    total = sum(each.stored_bytes for each in report.tallies().values())
    assert total == inventory.listed_bytes
    return report


async def repair(store: SimulatedStore, events: EventList) -> list[str]:
    """Repair what can be; return what was left."""
    report = await fsck(store, events)
    plan = plan_repairs(report, await read_leases(store, NOW), AGES)
    for each in plan.repairs:
        assert await carry_out(each, store, events.publish, NOW) is None
    return [each.why for each in plan.skipped]


async def tier(store: SimulatedStore, segments: int = 3) -> list[RemoteSegment]:
    log = TieredLog()
    for number in range(segments):
        log.append([b"v%d" % number] * 10)
        log.roll()
    return await log.upload(store)


def run(scenario: Callable[[SimulatedStore, EventList], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(SimulatedStore(time_ms=lambda: 0), EventList()))


def test_a_sound_tier_has_nothing_to_repair() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        events.add(*await tier(store))
        assert (await fsck(store, events)).is_clean
        assert await repair(store, events) == []

    run(scenario)


@pytest.mark.parametrize("state", [SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED])
def test_a_segment_that_was_left_half_done_is_deleted(state: SegmentState) -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        first, second, third = await tier(store)
        events.add(first, second)
        events.add(third, state=state)
        assert not (await fsck(store, events)).is_clean
        assert await repair(store, events) == []
        assert (await fsck(store, events)).is_clean
        assert not [key for key in store.objects if f"{third.start_offset:020d}" in key]
        assert (await events.read()).cache.segments(PARTITION.key) != []

    run(scenario)


def test_objects_without_an_event_are_deleted() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        first, second, _ = await tier(store)
        events.add(first, second)
        report = await fsck(store, events)
        assert report.tallies()[Class.ORPHANED_OBJECT].objects == 5
        assert await repair(store, events) == []
        assert (await fsck(store, events)).is_clean
        assert len(store.objects) == 10

    run(scenario)


def test_objects_stay_that_may_be_all_that_is_left_of_offsets_that_are_nowhere_else() -> None:
    """Their events are lost, as when the topic with the events was deleted."""

    async def scenario(store: SimulatedStore, events: EventList) -> None:
        segments = await tier(store)
        events.add(segments[2])
        leader = LeaderFacts(log_start_offset=0, local_start_offset=30)
        inventory = await take_inventory(store, events)
        inventory.leaders = {segments[2].key: leader}
        plan = plan_repairs(
            await judge(store, inventory, AGES), await read_leases(store, NOW), AGES
        )
        assert not plan.repairs
        assert [each.why for each in plan.skipped] == [
            "offsets of its partition are nowhere else: its events may be lost"
        ] * 2
        leader = LeaderFacts(log_start_offset=20, local_start_offset=30)  # they are given up
        inventory.leaders = {segments[2].key: leader}
        plan = plan_repairs(
            await judge(store, inventory, AGES), await read_leases(store, NOW), AGES
        )
        assert len(plan.repairs) == 2

    run(scenario)


@pytest.mark.parametrize(
    "leader", [LeaderFacts(), LeaderFacts(log_start_offset=0), LeaderFacts(local_start_offset=30)]
)
def test_objects_stay_if_nobody_says_whether_a_log_lacks_their_offsets(leader: LeaderFacts) -> None:
    """As while a partition has no leader: the events of these objects may be lost."""

    async def scenario(store: SimulatedStore, events: EventList) -> None:
        segments = await tier(store)
        inventory = await take_inventory(store, events)
        inventory.topic_ids, inventory.leaders = {PARTITION.topic_id}, {PARTITION.key: leader}
        plan = plan_repairs(
            await judge(store, inventory, AGES), await read_leases(store, NOW), AGES
        )
        assert not plan.repairs
        assert [each.why for each in plan.skipped] == [
            "its leader does not say whether the log lacks its offsets"
        ] * len(segments)
        inventory.topic_ids = set()  # the topic is gone, and with it its leaders
        plan = plan_repairs(
            await judge(store, inventory, AGES), await read_leases(store, NOW), AGES
        )
        assert len(plan.repairs) == len(segments)

    run(scenario)


def test_a_copy_that_answers_where_two_others_meet_is_no_overlap() -> None:
    """The one that was finished last answers: brokers read it, and delete none of the three."""

    async def scenario(store: SimulatedStore, events: EventList) -> None:
        log = TieredLog()
        for values in (7, 3, 10):
            log.append([b"v"] * values)
            log.roll()
        first, between, last = await log.upload(store)
        longer = msgspec.structs.replace(first, end_offset=7)
        earlier = msgspec.structs.replace(last, start_offset=8, epochs=(SegmentEpoch(0, 8),))
        for key in [each for each in store.objects if f"{last.start_offset:020d}" in each]:
            store.write(key.replace(f"{last.start_offset:020d}", f"{8:020d}"), store.objects[key])
            store.remove(key)
        events.add(longer, earlier, between)
        report = await fsck(store, events)
        assert [each.verdict for each in report.segments] == [Class.OK] * 3
        assert report.is_clean

    run(scenario)


def test_foreign_objects_are_reported_and_never_deleted() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        store.write("backup.tar", b"theirs")
        await repair(store, events)
        assert "backup.tar" in store.objects
        assert not (await fsck(store, events)).is_clean

    run(scenario)


def test_what_is_lost_stays_reported() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        first, second, third = await tier(store)
        events.add(first, second, third)
        store.remove(object_key(second, ObjectKind.LOG))
        store.truncate(object_key(third, ObjectKind.LOG), 20)
        before = len(events.written)
        await repair(store, events)
        report = await fsck(store, events)
        assert [each.verdict for each in report.segments] == [
            Class.OK,
            Class.MISSING_OBJECT,
            Class.MISMATCH,
        ]
        assert len(events.written) == before

    run(scenario)


def test_an_object_that_a_late_listing_misses_is_not_missing() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        store.list_late(10_000_000)
        events.add(*await tier(store))
        report = await fsck(store, events)
        assert [each.verdict for each in report.segments] == [Class.OK] * 3

    run(scenario)


def test_what_a_reader_has_leased_is_left_until_the_lease_ends() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        first, second, _ = await tier(store)
        events.add(first, second)
        lease = Lease(
            id="one",
            holder="a job",
            expires_ms=NOW,
            topics=(whole_topic(PARTITION.topic_id, "orders"),),
        )
        await write_lease(store, lease)
        left = await repair(store, events)
        assert ["a job" in why for why in left] == [True]
        await store.delete([".headrace/leases/one.json"])
        assert await repair(store, events) == []

    run(scenario)


def test_a_lease_that_comes_after_the_plan_keeps_the_log() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        first, second, third = await tier(store)
        events.add(first, second)
        events.add(third, state=SegmentState.COPY_STARTED)
        plan = plan_repairs(await fsck(store, events), await read_leases(store, NOW), AGES)
        (one,) = plan.repairs
        lease = Lease(
            id="one", holder="a job", expires_ms=NOW, topics=(whole_topic(PARTITION.topic_id, ""),)
        )
        await write_lease(store, lease)
        assert await carry_out(one, store, events.publish, NOW) == lease
        assert object_key(third, ObjectKind.LOG) in store.objects
        await store.delete([".headrace/leases/one.json"])
        assert await repair(store, events) == []
        assert (await fsck(store, events)).is_clean

    run(scenario)


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_repair_that_failed_is_repeated(takes_effect: bool) -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        first, second, third = await tier(store)
        events.add(first, second)
        events.add(third, state=SegmentState.COPY_STARTED)
        store.fail("delete", takes_effect=takes_effect)
        with pytest.raises(StoreError):
            await repair(store, events)
        assert await repair(store, events) == []
        assert (await fsck(store, events)).is_clean

    run(scenario)


@pytest.mark.parametrize("state", [DeleteState.MARKED, DeleteState.STARTED])
def test_the_deletion_of_a_partition_is_finished(state: DeleteState) -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        events.add(*await tier(store))
        for each in DeleteState:
            if each <= state:
                events.written.append(PartitionDelete(PARTITION, 0, each, BrokerId(1)))
        assert not (await fsck(store, events)).is_clean
        assert await repair(store, events) == []
        assert (await fsck(store, events)).is_clean
        assert not store.objects
        assert not (await events.read()).partitions()

    run(scenario)


def test_segments_of_a_topic_that_does_not_exist_are_deleted() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        events.add(*await tier(store))
        inventory: Inventory = await take_inventory(store, events)
        inventory.topic_ids = []
        report = await judge(store, inventory, AGES)
        plan = plan_repairs(report, await read_leases(store, NOW), AGES)
        for each in plan.repairs:
            await carry_out(each, store, events.publish, NOW)
        assert not store.objects

    run(scenario)


def test_an_unfinished_upload_is_aborted() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        store.fail("put", leaves_upload=True)
        with pytest.raises(StoreError):
            await store.put("x", b"12", 2)
        assert (await fsck(store, events)).tallies()[Class.UNFINISHED_UPLOAD].uploads == 1
        assert await repair(store, events) == []
        assert await store.list_uploads() == []

    run(scenario)


def test_an_upload_that_may_be_under_way_needs_no_attention() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        store.fail("put", leaves_upload=True)
        with pytest.raises(StoreError):
            await store.put("x", b"12", 2)
        (upload,) = await store.list_uploads()
        inventory = await take_inventory(store, events)
        report = await judge(store, inventory, Ages(upload.began_ms + 1000, grace_ms=1000))
        assert report.is_clean
        assert report.tallies()[Class.COPYING].uploads == 1
        plan = plan_repairs(report, await read_leases(store, NOW), AGES)
        assert plan.repairs == []
        report = await judge(store, inventory, Ages(upload.began_ms + 1001, grace_ms=1000))
        assert not report.is_clean

    run(scenario)


def test_events_that_were_refused_are_told() -> None:
    known = Known()
    known.apply(SegmentUpdate(PARTITION, segment(1, 0, 1).id, 0, SegmentState(1), BrokerId(1)))
    assert len(known.refused) == 1


def test_a_repair_names_what_it_frees() -> None:
    async def scenario(store: SimulatedStore, events: EventList) -> None:
        await tier(store, segments=1)
        plan = plan_repairs(await fsck(store, events), await read_leases(store, NOW), AGES)
        (only,) = plan.repairs
        assert isinstance(only, Repair)
        assert only.freed_bytes == sum(map(len, store.objects.values()))

    run(scenario)
