"""Segments as the store alone shows them: without brokers and without events.

A segment is complete if its leader epochs are there, as they are written last. Its start is in its
key, its size in the listing, its epochs in their object; its end and largest timestamp are at the
ends of its indexes and its log. So old data can be read when no cluster is left.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from headrace.ids import BrokerId, TopicName
from headrace.remote.indexes import OFFSET_ENTRY, TIME_ENTRY
from headrace.remote.layout import ObjectKind, SegmentKey, parse_key
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segment_reads import last_header
from headrace.remote.segments import (
    PartitionKey,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    TierError,
)
from headrace.remote.store import ObjectStore, StoredObject
from headrace.remote.together import do_together

LOOKS_AT_A_TIME: Final = 32
EPOCHS_BYTES_MAX: Final = 16 * 1024 * 1024


class UnreadableSegment(TierError):
    """Objects that look like a segment and are none."""


Found = dict[tuple[PartitionKey, SegmentId], dict[ObjectKind, tuple[StoredObject, SegmentKey]]]


async def list_segments(store: ObjectStore, topics: Iterable[TopicName] | None = None) -> Found:
    """Return the objects of complete segments, of some topics or of all."""
    prefixes = [""] if topics is None else [f"{topic}-" for topic in topics]
    wanted = None if topics is None else frozenset(topics)
    found: Found = {}
    for prefix in prefixes:
        async for page in store.list_objects(prefix):
            for stored in page:
                key = parse_key(stored.key)
                if isinstance(key, SegmentKey) and (
                    wanted is None or key.partition.topic in wanted
                ):
                    kinds = found.setdefault((key.partition.key, key.id), {})
                    kinds[key.kind] = stored, key
    return complete_ones(found)


def complete_ones(found: Found) -> Found:
    """Return those of some segments whose objects are all there."""
    return {
        segment: kinds
        for segment, kinds in found.items()
        if ObjectKind.LEADER_EPOCHS in kinds and ObjectKind.LOG in kinds
    }


async def read_segments(
    store: ObjectStore, found: Found
) -> dict[PartitionKey, list[RemoteSegment]]:
    """Return the descriptions of complete segments, by partition."""
    objects = SegmentObjects(store)
    limit = asyncio.Semaphore(LOOKS_AT_A_TIME)
    segments: dict[PartitionKey, list[RemoteSegment]] = {}

    async def look(kinds: dict[ObjectKind, tuple[StoredObject, SegmentKey]]) -> None:
        async with limit:
            segment = await _describe(objects, kinds)
            if segment is not None:
                segments.setdefault(segment.key, []).append(segment)

    await do_together(look(kinds) for kinds in found.values())
    for each in segments.values():
        each.sort(key=lambda segment: (segment.start_offset, segment.end_offset, segment.id))
    return segments


def parse_epochs(data: bytes, key: str) -> list[SegmentEpoch]:
    """Read a leader epoch checkpoint; UnreadableSegment if it is none."""
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        epochs = [SegmentEpoch(*map(int, line.split())) for line in lines]
    except (ValueError, TypeError):
        raise UnreadableSegment(f"{key} is not a leader epoch checkpoint") from None
    if version != "0" or count != str(len(epochs)) or not epochs or epochs != sorted(epochs):
        raise UnreadableSegment(f"{key} is not a leader epoch checkpoint")
    return epochs


def format_epochs(epochs: Iterable[SegmentEpoch]) -> bytes:
    rows = [f"{each.epoch} {each.start_offset}\n" for each in epochs]
    return f"0\n{len(rows)}\n{''.join(rows)}".encode("ascii")


def epochs_between(
    epochs: Iterable[SegmentEpoch], start: int, end: int
) -> tuple[SegmentEpoch, ...]:
    """Return the epochs of offsets, both ends included, each with its first offset there."""
    history = list(epochs)
    stops = [each.start_offset for each in history[1:]] + [end + 1]
    return tuple(
        SegmentEpoch(each.epoch, max(each.start_offset, start))
        for each, stop in zip(history, stops, strict=True)
        if stop > start and each.start_offset <= end
    )


async def _describe(
    objects: SegmentObjects, kinds: dict[ObjectKind, tuple[StoredObject, SegmentKey]]
) -> RemoteSegment | None:
    """Return the description of a segment; None if it has no record."""
    log, key = kinds[ObjectKind.LOG]
    position = 0
    indexed = kinds.get(ObjectKind.OFFSET_INDEX)
    if indexed is not None and indexed[0].size_bytes >= OFFSET_ENTRY.size:
        tail = await _tail(objects, indexed[0], OFFSET_ENTRY.size)
        _, position = OFFSET_ENTRY.unpack(tail)
    last, latest = await last_header(objects, log.key, position, log.size_bytes)
    if last is None:
        if log.size_bytes:
            raise UnreadableSegment(f"{log.key} has no whole batch at {position}")
        return None
    timed = kinds.get(ObjectKind.TIME_INDEX)
    if timed is not None and timed[0].size_bytes >= TIME_ENTRY.size:
        timestamp, _ = TIME_ENTRY.unpack(await _tail(objects, timed[0], TIME_ENTRY.size))
        latest = max(latest, timestamp)
    stored_epochs = kinds[ObjectKind.LEADER_EPOCHS][0]
    data = bytes(await objects.store.get(stored_epochs.key, 0, EPOCHS_BYTES_MAX))
    epochs = epochs_between(
        parse_epochs(data, stored_epochs.key), key.start_offset, last.last_offset
    )
    if not epochs:
        raise UnreadableSegment(f"{stored_epochs.key} has no epoch of its segment")
    aborted = kinds.get(ObjectKind.TXN_INDEX)
    return RemoteSegment(
        partition=key.partition,
        id=key.id,
        start_offset=key.start_offset,
        end_offset=last.last_offset,
        max_timestamp_ms=latest,
        broker_id=BrokerId(-1),
        event_timestamp_ms=stored_epochs.modified_ms,
        size_bytes=log.size_bytes,
        epochs=epochs,
        state=SegmentState.COPY_FINISHED,
        is_txn_index_empty=aborted is None or aborted[0].size_bytes == 0,
    )


async def _tail(objects: SegmentObjects, stored: StoredObject, size_bytes: int) -> bytes:
    return bytes(
        await objects.store.get(stored.key, stored.size_bytes - size_bytes, stored.size_bytes)
    )
