"""Indexes on the disk: fetched once, checked, bounded, there after a restart."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from headrace.remote.layout import ObjectKind
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import StoreError
from headrace.testing.disk import ALWAYS, SimulatedDisk
from headrace.tier.index_cache import IndexCache
from headrace.tier.index_files import FOLDER
from headrace.tier.read_limits import ReadLimits
from tests.unit.tier.tiers import MemoryObjects, segment_of

OFFSETS = ObjectKind.OFFSET_INDEX
FIRST, SECOND, THIRD = (segment_of(at, at + 9) for at in (0, 10, 20))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Setting:
    """A cache whose node can be restarted."""

    def __init__(self, **limits: int) -> None:
        self.objects = MemoryObjects()
        self.disk = SimulatedDisk()
        self.now_ms = 0
        for number, segment in enumerate((FIRST, SECOND, THIRD)):
            for kind in (OFFSETS, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX):
                self.objects.indexes[segment.id, kind] = f"{number}{kind}".encode() * 100
        self.limits = msgspec.structs.replace(ReadLimits(), **limits)
        self.cache = self.restarted()

    def restarted(self) -> IndexCache:
        self.cache = IndexCache(self.disk, self.objects, self.limits, lambda: self.now_ms)
        return self.cache

    async def read(self, segment: RemoteSegment, kind: ObjectKind = OFFSETS) -> bytes:
        return bytes((await self.cache.get(segment, kind)).data)

    @property
    def fetch_count(self) -> int:
        return sum(self.objects.index_requests.values())

    @property
    def files(self) -> dict[str, int]:
        return self.disk.list(FOLDER)


class Unused:
    """Something else that is mapped."""

    def unmap(self) -> None:
        pass


async def settle(cache: IndexCache) -> None:
    """Wait until files are removed that are to go."""
    while cache.is_removing:
        await asyncio.sleep(0.001)


def test_an_index_is_fetched_once_for_many_readers() -> None:
    async def scenario() -> None:
        setting = Setting()
        found = await asyncio.gather(*(setting.read(FIRST) for _ in range(5)))
        assert set(found) == {b"0.index" * 100}
        assert setting.fetch_count == 1
        assert await setting.read(FIRST, ObjectKind.TIME_INDEX) == b"0.timeindex" * 100
        assert setting.cache.peek(FIRST, OFFSETS) is not None

    run(scenario())


def test_indexes_survive_a_restart() -> None:
    async def scenario() -> None:
        setting = Setting()
        for segment in (FIRST, SECOND):
            await setting.read(segment)
        cache = setting.restarted()
        assert await setting.read(SECOND) == b"1.index" * 100
        assert await setting.read(FIRST) == b"0.index" * 100
        assert setting.fetch_count == 2
        assert sorted(cache.segments_of(FIRST.key)) == sorted([FIRST.id, SECOND.id])
        assert cache.held_bytes == 1400

    run(scenario())


@pytest.mark.parametrize("cut", [1, 3, 4, 100, 703])
def test_a_torn_file_is_fetched_again(cut: int) -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(FIRST)
        (name,) = setting.files
        file = setting.disk.open(f"{FOLDER}/{name}")
        file.truncate(file.size - cut)
        setting.restarted()
        assert await setting.read(FIRST) == b"0.index" * 100
        assert setting.fetch_count == 2
        setting.restarted()
        assert await setting.read(FIRST) == b"0.index" * 100
        assert setting.fetch_count == 2

    run(scenario())


def test_leftovers_of_a_crash_are_removed_and_foreign_files_left_alone() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(FIRST)
        (name,) = setting.files
        for other in (f"{name}.tmp", "0_oAtiIQ95REujbuzNd_lkLQ.index"):
            setting.disk.open(f"{FOLDER}/{other}", create=True).append(b"something")
        setting.restarted()
        await setting.read(SECOND)
        assert f"{name}.tmp" not in setting.files
        assert "0_oAtiIQ95REujbuzNd_lkLQ.index" in setting.files

    run(scenario())


def test_the_folder_is_bounded_and_keeps_what_was_used_last() -> None:
    async def scenario() -> None:
        setting = Setting(index_cache_bytes=1500)
        for segment in (FIRST, SECOND, FIRST, THIRD):
            await setting.read(segment)
        await settle(setting.cache)
        assert setting.cache.held_bytes == 1400
        assert len(setting.files) == 2
        assert setting.cache.peek(SECOND, OFFSETS) is None
        assert await setting.read(SECOND) == b"1.index" * 100
        setting.limits = msgspec.structs.replace(setting.limits, index_cache_bytes=800)
        setting.restarted()
        await setting.read(SECOND)
        await settle(setting.cache)
        assert len(setting.files) == 1

    run(scenario())


def test_what_is_not_used_for_long_is_dropped() -> None:
    async def scenario() -> None:
        setting = Setting(index_ttl_ms=1000)
        await setting.read(FIRST)
        setting.now_ms = 900
        await setting.read(SECOND)
        setting.now_ms = 1001
        setting.cache.expire()
        await settle(setting.cache)
        assert setting.cache.segments_of(FIRST.key) == [SECOND.id]
        assert len(setting.files) == 1

    run(scenario())


def test_without_a_time_limit_nothing_gets_too_old() -> None:
    async def scenario() -> None:
        setting = Setting(index_ttl_ms=-1)
        await setting.read(FIRST)
        setting.now_ms = 10**12
        setting.cache.expire()
        assert setting.cache.segments_of(FIRST.key) == [FIRST.id]

    run(scenario())


def test_indexes_of_a_deleted_segment_are_removed() -> None:
    async def scenario() -> None:
        setting = Setting()
        for segment in (FIRST, SECOND):
            await setting.read(segment)
            await setting.read(segment, ObjectKind.TXN_INDEX)
        setting.cache.drop_segment(FIRST.id)
        await settle(setting.cache)
        assert setting.cache.segments_of(FIRST.key) == [SECOND.id]
        assert len(setting.files) == 2

    run(scenario())


def test_a_failure_of_the_store_is_not_kept() -> None:
    async def scenario() -> None:
        setting = Setting()
        setting.objects.errors = [StoreError("away")]
        readers = await asyncio.gather(
            *(setting.read(FIRST) for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(each, StoreError) for each in readers)
        assert await setting.read(FIRST) == b"0.index" * 100

    run(scenario())


@pytest.mark.parametrize("operation", ["make_folder", "list", "create", "append", "rename", "open"])
def test_a_disk_that_fails_costs_the_cache_and_not_the_read(operation: Any) -> None:
    async def scenario() -> None:
        setting = Setting()
        setting.disk.fail(operation, "*", times=ALWAYS)
        assert await setting.read(FIRST) == b"0.index" * 100
        assert await setting.read(FIRST) == b"0.index" * 100
        assert setting.fetch_count == 1

    run(scenario())


def test_a_map_that_the_disk_takes_back_is_made_again() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(FIRST)
        for _ in range(setting.disk.maps.maximum):
            setting.disk.maps.hold(Unused())
        assert setting.cache.peek(FIRST, OFFSETS) is None
        assert await setting.read(FIRST) == b"0.index" * 100
        assert setting.fetch_count == 1

    run(scenario())


def test_an_empty_index_is_remembered() -> None:
    async def scenario() -> None:
        setting = Setting()
        setting.objects.indexes[FIRST.id, ObjectKind.TXN_INDEX] = b""
        for _ in range(3):
            assert await setting.read(FIRST, ObjectKind.TXN_INDEX) == b""
        assert setting.fetch_count == 1

    run(scenario())


def test_a_closed_cache_leaves_no_thread_on_the_disk() -> None:
    async def scenario() -> None:
        setting = Setting()
        await setting.read(FIRST)
        setting.cache.begin(SECOND, OFFSETS)
        while setting.fetch_count < 2:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)  # the thread may have begun to write
        setting.cache.drop_segment(FIRST.id)
        await setting.cache.close()
        counts = setting.disk.counts.copy()
        await asyncio.sleep(0.01)
        assert setting.disk.counts == counts

    run(scenario())
