"""Reading from the tier against the store that it reads from, and against the local log.

What do chunks, indexes and checks cost beside the store's own gets of the same objects? What is a
second read worth? Does latency add up over partitions? How many requests does a gigabyte take?
"""

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import obstore
import uvloop
from obstore.store import LocalStore

from bench.measure import Figure, parts_of, report
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.header import read_header
from headrace.remote.cache import SegmentCache
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.object_store import open_store
from headrace.remote.segment_objects import SegmentFiles, SegmentObjects
from headrace.remote.segments import (
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from headrace.tier.read_limits import ReadLimits
from headrace.tier.reading import RemoteReader
from headrace.wire.schema import Buffer

PARTS: Final = ("sequential", "partitions", "requests")
NOW_MS: Final = 1_700_000_000_000
MIB: Final = 1024 * 1024
BATCH_BYTES: Final = 16 * 1024
FETCH_BYTES: Final = MIB
"""What a consumer fetches from a partition by default."""
SEGMENT_BYTES: Final = 64 * MIB
LOG_BYTES: Final = 3 * SEGMENT_BYTES
SMALL_CACHE_BYTES: Final = 64 * MIB
"""A third of the log: memory is used again, as in any scan that is longer than a cache."""
ROUNDS: Final = 7
LATENCY_SECONDS: Final = 0.020
PARTITIONS: Final = 16
PARTITION_BYTES: Final = 16 * MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="?", type=parts_of(PARTS), default=PARTS)
    parts = parser.parse_args().parts
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report(runner.run(measure(parts)))


async def measure(parts: Sequence[str]) -> list[Figure]:
    figures = []
    if "sequential" in parts or "requests" in parts:
        with temporary_folder() as folder:
            copied = await Copied.create(folder, LOG_BYTES)
            if "sequential" in parts:
                figures += [await read_sequentially(copied), await read_again(copied)]
            if "requests" in parts:
                figures.append(await count_requests(copied))
            copied.close()
    if "partitions" in parts:
        figures.append(await read_partitions())
    return figures


# The figures


