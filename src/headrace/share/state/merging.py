"""Merging states of offsets: each offset keeps the more advanced one.

The state with the higher delivery count is more advanced; with equal counts, the one with the
higher code, so that a final state never becomes available again. Writes may overlap in any way, and
offsets below the start are dropped.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from headrace.ids import UNKNOWN_OFFSET
from headrace.share.durable import StateBatch

_first_offset = attrgetter("first_offset")
_last_offset = attrgetter("last_offset")


def merge_batches(
    known: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the merged states from `start_offset` on, in order and in as few batches as possible.

    `known` is a result of this function; `new` may be in any order and overlap itself.
    """
    merged = _from_start(known, start_offset)
    for batch in new:
        if batch.last_offset < start_offset or batch.last_offset < batch.first_offset:
            continue
        if batch.first_offset < start_offset:
            batch = batch._replace(first_offset=start_offset)  # noqa: PLW2901
        if merged and batch.first_offset <= merged[-1].last_offset:
            _lay_over(merged, batch)
        else:
            _add(merged, batch.first_offset, batch.last_offset, batch)
    return tuple(merged)


def _from_start(known: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset == UNKNOWN_OFFSET:
        return list(known)
    kept = list(known[bisect_left(known, start_offset, key=_last_offset) :])
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept


def _lay_over(merged: list[StateBatch], new: StateBatch) -> None:
    """Merge one batch into others that do not overlap each other."""
    begin = bisect_left(merged, new.first_offset, key=_last_offset)
    end = bisect_right(merged, new.last_offset, key=_first_offset)
    pieces: list[StateBatch] = merged[begin - 1 : begin] if begin else []
    position = new.first_offset
    for old in merged[begin:end]:
        if old.first_offset < position:
            _add(pieces, old.first_offset, position - 1, old)
        elif old.first_offset > position:
            _add(pieces, position, old.first_offset - 1, new)
            position = old.first_offset
        last_offset = min(old.last_offset, new.last_offset)
        _add(pieces, position, last_offset, new if _is_further(new, old) else old)
        position = last_offset + 1
        if old.last_offset > new.last_offset:
            _add(pieces, position, old.last_offset, old)
    if position <= new.last_offset:
        _add(pieces, position, new.last_offset, new)
    for neighbour in merged[end : end + 1]:
        _add(pieces, neighbour.first_offset, neighbour.last_offset, neighbour)
    merged[max(begin - 1, 0) : end + 1] = pieces


def _add(pieces: list[StateBatch], first_offset: int, last_offset: int, like: StateBatch) -> None:
    """Append offsets in one state, extending the last batch if they continue it."""
    _, _, state, count = like
    if pieces:
        last = pieces[-1]
        if last.last_offset + 1 == first_offset and last[2:] == (state, count):
            pieces[-1] = StateBatch(last.first_offset, last_offset, state, count)
            return
    pieces.append(StateBatch(first_offset, last_offset, state, count))


def _is_further(new: StateBatch, old: StateBatch) -> bool:
    if new.delivery_count != old.delivery_count:
        return new.delivery_count > old.delivery_count
    return new.delivery_state > old.delivery_state
