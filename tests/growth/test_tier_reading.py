"""Reads from the tier cost what they return, whatever the tier has."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.log.epochs import EpochStart, LeaderEpochs
from headrace.log.log import Log
from headrace.remote.cache import SegmentCache
from headrace.remote.segments import RemoteSegment
from headrace.testing.disk import SimulatedDisk
from headrace.tier.lineage import find_stretch
from headrace.tier.read_limits import ReadLimits
from headrace.tier.reading import RemoteReader
from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.tier.tiers import (
    NO_END,
    ORDERS,
    CopiedLog,
    ListedMetadata,
    MemoryObjects,
    segment_of,
    small_log,
)


class CachedMetadata(ListedMetadata):
    """Descriptions in the cache that a node has."""

    def __init__(self, segments: list[RemoteSegment]) -> None:
        super().__init__(segments)
        cache = SegmentCache()
        for segment in segments:
            cache.restore(segment)
        self.find = cache.find  # type: ignore[method-assign]
        self.find_with_aborted = cache.find_with_aborted  # type: ignore[method-assign]
        self.segments = cache.segments  # type: ignore[method-assign]
        self.segments_of = cache.segments_of  # type: ignore[method-assign]


def steps_of(work: Coroutine[Any, Any, object]) -> int:
    """Return the cost of work that does not wait."""

    def finish() -> None:
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("it waits")

    return steps(finish)


def reader_of(log: Log) -> RemoteReader:
    copied = CopiedLog(log)
    return RemoteReader(
        CachedMetadata(copied.segments),
        copied.objects,
        SimulatedDisk(),
        ReadLimits(read_ahead_bytes_max=0),
        now_ms=lambda: 0,
    )


def cost_of_a_read(log: Log) -> int:
    async def measured() -> int:
        reader = reader_of(log)
        offset = log.segments[-2].base_offset + 2

        def read() -> Coroutine[Any, Any, object]:
            return reader.read(ORDERS, log.epochs, offset, 200, up_to=NO_END, with_aborted=True)

        await read()
        return steps_of(read())

    return asyncio.run(measured())


def test_a_read_does_not_pay_for_other_segments() -> None:
    assert_stays_flat(lambda count: cost_of_a_read(small_log(6 * count)), 20)


def test_a_read_does_not_pay_for_the_size_of_its_segment() -> None:
    def cost(count: int) -> int:
        log = small_log(count, segment_bytes=10**9)
        log.roll(log.end_offset)
        return cost_of_a_read(log)

    assert_stays_flat(cost, 100)


def test_a_segment_is_found_among_many_at_the_same_cost() -> None:
    def cost(count: int) -> int:
        segments = [segment_of(at * 10, at * 10 + 9, (at, at * 10)) for at in range(count)]
        epochs = LeaderEpochs(EpochStart(at, at * 10) for at in range(count))
        metadata = CachedMetadata(segments)
        return steps(lambda: find_stretch(metadata, ORDERS.key, epochs, 5 * count))

    assert_stays_flat(cost, 200)


def test_a_sequential_read_costs_what_it_returns() -> None:
    def cost(count: int) -> int:
        log = small_log(count)

        async def consume() -> int:
            reader = reader_of(log)

            def reads() -> list[Coroutine[Any, Any, object]]:
                return [
                    reader.read(ORDERS, log.epochs, offset, 1, up_to=NO_END)
                    for offset in range(log.segments[-1].base_offset)
                ]

            for each in reads():
                await each
            return sum(map(steps_of, reads()))

        return asyncio.run(consume())

    assert_grows_linearly(cost, 60)


def test_a_look_up_by_time_passes_over_old_segments_quickly() -> None:
    def cost(count: int) -> int:
        segments = [segment_of(at * 10, at * 10 + 9, (0, at * 10)) for at in range(count)]
        metadata = CachedMetadata(segments)
        epochs = LeaderEpochs([EpochStart(0, 0)])

        async def measured() -> int:
            reader = RemoteReader(
                metadata, MemoryObjects(), SimulatedDisk(), ReadLimits(), now_ms=lambda: 0
            )
            found = reader.find_time(ORDERS, epochs, 5000, start_offset=0, up_to=NO_END)
            return steps_of(found)

        return asyncio.run(measured())

    assert_grows_linearly(cost, 100)
