"""Comparison of mirrored partitions, batch by batch, over the offsets that both clusters have.

Batches are compared by their checksums, with the source's producer ids as the mirror has them.
Either cluster may have compacted a topic since: records that one of them lacks are counted then,
and those that both have are compared one by one.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.mirror.batches import Fingerprint, adopt, fingerprints
from headrace.client.mirror.positions import Extent
from headrace.client.mirror.raw import (
    ALONE_WAIT_MS,
    END_WAIT_MS,
    PARTITION_BYTES_MAX,
    extents,
    fetch_one,
)
from headrace.client.mirror.topic_copies import MirroredTopic
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.records.errors import CorruptBatch
from headrace.records.header import BatchHeader, check_crc, read_header
from headrace.records.reader import read_records
from headrace.records.record import Record

EXAMPLES_MAX: Final = 5
"""How many differences of a partition are named."""
EMPTY_SECONDS_MAX: Final = 30.0
"""How long a cluster is asked again that sends nothing though its log goes on."""
PAUSE_SECONDS: Final = 0.2


class Verified(msgspec.Struct, kw_only=True):
    """What the comparison of a partition found."""

    partition: TopicPartition
    start: int = 0
    end: int = 0
    """Offsets from `start` up to, not including, `end` were compared."""
    equal_batches: int = 0
    records: int = 0
    """In equal batches, or equal one by one."""
    compared_records: int = 0
    """Records that were compared one by one, as compaction had changed their batch."""
    only_source: int = 0
    only_target: int = 0
    """Records that the other cluster lacks."""
    different: int = 0
    """Batches, or records of compacted topics, that are not the same."""
    examples: list[str] = msgspec.field(default_factory=list)
    problem: str = ""
    """Why it could not be compared, empty if it was."""
    is_compacted: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs but what compaction may remove."""
        lacking = 0 if self.is_compacted else self.only_source + self.only_target
        return not (self.different or lacking or self.problem)

    def differs(self, what: str, count: int = 1) -> None:
        self.different += count
        self.note(what)

    def note(self, what: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(what)


class _Batch(msgspec.Struct, frozen=True):
    mark: Fingerprint
    header: BatchHeader
    data: memoryview


class _Side(msgspec.Struct, frozen=True):
    cluster: Cluster
    is_source: bool
    may_end_early: bool


async def verify(source: Cluster, target: Cluster, topic: MirroredTopic, index: int) -> Verified:
    """Compare a partition; raise NotReachable if a cluster does not respond."""
    partition, is_compacted = TopicPartition(topic.name, index), topic.is_compacted
    found = Verified(partition=partition, is_compacted=is_compacted)
    try:
        theirs = (await extents(source, [partition]))[partition]
        ours = (await extents(target, [partition]))[partition]
        if isinstance(theirs, KafkaError):
            raise theirs
        if isinstance(ours, KafkaError):
            raise ours
        found.start = max(theirs.start, ours.start)
        found.end = max(min(theirs.end, ours.end), found.start)
        await _compare(
            _Side(source, is_source=True, may_end_early=topic.source_may_end_early),
            _Side(target, is_source=False, may_end_early=topic.target_may_end_early),
            found,
        )
    except KafkaError as error:
        found.problem = error.message
    return found


async def _compare(source: _Side, target: _Side, found: Verified) -> None:
    extent = Extent(found.start, found.end)
    left = _batches(source, found.partition, extent)
    right = _batches(target, found.partition, extent)
    theirs, ours = await anext(left, None), await anext(right, None)
    while theirs is not None or ours is not None:
        if ours is None or (theirs is not None and theirs.mark.last_offset < ours.mark.base_offset):
            assert theirs is not None
            found.only_source += theirs.header.record_count
            if theirs.header.record_count and not found.is_compacted:
                found.note(f"offsets {_range(theirs)} are missing in the target")
            theirs = await anext(left, None)
        elif theirs is None or ours.mark.last_offset < theirs.mark.base_offset:
            found.only_target += ours.header.record_count
            if ours.header.record_count and not found.is_compacted:
                found.note(f"offsets {_range(ours)} are missing at the source")
            ours = await anext(right, None)
        else:
            _compare_batches(found, theirs, ours)
            theirs, ours = await anext(left, None), await anext(right, None)


def _compare_batches(found: Verified, theirs: _Batch, ours: _Batch) -> None:
    if theirs.mark == ours.mark:
        found.equal_batches += 1
        found.records += ours.header.record_count
        return
    if not found.is_compacted or not theirs.mark.may_be(ours.mark):
        found.differs(f"the batches with offsets {_range(theirs)} and {_range(ours)} differ")
        return
    left, right = _records(theirs), _records(ours)
    found.only_source += len(left.keys() - right.keys())
    found.only_target += len(right.keys() - left.keys())
    for offset in left.keys() & right.keys():
        found.compared_records += 1
        if left[offset] == right[offset]:
            found.records += 1
        else:
            found.differs(f"the records at offset {offset} differ")


def _records(batch: _Batch) -> dict[int, Record]:
    if batch.header.is_control or not batch.header.record_count:
        return {}
    return {record.offset: record for record in read_records(batch.data)}


async def _batches(side: _Side, partition: TopicPartition, extent: Extent) -> AsyncIterator[_Batch]:
    """Yield the batches in a range of offsets, the first of which may begin before it.

    Raise KafkaError for a damaged one, and if a cluster does not send what it has.
    """
    offset = extent.start
    while offset < extent.end:
        chunk = await _read(side, partition, offset)
        if not chunk:
            if side.may_end_early:
                return
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the {'source' if side.is_source else 'target'} sends nothing at offset {offset}, "
                f"though its log goes up to {extent.end}, so the rest was not compared: is its "
                "tier slow or away?",
            )
        progress = offset
        if side.is_source:
            adopted = adopt(chunk, offset, 0)
            chunk = memoryview(b"") if adopted is None else adopted.records
            progress = offset if adopted is None else adopted.next_offset
        for position, mark in fingerprints(chunk):
            progress = max(progress, mark.last_offset + 1)
            if mark.last_offset < offset:
                continue
            if mark.base_offset >= extent.end:
                return
            header = read_header(chunk, position)
            if not header.record_count:
                continue  # compaction emptied it, or it only ends a log
            data = chunk[position : position + header.size_bytes]
            check_crc(data, header)
            yield _Batch(mark, header, data)
        if progress == offset:
            raise CorruptBatch(f"no batch at offset {offset} is whole")
        offset = progress


async def _read(side: _Side, partition: TopicPartition, offset: int) -> memoryview:
    """Return batches; nothing if the cluster sends none however often it is asked."""
    wait_ms = END_WAIT_MS if side.may_end_early else ALONE_WAIT_MS
    loop = asyncio.get_running_loop()
    deadline = loop.time() + EMPTY_SECONDS_MAX
    while True:
        chunk = await fetch_one(
            side.cluster, partition, offset, bytes_max=PARTITION_BYTES_MAX, wait_ms=wait_ms
        )
        if chunk or side.may_end_early or loop.time() >= deadline:
            return chunk
        await asyncio.sleep(PAUSE_SECONDS)


def _range(batch: _Batch) -> str:
    return f"{batch.mark.base_offset} to {batch.mark.last_offset}"
