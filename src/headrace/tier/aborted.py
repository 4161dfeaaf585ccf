"""The aborted transactions that touch records of the tier.

A transaction is listed in the segment that has its marker, which may be any segment after the one
that has its records: the segments that follow are asked until one says that no later entry can
matter. If none does, the local log has to be asked too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.log.epochs import LeaderEpochs
from headrace.records.aborted import (
    ENTRY_BYTES,
    AbortedTransaction,
    find_aborted,
    first_ending_at,
    read_entries,
)
from headrace.remote.indexes import DamagedSegment, offset_behind
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import RemoteSegment
from headrace.tier.index_cache import Index
from headrace.tier.lineage import Stretch, own_end
from headrace.tier.ports import RemoteMetadata

SEGMENTS_PER_TURN: Final = 32
ENTRIES_PER_TURN: Final = 8192
"""How many entries that were not read before are gone through on the loop; more are by a thread."""

GetIndex = Callable[[RemoteSegment, ObjectKind], Awaitable[Index]]


async def find_all_aborted(
    metadata: RemoteMetadata,
    epochs: LeaderEpochs,
    get_index: GetIndex,
    stretch: Stretch,
    *,
    records: memoryview,
    up_to: int,
) -> tuple[list[AbortedTransaction], tuple[int, int] | None]:
    """Return those that may overlap records that begin in a stretch.

    Also what to ask of the local log, whose markers come after those of the tier: the offset from
    which on to look for markers, and the end of the records; None if no later marker matters. A
    few later ones may be among them: the end of the records is found by the offset index.
    """
    segment = stretch.segment
    first = max(stretch.begin_offset, int.from_bytes(records[:8]))
    index = await get_index(segment, ObjectKind.OFFSET_INDEX)
    end = offset_behind(index.data, segment, first, len(records))
    end_offset = min(stretch.end_offset if end is None else end, up_to)
    found: list[AbortedTransaction] = []
    current: Stretch | None = stretch
    unread, count, searched_to = 0, 0, stretch.end_offset
    while current is not None:
        if not current.segment.is_txn_index_empty:
            index = await get_index(current.segment, ObjectKind.TXN_INDEX)
            unread += _unread_count(index)
            count += 1
            if count > SEGMENTS_PER_TURN or unread > ENTRIES_PER_TURN:
                await asyncio.sleep(0)
                unread, count = _unread_count(index), 1
            if await _find_in(index, current, end_offset, found):
                return found, None
        searched_to = current.end_offset
        current = _next_with_aborted(metadata, epochs, current)
    return found, (searched_to, end_offset)


async def _find_in(
    index: Index, stretch: Stretch, end_offset: int, found: list[AbortedTransaction]
) -> bool:
    """Add the transactions whose markers are in a stretch; return whether no later one matters."""
    data, minima = index
    segment = stretch.segment
    if len(data) % ENTRY_BYTES:
        raise DamagedSegment(
            segment, f"an index of transactions has {len(data)} bytes, no whole entries"
        )
    for last in read_entries(data, len(data) // ENTRY_BYTES - 1 if data else 0):
        if not segment.start_offset <= last.last_offset <= segment.end_offset:
            raise DamagedSegment(
                segment, f"an index of transactions ends with offset {last.last_offset}"
            )
    if stretch.end_offset < segment.next_offset:
        # The markers from there on are not those of this log.
        data = data[: first_ending_at(data, stretch.end_offset) * ENTRY_BYTES]
    if _unread_count(index) <= ENTRIES_PER_TURN:
        aborted, is_complete = find_aborted(data, stretch.begin_offset, end_offset, minima)
    else:
        aborted, is_complete = await asyncio.get_running_loop().run_in_executor(
            None, find_aborted, data, stretch.begin_offset, end_offset, minima
        )
    found += aborted
    return is_complete


def _unread_count(index: Index) -> int:
    return index.minima.unread_count(len(index.data) // ENTRY_BYTES)


def _next_with_aborted(
    metadata: RemoteMetadata, epochs: LeaderEpochs, stretch: Stretch
) -> Stretch | None:
    """Return the next stretch that may have markers of aborted transactions."""
    offset = stretch.end_offset
    epoch = epochs.epoch_for_offset(offset)
    if epoch is None:
        epoch = stretch.segment.epochs[-1].epoch
    while epoch is not None:
        segment = metadata.find_with_aborted(stretch.segment.key, epoch, offset)
        if segment is not None:
            starts = [each.start_offset for each in segment.epochs if each.epoch == epoch]
            begin = max(offset, segment.start_offset, *starts)
            end = own_end(segment, epochs, begin)
            if end > begin:
                return Stretch(segment, begin, end)
        epoch = epochs.next_epoch(epoch)
    return None
