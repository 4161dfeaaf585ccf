import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.records.header import read_headers
from headrace.remote.coverage import Extent, cover
from headrace.remote.searching import AbortedSearch, first_offset_at
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segment_reads import SegmentRead
from headrace.testing.store import SimulatedStore
from tests.unit.remote.tiered import TieredLog

T = TypeVar("T")


def in_store(
    log: TieredLog, work: Callable[[SegmentObjects, Sequence[Extent]], Coroutine[Any, Any, T]]
) -> T:
    async def run() -> T:
        store = SimulatedStore()
        segments = await log.upload(store)
        return await work(SegmentObjects(store), cover(segments).extents)

    return asyncio.run(run())


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=10),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(1, 400),
)
def test_a_read_gives_the_batches_that_have_the_offsets_in_parts_of_any_size(
    sizes: list[int], start: int, stop: int, part_bytes: int
) -> None:
    log = TieredLog()
    for size in sizes:
        log.append([b"value"] * size)
    log.roll()

    async def work(objects: SegmentObjects, extents: Sequence[Extent]) -> list[tuple[int, int]]:
        reading = SegmentRead(objects, extents[0].segment, start, stop, part_bytes=part_bytes)
        found = []
        while (batches := await reading.next_batches()) is not None:
            found += [
                (header.base_offset, header.next_offset) for _, header in read_headers(batches)
            ]
        await reading.close()
        return found

    expected, at = [], 0
    for size in sizes:
        if at < stop and at + size > start and start < stop:
            expected.append((at, at + size))
        at += size
    assert in_store(log, work) == expected


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(0, 21),
)
def test_the_first_record_of_a_time_is_exact(times: list[list[int]], wanted: int) -> None:
    log = TieredLog()
    for segment in times:
        for timestamp in segment:
            log.append([b"a", b"b"], timestamp=timestamp)
        log.roll()
    flat = [timestamp for segment in times for each in segment for timestamp in (each, each)]
    expected = next((offset for offset, each in enumerate(flat) if each >= wanted), None)
    assert in_store(log, lambda objects, extents: first_offset_at(objects, extents, wanted)) == (
        expected
    )


def test_a_transaction_that_was_aborted_in_a_later_segment_is_found() -> None:
    log = TieredLog()
    log.append([b"lost"] * 2, producer_id=1)
    log.append([b"kept"] * 2, producer_id=2)
    log.roll()
    log.append([b"more"])
    log.roll()
    log.end(2, is_commit=True)
    log.append([b"other"], producer_id=3)
    log.end(1, is_commit=False)
    log.end(3, is_commit=False)
    log.roll()

    async def work(objects: SegmentObjects, extents: Sequence[Extent]) -> list[list[int]]:
        search = AbortedSearch(objects, extents)
        return [
            [each.producer_id for each in await search.between(*between)]
            for between in ((0, 4), (4, 5), (5, 10), (8, 10))
        ]

    assert in_store(log, work) == [[1], [1], [1, 3], [3]]


def test_a_marker_behind_the_cut_of_a_segment_aborts_nothing() -> None:
    log = TieredLog()
    log.append([b"lost"], producer_id=1)
    log.append([b"kept"], producer_id=2)
    log.end(1, is_commit=False)
    log.end(2, is_commit=False)
    log.roll()

    async def work(objects: SegmentObjects, extents: Sequence[Extent]) -> list[int]:
        cut = [extents[0]._replace(stop=3)]
        return [each.producer_id for each in await AbortedSearch(objects, cut).between(0, 3)]

    assert in_store(log, work) == [1]


def test_an_index_is_fetched_once() -> None:
    log = TieredLog()
    for _ in range(3):
        log.append([b"x"], producer_id=1)
        log.end(1, is_commit=False)
        log.roll()

    async def work(objects: SegmentObjects, extents: Sequence[Extent]) -> int:
        before = objects.counts.gets
        search = AbortedSearch(objects, extents)
        for offset in range(6):
            await search.between(offset, offset + 1)
        return objects.counts.gets - before

    assert in_store(log, work) == 3
