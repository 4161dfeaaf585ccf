"""A tier to test reading with: descriptions in a list, objects in a dict, a log that is copied."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.log.epochs import LeaderEpochs
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.log.settings import LogSettings
from headrace.remote.layout import ObjectKind
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
from headrace.remote.store import NoSuchObject
from headrace.testing.disk import SimulatedDisk
from headrace.tier.ports import NotReady
from headrace.tier.read_limits import ReadLimits
from headrace.tier.reading import RemoteReader
from headrace.wire.schema import Buffer
from tests.unit.log.logs import NOW_MS, append, open_simulated

ORDERS = TopicIdPartition(TopicId(b"orders-topic-id-"), TopicName("orders"), PartitionIndex(0))
FINISHED = SegmentState.COPY_FINISHED
SMALL = LogSettings(segment_bytes=600, index_interval_bytes=150)
NO_END = 2**62
"""An offset beyond every log."""


def small_log(count: int = 60, **settings_: Any) -> Log:
    """A log of small batches, one record each."""
    log = open_simulated(SimulatedDisk(), msgspec.structs.replace(SMALL, **settings_))
    for number in range(count):
        append(log, b"value %d" % number, timestamp=NOW_MS + number)
    log.advance_high_watermark(log.end_offset)
    return log


def segment_of(
    start: int,
    end: int,
    *epochs: tuple[int, int],
    state: SegmentState = FINISHED,
    max_timestamp_ms: int = 1000,
    size_bytes: int = 1000,
    partition: TopicIdPartition = ORDERS,
) -> RemoteSegment:
    """Describe a segment; equal arguments have the same id."""
    name = f"{partition.text} {start} {end} {epochs}"
    return RemoteSegment(
        partition=partition,
        id=SegmentId(sha256(name.encode()).digest()[:16]),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=BrokerId(1),
        event_timestamp_ms=0,
        size_bytes=size_bytes,
        epochs=tuple(SegmentEpoch(*each) for each in epochs or ((0, start),)),
        state=state,
    )


class ListedMetadata:
    """Descriptions in a list, found the slow and obvious way."""

    def __init__(self, segments: Iterable[RemoteSegment] = ()) -> None:
        self.all = sorted(segments, key=lambda each: each.start_offset)
        self.on_changed: list[Callable[[PartitionKey], None]] = []
        self.is_caught_up = True

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        raise NotImplementedError

    def is_ready(self, key: PartitionKey) -> bool:
        return self.is_caught_up

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        for segment in reversed(self.segments_of(key, epoch)):
            begin, end = _range_of(segment, epoch)
            if begin <= offset < end and segment.state == FINISHED:
                return segment
        return None

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        for segment in self.segments_of(key, epoch):
            _, end = _range_of(segment, epoch)
            is_finished = segment.state == FINISHED
            if is_finished and end > offset and not segment.is_txn_index_empty:
                return segment
        return None

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        raise NotImplementedError

    def segments(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        if not self.is_caught_up:
            raise NotReady("it is a test")
        return [each for each in self.all if each.key == key]

    def segments_of(self, key: PartitionKey, epoch: int) -> Sequence[RemoteSegment]:
        return [
            each for each in self.segments(key) if any(own.epoch == epoch for own in each.epochs)
        ]

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        raise NotImplementedError

    async def add(self, segment: RemoteSegment) -> None:
        raise NotImplementedError

    async def update(self, update: SegmentUpdate) -> None:
        raise NotImplementedError

    async def delete_partition(self, delete: PartitionDelete) -> None:
        raise NotImplementedError

    def remove(self, segment: RemoteSegment) -> None:
        """Take a segment as deleted."""
        self.all.remove(segment)
        for call in self.on_changed:
            call(segment.key)


def _range_of(segment: RemoteSegment, epoch: int) -> tuple[int, int]:
    """Return the first offset of an epoch in a segment, and the one after its last."""
    starts = [each.start_offset for each in segment.epochs] + [segment.next_offset]
    number = [each.epoch for each in segment.epochs].index(epoch)
    return starts[number], starts[number + 1]


class MemoryObjects:
    """Objects in memory; every request is counted, and may be held back or fail."""

    def __init__(self) -> None:
        self.logs: dict[SegmentId, Buffer] = {}
        self.indexes: dict[tuple[SegmentId, ObjectKind], Buffer] = {}
        self.requests: list[tuple[int, int]] = []
        """The ranges of logs that were fetched."""
        self.index_requests: Counter[ObjectKind] = Counter()
        self.latency_seconds = 0.0
        self.gate: asyncio.Event | None = None
        self.errors: list[Exception | None] = []
        """Raised by the next requests; None for one that succeeds."""
        self.under_way = 0
        self.under_way_max = 0

    async def fetch(self, segment: RemoteSegment, begin: int, end: int) -> Buffer:
        self.requests.append((begin, end))
        await self._pass()
        try:
            return memoryview(self.logs[segment.id])[begin:end]
        except KeyError:
            raise NoSuchObject(segment.text) from None

    async def fetch_index(self, segment: RemoteSegment, kind: ObjectKind) -> Buffer:
        self.index_requests[kind] += 1
        await self._pass()
        if kind is ObjectKind.TXN_INDEX and segment.is_txn_index_empty:
            return b""
        try:
            return self.indexes[segment.id, kind]
        except KeyError:
            raise NoSuchObject(segment.text) from None

    async def _pass(self) -> None:
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(self.latency_seconds)
            if self.errors and (error := self.errors.pop(0)) is not None:
                raise error
        finally:
            self.under_way -= 1


class CopiedLog:
    """The first segments of a log, as they are in a tier."""

    def __init__(
        self,
        log: Log,
        count: int | None = None,
        *,
        partition: TopicIdPartition = ORDERS,
        has_max_timestamps: bool = True,
    ) -> None:
        self.objects = MemoryObjects()
        self.partition = partition
        last = len(log.segments) - 1 if count is None else count
        self.segments = [
            self._copy(log, number, has_max_timestamps=has_max_timestamps) for number in range(last)
        ]
        self.metadata = ListedMetadata(self.segments)

    def _copy(self, log: Log, number: int, *, has_max_timestamps: bool) -> RemoteSegment:
        segment = log.segments[number]
        segment.finish()
        segment_id = SegmentId(sha256(f"{self.partition.text} {number}".encode()).digest()[:16])
        is_last = number + 1 == len(log.segments)
        next_offset = log.end_offset if is_last else log.segments[number + 1].base_offset
        self.objects.logs[segment_id] = segment.file.read(0, segment.size_bytes)
        for kind, suffix in (
            (ObjectKind.OFFSET_INDEX, ".index"),
            (ObjectKind.TIME_INDEX, ".timeindex"),
            (ObjectKind.TXN_INDEX, ".txnindex"),
        ):
            if segment.disk.exists(segment.path(suffix)):
                self.objects.indexes[segment_id, kind] = segment.disk.read(segment.path(suffix))
        return RemoteSegment(
            partition=self.partition,
            id=segment_id,
            start_offset=segment.base_offset,
            end_offset=next_offset - 1,
            max_timestamp_ms=segment.largest_timestamp if has_max_timestamps else -1,
            broker_id=BrokerId(1),
            event_timestamp_ms=0,
            size_bytes=segment.size_bytes,
            epochs=epochs_between(log.epochs, segment.base_offset, next_offset),
            state=FINISHED,
            is_txn_index_empty=not has_aborted(segment),
        )

    def reader(
        self,
        limits: ReadLimits | None = None,
        *,
        disk: SimulatedDisk | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> RemoteReader:
        return RemoteReader(
            self.metadata,
            self.objects,
            disk or SimulatedDisk(),
            limits or ReadLimits(),
            now_ms=now_ms,
        )


def has_aborted(segment: Segment) -> bool:
    return bool(segment.transaction_index.entries())


def epochs_between(epochs: LeaderEpochs, begin: int, end: int) -> tuple[SegmentEpoch, ...]:
    """Return the epochs of the records between two offsets, as a copier describes them."""
    first = epochs.epoch_for_offset(begin)
    found = [SegmentEpoch(*each) for each in epochs.entries() if begin < each.start_offset < end]
    return tuple(found) if first is None else (SegmentEpoch(first, begin), *found)