async def read_sequentially(copied: "Copied") -> Figure:
    """Read a cold tier from end to end; the peer gets the same objects in as large pieces.

    Both keep as much in memory, and less than there is to read: a buffer that is used again at once
    stays in the processor's cache, which is what would be compared.
    """
    copied.objects.native = native = LocalStore(str(copied.store_folder))
    chunk_bytes = copied.limits.chunk_bytes

    async def peer() -> None:
        kept: deque[object] = deque(maxlen=SMALL_CACHE_BYTES // chunk_bytes)
        for segment in copied.segments:
            for begin in range(0, segment.size_bytes, chunk_bytes):
                end = min(begin + chunk_bytes, segment.size_bytes)
                kept.append(await get(native, segment, begin, end))

    async def ours() -> None:
        reader = copied.reader(ReadLimits(chunk_cache_bytes=SMALL_CACHE_BYTES))
        assert await consume(reader, copied) == copied.size_bytes
        await reader.close()

    our_seconds, bare_seconds = await side_by_side(ours, peer)
    return Figure(
        "tier.sequential_vs_obstore",
        bare_seconds / our_seconds,
        0.7,
        False,
        f"{copied.size_bytes / our_seconds / MIB:.0f} MiB/s, "
        f"gets {copied.size_bytes / bare_seconds / MIB:.0f} MiB/s",
    )


async def read_again(copied: "Copied") -> Figure:
    """Read what is in the cache; the peer reads the local log, whose pages were dropped."""
    reader = copied.reader()
    await consume(reader, copied)
    log = copied.log

    async def ours() -> None:
        assert await consume(reader, copied) == copied.size_bytes

    async def peer() -> None:
        offset, end = 0, copied.end_offset
        while offset < end:
            records = await log.read_cold(offset, FETCH_BYTES, up_to=end)
            offset += len(records) // copied.batch_bytes * copied.batch_records

    our_seconds, local_seconds = await side_by_side(ours, peer, before=copied.drop_pages)
    await reader.close()
    return Figure(
        "tier.second_read_vs_cold_local",
        local_seconds / our_seconds,
        0.9,
        False,
        f"{copied.size_bytes / our_seconds / MIB:.0f} MiB/s, "
        f"local {copied.size_bytes / local_seconds / MIB:.0f} MiB/s",
    )


async def read_partitions() -> Figure:
    """Read sixteen cold partitions at once from a store that is far away; the peer reads one."""
    with temporary_folder() as folder:
        copied = await Copied.create(folder, PARTITION_BYTES, PARTITIONS, "memory://")
        copied.objects.latency_seconds = LATENCY_SECONDS

        async def read(count: int) -> None:
            reader = copied.reader()
            await asyncio.gather(
                *(consume(reader, copied, partition) for partition in copied.partitions[:count])
            )
            await reader.close()

        all_seconds, one_seconds = await side_by_side(lambda: read(PARTITIONS), lambda: read(1))
        copied.close()
    detail = f"{PARTITIONS} in {all_seconds * 1000:.0f} ms, one in {one_seconds * 1000:.0f} ms"
    ratio = PARTITIONS * one_seconds / all_seconds
    return Figure(f"tier.{PARTITIONS}_partitions_vs_1", ratio, 4, False, detail)


async def count_requests(copied: "Copied") -> Figure:
    """Count the gets of a sequential read, aborted transactions included."""
    reader = copied.reader()
    before = copied.objects.counts.gets
    await consume(reader, copied, is_committed=True)
    await reader.close()
    count = copied.objects.counts.gets - before
    chunk_bytes = copied.limits.chunk_bytes
    ideal = copied.size_bytes / chunk_bytes + 3 * len(copied.segments)
    per_gb = count / (copied.size_bytes / 1e9)
    detail = f"{count} requests, {per_gb:.0f} per GB, chunks of {chunk_bytes // MIB} MiB"
    return Figure("tier.requests_vs_ideal", count / ideal, 1.1, True, detail)


def get(
    native: LocalStore, segment: RemoteSegment, begin: int, end: int
) -> Awaitable[obstore.Bytes]:
    key = object_key(segment, ObjectKind.LOG)
    return obstore.get_range_async(native, key, start=begin, end=end)


async def consume(
    reader: RemoteReader,
    copied: "Copied",
    partition: TopicIdPartition | None = None,
    *,
    is_committed: bool = False,
) -> int:
    """Read a partition as a consumer does; return how many bytes of whole batches came."""
    epochs, end = copied.log.epochs, copied.end_offset
    offset = byte_count = 0
    while offset < end:
        found = await reader.read(
            partition or copied.partitions[0],
            epochs,
            offset,
            FETCH_BYTES,
            up_to=end,
            with_aborted=is_committed,
        )
        whole = len(found.records) // copied.batch_bytes
        offset += whole * copied.batch_records
        byte_count += whole * copied.batch_bytes
    return byte_count


async def side_by_side(
    ours: Callable[[], Awaitable[None]],
    peer: Callable[[], Awaitable[None]],
    before: Callable[[], None] = lambda: None,
) -> tuple[float, float]:
    """Return the median time of each, measured in turns."""
    samples: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for work, sample in zip((ours, peer), samples, strict=True):
            before()
            begin = time.perf_counter()
            await work()
            if number:
                sample.append(time.perf_counter() - begin)
    return statistics.median(samples[0]), statistics.median(samples[1])


# What is read


class Described:
    """The descriptions that a node has, as far as reading needs them."""

    def __init__(self) -> None:
        self.cache = SegmentCache()
        self.on_changed: list[Callable[[PartitionKey], None]] = []

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        raise NotImplementedError

    def is_ready(self, key: PartitionKey) -> bool:
        return True

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        return self.cache.find(key, epoch, offset)

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        return self.cache.find_with_aborted(key, epoch, offset)

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        return self.cache.highest_offset(key, epoch)

    def segments(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        return self.cache.segments(key)

    def segments_of(self, key: PartitionKey, epoch: int) -> Sequence[RemoteSegment]:
        return self.cache.segments_of(key, epoch)

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        return self.cache.size_bytes(key, epoch)

    async def add(self, segment: RemoteSegment) -> None:
        raise NotImplementedError

    async def update(self, update: SegmentUpdate) -> None:
        raise NotImplementedError

    async def delete_partition(self, delete: PartitionDelete) -> None:
        raise NotImplementedError


class BenchObjects(SegmentObjects):
    """Objects of a store that takes its time, or of a folder that obstore reads."""

    latency_seconds = 0.0
    native: LocalStore | None = None

    async def fetch(self, segment: RemoteSegment, begin: int, end: int) -> Buffer:
        if self.native is not None:
            self.counts.gets += 1
            return memoryview(await get(self.native, segment, begin, end))
        await asyncio.sleep(self.latency_seconds)
        return await super().fetch(segment, begin, end)

    async def fetch_index(self, segment: RemoteSegment, kind: ObjectKind) -> Buffer:
        await asyncio.sleep(self.latency_seconds)
        return await super().fetch_index(segment, kind)


class Copied:
    """A log, and copies of it in a folder that is the store."""

    def __init__(self, folder: Path, size_bytes: int, partition_count: int, url: str) -> None:
        self.disk = RealDisk(folder / "data")
        self.store_folder = folder / "store"
        self.store_folder.mkdir()
        self.log: Log = open_log(
            self.disk, "ours-0", LogSettings(segment_bytes=SEGMENT_BYTES), is_clean=True
        )
        batch = build_batch()
        self.batch_bytes, self.batch_records = len(batch), read_header(batch).record_count
        while self.log.size_bytes < size_bytes:
            self.log.append(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
        self.log.roll(self.log.end_offset)
        self.log.flusher.prepare().run()
        self.end_offset = self.log.end_offset
        self.size_bytes = self.log.size_bytes
        self.limits = ReadLimits()
        self.partitions = [
            TopicIdPartition(TopicId(b"bench-of-the-tier"[:16]), TopicName("ours"), index)
            for index in map(PartitionIndex, range(partition_count))
        ]
        self.objects = BenchObjects(open_store(url or f"file://{self.store_folder}"))
        self.segments: list[RemoteSegment] = []
        self.metadata = Described()

    @classmethod
    async def create(
        cls, folder: Path, size_bytes: int, partition_count: int = 1, url: str = ""
    ) -> "Copied":
        copied = cls(folder, size_bytes, partition_count, url)
        for partition in copied.partitions:
            for number in range(len(copied.log.segments) - 1):
                await copied._copy(partition, number)
        return copied

    async def _copy(self, partition: TopicIdPartition, number: int) -> None:
        local, following = self.log.segments[number : number + 2]

        async def parts() -> AsyncIterator[Buffer]:
            for begin in range(0, local.size_bytes, 4 * MIB):
                yield local.file.read(begin, 4 * MIB)

        segment = RemoteSegment(
            partition=partition,
            id=SegmentId(os.urandom(16)),
            start_offset=local.base_offset,
            end_offset=following.base_offset - 1,
            max_timestamp_ms=local.largest_timestamp,
            broker_id=BrokerId(1),
            event_timestamp_ms=NOW_MS,
            size_bytes=local.size_bytes,
            epochs=(SegmentEpoch(0, local.base_offset),),
            state=SegmentState.COPY_FINISHED,
            is_txn_index_empty=True,
        )
        await self.objects.copy(
            segment,
            SegmentFiles(
                parts,
                local.size_bytes,
                self.disk.read(local.path(".index")),
                self.disk.read(local.path(".timeindex")),
                None,
                b"",
                b"0\n1\n0 0\n",
            ),
        )
        self.segments.append(segment)
        self.metadata.cache.restore(segment)

    def reader(self, limits: ReadLimits | None = None) -> RemoteReader:
        """Return a reader that has read nothing yet."""
        disk = RealDisk(Path(tempfile.mkdtemp(dir=self.store_folder.parent)))
        return RemoteReader(
            self.metadata, self.objects, disk, limits or self.limits, now_ms=lambda: NOW_MS
        )

    def drop_pages(self) -> None:
        """Drop the log's files from the page cache."""
        for path in (self.store_folder.parent / "data" / "ours-0").glob("*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def close(self) -> None:
        self.log.close()
        self.disk.close()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def build_batch() -> bytearray:
    builder = BatchBuilder()
    while builder.size_bytes < BATCH_BYTES:
        builder.append(NOW_MS, os.urandom(10), os.urandom(100))
    return builder.build()


if __name__ == "__main__":
    main()
