"""Which bytes of which segments a task reads: arithmetic only."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from headrace.remote.coverage import Extent, Gap
from headrace.remote.segments import RemoteSegment


class Slice(msgspec.Struct, frozen=True):
    """Offsets of a segment, from `start` up to, not including, `stop`."""

    segment: RemoteSegment
    start: int
    stop: int
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Producer, first and last offset of the aborted transactions that touch it."""

    @property
    def records(self) -> int:
        return self.stop - self.start

    @property
    def size_bytes(self) -> int:
        """About how many bytes it has."""
        whole = self.segment.next_offset - self.segment.start_offset
        return -(-self.segment.size_bytes * self.records // whole)


def clip(extents: Iterable[Extent], start: int, stop: int) -> list[Slice]:
    """Return what lies between two offsets."""
    return [
        Slice(each.segment, max(each.start, start), min(each.stop, stop))
        for each in extents
        if max(each.start, start) < min(each.stop, stop)
    ]


def prune(slices: Iterable[Slice], since_ms: int | None) -> list[Slice]:
    """Drop what has only records from before a time; a segment without times may have any."""
    return [
        each
        for each in slices
        if since_ms is None or not 0 <= each.segment.max_timestamp_ms < since_ms
    ]


def gaps_between(gaps: Iterable[Gap], start: int, stop: int) -> list[Gap]:
    """Return what is missing between two offsets."""
    return [
        Gap(max(each.first, start), min(each.last, stop - 1))
        for each in gaps
        if each.first < stop and each.last >= start
    ]


def into_tasks(
    partitions: Sequence[Sequence[Slice]],
    task_bytes: int,
    partitions_min: int | None = None,
    records_max: int | None = None,
) -> list[list[Slice]]:
    """Cut and gather the slices of partitions into tasks of about `task_bytes`.

    A large segment is cut by its offsets, small neighbours share a task. There are at least about
    `partitions_min` tasks, and none has more than `records_max` offsets.
    """
    total_bytes = sum(each.size_bytes for slices in partitions for each in slices)
    if partitions_min:
        task_bytes = max(1, min(task_bytes, -(-total_bytes // partitions_min)))
    tasks: list[list[Slice]] = []
    for slices in partitions:
        task: list[Slice] = []
        task_size = task_records = 0
        for each in slices:
            for piece in _cut(each, task_bytes, records_max):
                task_size += piece.size_bytes
                task_records += piece.records
                is_full = task_size > task_bytes or (
                    records_max is not None and task_records > records_max
                )
                if task and is_full:
                    tasks.append(task)
                    task, task_size, task_records = [], piece.size_bytes, piece.records
                task.append(piece)
        if task:
            tasks.append(task)
    return tasks


def _cut(whole: Slice, task_bytes: int, records_max: int | None) -> list[Slice]:
    count = -(-whole.size_bytes // task_bytes)
    if records_max is not None:
        count = max(count, -(-whole.records // records_max))
    count = max(1, min(count, whole.records))
    cuts = [whole.start + whole.records * number // count for number in range(count + 1)]
    return [
        msgspec.structs.replace(whole, start=start, stop=stop) for start, stop in pairwise(cuts)
    ]
