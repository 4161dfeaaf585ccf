"""Metadata of remote segments: costs do not depend on how many segments there are."""

import asyncio
from asyncio.events import Handle
from pathlib import Path

import pytest

from headrace.log.real_disk import RealDisk
from headrace.remote.cache import SegmentCache
from headrace.remote.events import encode_event
from headrace.remote.segments import SegmentState
from headrace.remote.snapshot import Head, encode_snapshot, pieces_of
from headrace.tier.event_log import InProcessEventLog
from headrace.tier.metadata_manager import TopicMetadata
from headrace.tier.snapshots import FOLDER, MetadataSnapshots, path_of
from tests.growth.slices import SLICE_STEPS_MAX
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.remote.segments import ORDERS, partition, segment, update
from tests.unit.tier.logs import until

KEY = ORDERS.key
FINISHED = SegmentState.COPY_FINISHED


def cache_of(count: int, *, is_txn_index_empty: bool = False) -> SegmentCache:
    cache = SegmentCache()
    for number in range(count):
        start = number * 10
        cache.restore(
            segment(
                number + 1,
                start,
                start + 9,
                (number // 100, start),
                state=FINISHED,
                is_txn_index_empty=is_txn_index_empty,
            )
        )
    return cache


def test_a_look_up_costs_the_same_with_many_segments() -> None:
    def look_up(count: int) -> int:
        cache = cache_of(count)
        offset = count * 5

        def work() -> None:
            assert cache.find(KEY, count // 200, offset) is not None
            cache.find(KEY, count // 200, 10**9)
            cache.find_with_aborted(KEY, count // 200, offset)
            cache.highest_offset(KEY, count // 200)
            cache.size_bytes(KEY, count // 200)

        return steps(work)

    assert_stays_flat(look_up, 1250)


def test_the_next_aborted_transaction_is_not_searched_for_segment_by_segment() -> None:
    def look_up(count: int) -> int:
        cache = SegmentCache()
        for number in range(count):
            is_empty = number + 1 < count
            start = number * 10
            cache.restore(
                segment(number + 1, start, start + 9, state=FINISHED, is_txn_index_empty=is_empty)
            )
        return steps(lambda: cache.find_with_aborted(KEY, 0, 0))

    assert_stays_flat(look_up, 1250)


def test_an_event_costs_the_same_with_many_segments() -> None:
    def apply(count: int) -> int:
        cache = cache_of(count)
        start = count * 10
        new = segment(count + 1, start, start + 9, (count // 100, start))
        oldest = segment(1, 0, 9)

        def work() -> None:
            cache.apply(new)
            cache.apply(update(new, FINISHED))
            cache.apply(update(oldest, SegmentState.DELETE_STARTED))
            cache.apply(update(oldest, SegmentState.DELETE_FINISHED))

        return steps(work)

    assert_stays_flat(apply, 1250)


def test_copies_in_any_order_cost_what_they_are() -> None:
    def apply(count: int) -> int:
        cache = SegmentCache()
        order = [number * 7919 % count for number in range(count)]

        def work() -> None:
            for number in order:
                one = segment(number + 1, number * 10, number * 10 + 9)
                cache.apply(one)
                cache.apply(update(one, FINISHED))

        return steps(work)

    assert_grows_linearly(apply, 500)


def test_a_snapshot_is_read_in_a_thread(tmp_path: Path) -> None:
    def load(count: int) -> int:
        log = InProcessEventLog(1)
        folder = tmp_path / str(count)
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        head = Head(log.log_id, 0, 0)
        (folder / path_of(0)).write_bytes(encode_snapshot(head, pieces_of(cache_of(count))))

        async def main() -> None:
            metadata = TopicMetadata(log, MetadataSnapshots(RealDisk(folder)))
            await metadata.start()
            ready = asyncio.Event()
            metadata.on_changed.append(lambda key: ready.set())
            metadata.follow([ORDERS])
            await ready.wait()
            assert metadata.segment_count == count
            await metadata.stop()

        return steps(lambda: asyncio.run(main()))

    assert_stays_flat(load, 1250)


def test_no_turn_of_the_loop_is_long_while_a_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = InProcessEventLog(1)
    for number in range(1000):
        start = number * 10
        log.partitions[0].append(encode_event(segment(number + 1, start, start + 9)))
    followed = [ORDERS, *map(partition, range(1000))]
    turns: list[int] = []
    run = Handle._run
    monkeypatch.setattr(Handle, "_run", lambda handle: turns.append(steps(lambda: run(handle))))

    async def main() -> None:
        metadata = TopicMetadata(log)
        await metadata.start()
        metadata.follow(followed)
        await until(lambda: metadata.is_ready(KEY))
        assert metadata.segment_count == 1000
        await metadata.stop()

    asyncio.run(main())
    assert max(turns) <= SLICE_STEPS_MAX
