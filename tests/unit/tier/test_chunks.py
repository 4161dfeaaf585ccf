"""Chunks of segments: fetched once, kept within bounds, ahead of sequential readers."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.remote.indexes import DamagedSegment
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import StoreError
from headrace.tier.chunks import UNREAD_MS_MAX, Chunks
from headrace.tier.ports import Throttled
from headrace.tier.read_limits import ReadLimits
from tests.unit.tier.tiers import MemoryObjects, segment_of

LIMITS = ReadLimits(chunk_bytes=100, chunk_cache_bytes=1000, fill_bytes_max=10_000)
DATA = bytes(range(256)) * 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def stored(size: int = 1000) -> tuple[MemoryObjects, RemoteSegment]:
    objects = MemoryObjects()
    segment = segment_of(0, 99, size_bytes=size)
    objects.logs[segment.id] = DATA[:size]
    return objects, segment


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 1200))
def test_any_range_is_read(one: int, other: int, chunk_bytes: int) -> None:
    async def scenario() -> None:
        objects, segment = stored()
        limits = ReadLimits(chunk_bytes=chunk_bytes, chunk_cache_bytes=1000)
        chunks = Chunks(objects, limits, lambda: 0)
        begin, end = sorted((one, other))
        for _ in range(2):
            assert await chunks.read(segment, begin, end) == DATA[begin:end]

    run(scenario())


def test_requests_are_aligned_and_made_once() -> None:
    async def scenario() -> None:
        objects, segment = stored(950)
        chunks = Chunks(objects, LIMITS, lambda: 0)
        await asyncio.gather(*(chunks.read(segment, at, at + 20) for at in range(0, 930, 7)))
        assert sorted(objects.requests) == [(at, min(at + 100, 950)) for at in range(0, 950, 100)]
        assert chunks.view(segment, 0, 950) == memoryview(DATA)[:950]
        assert (chunks.fetch_count, chunks.fetched_bytes, chunks.held_bytes) == (10, 950, 950)

    run(scenario())


def test_a_read_within_a_chunk_is_no_copy() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        chunks = Chunks(objects, LIMITS, lambda: 0)
        found = await chunks.read(segment, 110, 150)
        assert found.obj is objects.logs[segment.id]

    run(scenario())


def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        limits = ReadLimits(chunk_bytes=100, chunk_cache_bytes=300)
        chunks = Chunks(objects, limits, lambda: 0)
        for at in (0, 100, 200, 0, 300):
            await chunks.read(segment, at, at + 1)
        assert chunks.held_bytes == 300
        assert [chunks.view(segment, at, at + 1) is not None for at in (0, 100, 200, 300)] == [
            True,
            False,
            True,
            True,
        ]
        chunks.configure(ReadLimits(chunk_bytes=100, chunk_cache_bytes=100))
        assert chunks.held_bytes == 100

    run(scenario())


def test_without_a_cache_reads_work() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        chunks = Chunks(objects, ReadLimits(chunk_bytes=100, chunk_cache_bytes=0), lambda: 0)
        assert await chunks.read(segment, 50, 450) == DATA[50:450]
        assert chunks.held_bytes == 0
        assert not chunks.begin_ahead(segment, 7)

    run(scenario())


def test_fills_under_way_are_bounded() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        limits = ReadLimits(chunk_bytes=100, fill_bytes_max=250, fills_max=10)
        chunks = Chunks(objects, limits, lambda: 0)
        assert await chunks.read(segment, 0, 1000) == DATA[:1000]
        assert objects.under_way_max == 2
        limits = ReadLimits(chunk_bytes=100, fills_max=3)
        chunks = Chunks(objects, limits, lambda: 0)
        objects.under_way_max = 0
        assert await chunks.read(segment, 0, 1000) == DATA[:1000]
        assert objects.under_way_max == 3

    run(scenario())


def test_an_object_that_is_too_short_is_damaged_and_not_kept() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        objects.logs[segment.id] = DATA[:950]
        chunks = Chunks(objects, LIMITS, lambda: 0)
        for _ in range(2):
            with pytest.raises(DamagedSegment):
                await chunks.read(segment, 900, 940)
        objects.logs[segment.id] = DATA[:1000]
        assert await chunks.read(segment, 900, 940) == DATA[900:940]

    run(scenario())


def test_a_store_that_never_answers_is_given_up() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        objects.gate = asyncio.Event()
        limits = ReadLimits(chunk_bytes=100, fill_timeout_ms=1)
        chunks = Chunks(objects, limits, lambda: 0)
        with pytest.raises(StoreError):
            await chunks.read(segment, 0, 10)

    run(scenario())


def test_a_quota_holds_back_requests_and_not_what_is_at_hand() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        now_ms = 0
        limits = ReadLimits(
            chunk_bytes=100, bytes_per_second=100, quota_windows=2, quota_window_ms=1000
        )
        chunks = Chunks(objects, limits, lambda: now_ms)
        await chunks.read(segment, 0, 100)
        await chunks.read(segment, 100, 200)
        with pytest.raises(Throttled):
            await chunks.read(segment, 200, 300)
        assert not chunks.begin_ahead(segment, 2)
        assert await chunks.read(segment, 0, 200) == DATA[:200]
        now_ms = 3000
        assert await chunks.read(segment, 200, 300) == DATA[200:300]

    run(scenario())


def test_dropped_segments_leave_nothing() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        chunks = Chunks(objects, LIMITS, lambda: 0)
        await chunks.read(segment, 0, 1000)
        assert chunks.segments_of(segment.key) == [segment.id]
        chunks.drop_segment(segment.id)
        assert chunks.held_bytes == 0
        assert chunks.segments_of(segment.key) == []
        assert chunks.view(segment, 0, 10) is None

    run(scenario())


def test_reading_ahead_never_fills_more_than_half_of_the_cache() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        chunks = Chunks(objects, LIMITS, lambda: 0)
        assert [chunks.begin_ahead(segment, number) for number in range(7)] == [True] * 5 + [
            False
        ] * 2
        await chunks.read(segment, 0, 100)
        assert chunks.begin_ahead(segment, 5)
        await chunks.close()

    run(scenario())


def test_what_nobody_came_for_makes_room_for_other_readers() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        now_ms = 0
        chunks = Chunks(objects, LIMITS, lambda: now_ms)
        for number in range(5):
            assert chunks.begin_ahead(segment, number)
        while chunks.held_bytes < 500:
            await asyncio.sleep(0)
        assert not chunks.begin_ahead(segment, 5)
        now_ms = UNREAD_MS_MAX
        assert chunks.begin_ahead(segment, 5)
        assert chunks.wasted_count == 1
        await chunks.close()

    run(scenario())


def test_what_was_fetched_ahead_for_nobody_is_given_up_and_dropped_first() -> None:
    async def scenario() -> None:
        objects, segment = stored()
        chunks = Chunks(objects, ReadLimits(chunk_bytes=100, chunk_cache_bytes=400), lambda: 0)
        assert chunks.begin_ahead(segment, 0)
        while chunks.held_bytes < 100:
            await asyncio.sleep(0)
        objects.gate = asyncio.Event()
        assert chunks.begin_ahead(segment, 1)
        await asyncio.sleep(0)
        assert objects.under_way == 1
        chunks.abandon([(segment.id, 0), (segment.id, 1)])
        while objects.under_way:
            await asyncio.sleep(0)
        objects.gate = None
        for at in (200, 300, 400, 500):
            await chunks.read(segment, at, at + 1)
        assert chunks.wasted_count == 1
        assert chunks.view(segment, 200, 201) is not None

    run(scenario())
