"""Segments of which the store has everything, and the events nothing.

Events are lost when `__remote_log_metadata` is: when somebody deletes it, or its records. What the
store has may be all that is left of the records then, so they must not be given up for lost. It
looks the same as what a leader left that deleted them and whose successor has not heard how far;
but there the objects are gone before the events are.
"""

import asyncio
from collections.abc import Container
from heapq import nlargest
from typing import Final

from headrace.log.epochs import LeaderEpochs
from headrace.remote.layout import SegmentKey, parse_key, partition_prefix
from headrace.remote.lineage import Claim
from headrace.remote.reconstruction import Found, complete_ones, read_segments
from headrace.remote.segments import (
    PartitionKey,
    RemoteSegment,
    SegmentId,
    TierError,
    TopicIdPartition,
)
from headrace.remote.store import NoSuchObject, ObjectStore
from headrace.tier.lineage import own_end

CANDIDATES_MAX: Final = 1000
"""How many segments are looked at that begin before an offset, those that begin last."""
LOOKED_AT_A_TURN: Final = 500
"""How many objects are looked at in one turn of the loop."""


class ForgottenSegments(TierError):
    """The store has records of which the events do not know."""

    def __init__(self, name: str, gap: Claim, segment: RemoteSegment) -> None:
        super().__init__(
            f"{name}: no event names offsets {gap.start} to {gap.end}, and the store has segment "
            f"{segment.text} with offsets {segment.start_offset} to {segment.end_offset}: records "
            "of __remote_log_metadata are lost, and nothing of the partition is deleted. "
            "`headrace tier restore` copies what the store has to another topic; to give it up, "
            f"delete the records before offset {gap.end + 1}"
        )


async def find_forgotten(
    store: ObjectStore,
    partition: TopicIdPartition,
    known: Container[SegmentId],
    epochs: LeaderEpochs,
    gap: Claim,
) -> RemoteSegment | None:
    """Return a complete segment that is not known and has the log's own records of a gap.

    It need not reach the end of the gap: what follows it may be lost for another reason. Raise
    StoreError, or UnreadableSegment.
    """
    found: Found = {}
    async for page in store.list_objects(partition_prefix(partition)):
        for number, stored in enumerate(page, 1):
            key = parse_key(stored.key)
            if (
                isinstance(key, SegmentKey)
                and key.partition.key == partition.key
                and key.id not in known
                and key.start_offset <= gap.end
            ):
                found.setdefault((partition.key, key.id), {})[key.kind] = stored, key
            if number % LOOKED_AT_A_TURN == 0:
                await asyncio.sleep(0)
        found = _last_ones(found)
    for name, kinds in complete_ones(found).items():
        try:
            segments = await read_segments(store, {name: kinds})
        except NoSuchObject:
            continue  # the listing was late
        for segment in segments.get(partition.key, ()):
            first = max(gap.start, segment.start_offset)
            if first <= segment.end_offset and own_end(segment, epochs, first) > first:
                return segment
    return None


def _last_ones(found: Found) -> Found:
    """Return the segments that begin last, those first: those of the gap's end are among them."""

    def start_of(name: tuple[PartitionKey, SegmentId]) -> int:
        _, key = next(iter(found[name].values()))
        return key.start_offset

    return {name: found[name] for name in nlargest(CANDIDATES_MAX, found, key=start_of)}
