"""Read-ahead: twice as far with each chunk, over segments, and only for sequential readers."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.remote.segments import RemoteSegment
from headrace.tier.chunks import Chunks
from headrace.tier.read_ahead import STREAMS_MAX, ReadAhead
from headrace.tier.read_limits import ReadLimits
from tests.unit.tier.tiers import MemoryObjects, segment_of

CHUNK = 100


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Setting:
    """Segments of ten chunks, one after the other."""

    def __init__(
        self, segment_count: int = 3, bytes_max: int = 8 * CHUNK, fills_max: int = 1000
    ) -> None:
        self.objects = MemoryObjects()
        self.segments = [
            segment_of(at * 100, at * 100 + 99, size_bytes=10 * CHUNK)
            for at in range(segment_count)
        ]
        for segment in self.segments:
            self.objects.logs[segment.id] = bytes(10 * CHUNK)
        limits = ReadLimits(chunk_bytes=CHUNK, chunk_cache_bytes=100_000, fills_max=fills_max)
        self.chunks = Chunks(self.objects, limits, lambda: 0)
        self.ahead = ReadAhead(self.chunks, bytes_max)

    def following(self, segment: RemoteSegment) -> RemoteSegment | None:
        number = self.segments.index(segment) + 1
        return self.segments[number] if number < len(self.segments) else None

    async def read(self, segment: int, begin: int, count: int = 50) -> None:
        """Read as a consumer does, and wait until the store is idle."""
        await self.chunks.read(self.segments[segment], begin, begin + count)
        self.ahead.advance(self.segments[segment], begin, begin + count, self.following)
        await asyncio.sleep(0)
        while self.objects.under_way:
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    @property
    def fetched(self) -> list[int]:
        return [begin // CHUNK for begin, _ in self.objects.requests]


def test_the_distance_doubles_while_access_is_sequential() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(0, 0)
        assert setting.fetched == [0]  # one read says nothing
        await setting.read(0, 50)
        assert setting.fetched == [0, 1]
        await setting.read(0, 100)
        assert setting.fetched == [0, 1, 2, 3]
        await setting.read(0, 150)
        assert setting.fetched == [0, 1, 2, 3]
        await setting.read(0, 200)
        assert setting.fetched == [0, 1, 2, 3, 4, 5, 6]

    run(scenario())


def test_what_there_was_no_room_for_is_fetched_with_the_next_read() -> None:
    async def scenario() -> None:
        setting = Setting(fills_max=1)
        await setting.read(0, 0)
        await setting.read(0, 50)
        await setting.read(0, 100)
        assert setting.fetched == [0, 1, 2]  # of a window of two
        await setting.read(0, 120)
        assert setting.fetched == [0, 1, 2, 3]
        await setting.read(0, 150)
        assert setting.fetched == [0, 1, 2, 3]
        for number in range(2, 10):
            for begin in range(number * CHUNK, (number + 1) * CHUNK, 20):
                await setting.read(0, begin, 20)
        assert setting.fetched[:10] == [*range(10)]
        assert setting.chunks.wasted_count == 0

    run(scenario())


def test_every_chunk_is_fetched_once_over_the_ends_of_segments() -> None:
    async def scenario() -> None:
        setting = Setting()
        for segment in range(3):
            for begin in range(0, 10 * CHUNK, 50):
                await setting.read(segment, begin)
        assert sorted(setting.fetched) == sorted([*range(10)] * 3)
        assert setting.chunks.wasted_count == 0

    run(scenario())


def test_the_next_segment_is_there_before_the_reader_is() -> None:
    async def scenario() -> None:
        setting = Setting()
        for begin in range(600, 10 * CHUNK, 50):
            await setting.read(0, begin)
        assert setting.chunks.view(setting.segments[1], 0, 100) is not None

    run(scenario())


def test_the_distance_is_bounded() -> None:
    async def scenario() -> None:
        setting = Setting(bytes_max=2 * CHUNK)
        for begin in range(0, 400, 50):
            await setting.read(0, begin)
        assert max(setting.fetched) == 5

    run(scenario())


def test_it_can_be_switched_off() -> None:
    async def scenario() -> None:
        setting = Setting(bytes_max=0)
        for begin in range(0, 400, 50):
            await setting.read(0, begin)
        assert setting.fetched == [0, 1, 2, 3]

    run(scenario())


def test_random_access_reads_nothing_ahead() -> None:
    async def scenario() -> None:
        setting = Setting()
        for chunk in (7, 2, 9, 0, 4):
            await setting.read(0, chunk * CHUNK)
        assert setting.fetched == [7, 2, 9, 0, 4]

    run(scenario())


def test_two_readers_of_a_partition_are_told_apart() -> None:
    async def scenario() -> None:
        setting = Setting()
        for begin in range(0, 300, 50):
            await setting.read(0, begin)
            await setting.read(2, begin)
        assert sorted(setting.fetched) == sorted([*range(7)] * 2)

    run(scenario())


def test_what_is_fetched_for_a_reader_that_went_elsewhere_is_given_up() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(0, 0)
        setting.objects.gate = asyncio.Event()
        setting.ahead.advance(setting.segments[0], 50, 100, setting.following)
        await asyncio.sleep(0)
        assert setting.objects.under_way == 1
        for number in range(STREAMS_MAX):
            begin = 200 + 200 * number
            setting.ahead.advance(setting.segments[1], begin, begin + 1, setting.following)
        for _ in range(5):
            await asyncio.sleep(0)
        assert setting.objects.under_way == 0

    run(scenario())


def test_a_partition_that_leaves_is_forgotten() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(0, 0)
        setting.objects.gate = asyncio.Event()
        setting.ahead.advance(setting.segments[0], 50, 100, setting.following)
        await asyncio.sleep(0)
        setting.ahead.forget(setting.segments[0].key)
        for _ in range(5):
            await asyncio.sleep(0)
        assert setting.objects.under_way == 0

    run(scenario())
