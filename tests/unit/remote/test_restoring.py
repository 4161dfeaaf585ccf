import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log.producer_snapshots import decode_snapshot
from headrace.records.errors import RecordsError
from headrace.records.header import check_crc, read_headers
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.remote.checking import check_segment
from headrace.remote.coverage import Extent, cover
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.restoring import EMPTY_SNAPSHOT, Restored, Target, restore_segment
from headrace.remote.searching import AbortedSearch, first_offset_at
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment, SegmentEpoch, TopicIdPartition
from headrace.remote.undecided import open_transactions, stable_end
from headrace.testing.store import SimulatedStore
from tests.unit.remote.tiered import TieredLog

NEW = TopicIdPartition(TopicId(b"n" * 16), TopicName("orders"), PartitionIndex(7))


async def restore(log: TieredLog, epoch: int = 5) -> tuple[SimulatedStore, list[Restored]]:
    source, target = SimulatedStore(), SimulatedStore()
    extents = cover(await log.upload(source)).extents
    to = Target(NEW, epoch, extents[0].start)
    return target, [
        await restore_segment(SegmentObjects(source), each, SegmentObjects(target), to)
        for each in extents
    ]


def records_of(store: SimulatedStore, segment: RemoteSegment) -> list[Record]:
    data = store.objects[object_key(segment, ObjectKind.LOG)]
    found: list[Record] = []
    for position, header in read_headers(data):
        assert header.leader_epoch == segment.epochs[0].epoch
        batch = memoryview(data)[position : position + header.size_bytes]
        check_crc(batch, header)
        if not header.is_control:
            found += read_records(batch, header)
    return found


def some_log() -> TieredLog:
    log = TieredLog(start_offset=100)
    for number in range(100):
        log.append([b"value %d" % number] * 3, timestamp=1000 + number, producer_id=number % 3)
        if number == 40:
            log.begin_epoch(2)
        if number in (50, 80):
            log.roll()
    for producer in range(3):
        log.end(producer, is_commit=producer > 0)
    log.roll()
    return log


def test_restored_records_have_their_offsets_and_one_epoch() -> None:
    log = some_log()
    store, restored = asyncio.run(restore(log))
    assert [each.segment.start_offset for each in restored] == [
        each.start_offset for each in log.segments
    ]
    records = [record for each in restored for record in records_of(store, each.segment)]
    assert [record.offset for record in records] == list(range(100, 400))
    assert [record.value for record in records] == [
        b"value %d" % (number // 3) for number in range(300)
    ]
    for each, old in zip(restored, log.segments, strict=True):
        assert each.segment.partition == NEW
        assert each.segment.epochs == (SegmentEpoch(5, old.start_offset),)
        assert each.segment.end_offset == old.end_offset
        assert each.segment.max_timestamp_ms == old.max_timestamp_ms
        assert store.objects[object_key(each.segment, ObjectKind.LEADER_EPOCHS)] == b"0\n1\n5 100\n"


def test_a_restored_segment_passes_an_audit() -> None:
    async def scenario() -> None:
        store, restored = await restore(some_log())
        for each in restored:
            assert await check_segment(store, each.segment) is None

    asyncio.run(scenario())


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1200), st.integers(100, 400))
def test_times_and_transactions_are_found_again(timestamp: int, offset: int) -> None:
    async def scenario() -> None:
        log = some_log()
        before = SimulatedStore()
        old = cover(await log.upload(before)).extents
        after, restored = await restore(log)
        new = [Extent(each.segment, *old[at][1:]) for at, each in enumerate(restored)]
        ask, ask_again = SegmentObjects(before), SegmentObjects(after)
        assert await first_offset_at(ask_again, new, timestamp) == await first_offset_at(
            ask, old, timestamp
        )
        assert await AbortedSearch(ask_again, new).between(
            offset, offset + 1
        ) == await AbortedSearch(ask, old).between(offset, offset + 1)

    asyncio.run(scenario())


def test_of_overlapping_segments_each_record_is_restored_once() -> None:
    async def scenario() -> None:
        source, target = SimulatedStore(), SimulatedStore()
        one, other = TieredLog(), TieredLog()
        for log, cuts in ((one, (3, 6)), (other, (4, 6))):
            for number in range(6):
                log.append([b"%d" % number] * 2, timestamp=number)
                if number + 1 in cuts:
                    log.roll(number + (10 if log is one else 20))
        extents = cover([*await one.upload(source), *await other.upload(source)]).extents
        found: list[int] = []
        for each in extents:
            to = Target(NEW, 0, 0)
            done = await restore_segment(SegmentObjects(source), each, SegmentObjects(target), to)
            assert await check_segment(target, done.segment) is None
            found += [record.offset for record in records_of(target, done.segment)]
        assert found == list(range(12))

    asyncio.run(scenario())


def test_of_a_segment_that_was_cut_nothing_behind_the_cut_is_restored() -> None:
    async def scenario() -> None:
        source, target = SimulatedStore(), SimulatedStore()
        log = TieredLog()
        for number in range(6):
            log.append([b"%d" % number] * 2, timestamp=number)
        log.roll(1)
        (extent,) = cover(await log.upload(source), lambda _: 8).extents
        to = Target(NEW, 0, 0)
        done = await restore_segment(SegmentObjects(source), extent, SegmentObjects(target), to)
        assert await check_segment(target, done.segment) is None
        assert [record.offset for record in records_of(target, done.segment)] == list(range(8))

    asyncio.run(scenario())


def test_damage_is_not_restored() -> None:
    async def scenario() -> None:
        source, target = SimulatedStore(), SimulatedStore()
        log = some_log()
        extents = cover(await log.upload(source)).extents
        source.corrupt(object_key(extents[1].segment, ObjectKind.LOG))
        with pytest.raises(RecordsError):
            await restore_segment(
                SegmentObjects(source), extents[1], SegmentObjects(target), Target(NEW, 0, 100)
            )
        assert not [key for key in target.objects if key.endswith("checkpoint")]

    asyncio.run(scenario())


def test_no_producer_is_restored() -> None:
    assert decode_snapshot(EMPTY_SNAPSHOT, "x") == []


def test_a_transaction_whose_end_is_lost_is_aborted() -> None:
    async def scenario() -> None:
        source, target = SimulatedStore(), SimulatedStore()
        log = TieredLog()
        log.append([b"kept"] * 2, timestamp=7)
        log.append([b"open"] * 2, producer_id=1, timestamp=9)
        log.append([b"too"] * 2, producer_id=2, timestamp=8)
        log.append([b"kept"] * 2, timestamp=5)
        log.roll()
        (extent,) = cover(await log.upload(source)).extents
        undecided = await open_transactions(SegmentObjects(source), extent.segment)
        assert [(each.producer_id, each.first_offset) for each in undecided] == [(1, 2), (2, 4)]
        assert await stable_end(SegmentObjects(source), extent.segment) == 2
        done = await restore_segment(
            SegmentObjects(source), extent, SegmentObjects(target), Target(NEW, 0, 0), undecided
        )
        assert await check_segment(target, done.segment) is None
        assert (done.segment.end_offset, done.segment.max_timestamp_ms) == (9, 9)
        assert len(records_of(target, done.segment)) == 8
        search = AbortedSearch(SegmentObjects(target), cover([done.segment]).extents)
        found = [(each.producer_id, each.first_offset) for each in await search.between(0, 10)]
        assert found == [(1, 2), (2, 4)]
        assert await open_transactions(SegmentObjects(target), done.segment) == []

    asyncio.run(scenario())
