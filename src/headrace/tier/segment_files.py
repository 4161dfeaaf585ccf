"""A local segment as it goes to the tier: its description, and its files."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import NamedTuple

from headrace.ids import BrokerId, TopicId, topic_id_text
from headrace.log.checkpoints import format_epochs
from headrace.log.disk import Disk, DiskFile
from headrace.log.epochs import EpochStart
from headrace.log.log import Log
from headrace.log.producer_snapshots import encode_snapshot, snapshot_name
from headrace.log.producers import ProducerState
from headrace.log.replay import producers_at
from headrace.log.segment import Segment
from headrace.remote.segment_objects import SegmentFiles
from headrace.remote.segments import (
    InvalidSegment,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
)
from headrace.surroundings import new_uuid
from headrace.tier.life import LocalSegment
from headrace.tier.tiered_partition import TieredPartition
from headrace.wire.schema import Buffer

Parts = Callable[[DiskFile, int], AsyncIterator[Buffer]]
"""Reads a file of so many bytes, in parts."""


class Prepared(NamedTuple):
    """A segment that is ready to be copied."""

    description: RemoteSegment
    files: SegmentFiles


class _SmallFiles(NamedTuple):
    offset_index: bytes
    time_index: bytes
    txn_index: bytes
    producer_snapshot: bytes


async def prepare(
    tiered: TieredPartition, local: LocalSegment, *, node_id: BrokerId, now_ms: int, parts: Parts
) -> Prepared:
    """Return a finished segment of the log with all that goes to the tier.

    Raise InvalidSegment if nobody knows its leader epoch, NotLeading if the log changed meanwhile,
    OSError if its files cannot be read.
    """
    log = tiered.partition.log
    cuts, at = log.cuts, log.segment_index(local.base_offset)
    before = log.segments[: at + 1]
    segment = before[-1]
    epochs = epochs_below(log, local.next_offset)
    own = epochs_within(epochs, local)
    if not own:
        raise InvalidSegment(f"nobody knows the leader epoch of offset {local.base_offset}")
    segment.write_out()
    file, largest_timestamp = segment.file, segment.largest_timestamp
    pending = log.flusher.pending_snapshot(local.next_offset)
    known = tiered.producers if tiered.producers_cuts == cuts else None
    small = await asyncio.get_running_loop().run_in_executor(
        None, _read_small, log, before, local.next_offset, pending, known
    )
    tiered.check_leading(cuts)
    tiered.producers = local.next_offset, small.producer_snapshot
    tiered.producers_cuts = cuts
    description = RemoteSegment(
        partition=tiered.id,
        id=new_segment_id(),
        start_offset=local.base_offset,
        end_offset=local.next_offset - 1,
        # Kafka takes the file's time, and -1 for infinitely old.
        max_timestamp_ms=largest_timestamp if largest_timestamp >= 0 else now_ms,
        broker_id=node_id,
        event_timestamp_ms=now_ms,
        size_bytes=local.size_bytes,
        epochs=own,
        is_txn_index_empty=not small.txn_index,
    )
    files = SegmentFiles(
        log=lambda: parts(file, local.size_bytes),
        log_bytes=local.size_bytes,
        offset_index=small.offset_index,
        time_index=small.time_index,
        txn_index=small.txn_index or None,
        producer_snapshot=small.producer_snapshot,
        leader_epochs=format_epochs(epochs).encode(),
    )
    return Prepared(description, files)


def epochs_below(log: Log, offset: int) -> list[EpochStart]:
    """Return the leader epochs that begin before an offset."""
    return [entry for entry in log.epochs.entries() if entry.start_offset < offset]


def epochs_within(epochs: list[EpochStart], local: LocalSegment) -> tuple[SegmentEpoch, ...]:
    """Return the leader epochs of a segment's records.

    Those from the log's start on are known; where it is within the segment, the records before it
    have no epoch, and nobody reads them.
    """
    before = [entry for entry in epochs if entry.start_offset <= local.base_offset]
    first = [SegmentEpoch(before[-1].epoch, local.base_offset)] if before else []
    return (*first, *(SegmentEpoch(*entry) for entry in epochs[len(before) :]))


def new_segment_id() -> SegmentId:
    """Return an id for an attempt; its text does not begin like an option, as Kafka's does not."""
    while True:
        found = new_uuid().bytes
        if not topic_id_text(TopicId(found)).startswith("-"):
            return SegmentId(found)


def _read_small(
    log: Log,
    segments: list[Segment],
    next_offset: int,
    pending: list[ProducerState] | None,
    known: tuple[int, bytes] | None,
) -> _SmallFiles:
    """Read the indexes of the last of some segments, and the producers at its end."""
    segment = segments[-1]
    return _SmallFiles(
        offset_index=_read(log.disk, segment.path(".index")),
        time_index=_read(log.disk, segment.path(".timeindex")),
        txn_index=_read(log.disk, segment.path(".txnindex")),
        producer_snapshot=_snapshot(log, segments, next_offset, known)
        if pending is None
        else encode_snapshot(pending),
    )


def _read(disk: Disk, path: str) -> bytes:
    """Return the content of a file; empty if there is none, as of an index without entries."""
    with suppress(FileNotFoundError):
        return disk.read(path)
    return b""


def _snapshot(
    log: Log, segments: list[Segment], offset: int, known: tuple[int, bytes] | None
) -> bytes:
    """Return the snapshot of the producers at the end of a segment.

    A log that a crash ended has none of it: then the batches are read again, from the end of the
    last segment that was copied on, as those before may leave the disk at any time.
    """
    found = _read(log.disk, f"{log.folder}/{snapshot_name(offset)}")
    return found or encode_snapshot(producers_at(log.disk, log.folder, segments, offset, known))
