"""Which task of a micro-batch reads which records. Pure.

A queue is not read in order, so a batch is cut wherever that makes equal parts: there may be more
tasks than partitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.share.session import SharedPartition
from headrace.spark.planning import Range
from headrace.spark.share.journal import Run, size_of

GAP_MAX: Final = 4096
"""Runs with at most this many offsets between them are read by one fetch: dropping the records of
other members is cheaper than fetching the same batches twice."""


class Span(msgspec.Struct, frozen=True):
    """A range to fetch, and which of its offsets are wanted."""

    range: Range
    runs: tuple[Run, ...]


Task = tuple[Span, ...]


def plan(runs: Mapping[SharedPartition, Sequence[Run]], tasks_min: int | None) -> list[Task]:
    """Cut a batch into one task a partition, or into `tasks_min` of equal size if these are more.

    Never into more than there are offsets.
    """
    whole = {shared: each for shared, each in sorted(runs.items()) if each}
    if not whole or tasks_min is None or tasks_min <= len(whole):
        return [tuple(_spans(shared, each)) for shared, each in whole.items()]
    total = size_of(whole)
    count = min(tasks_min, total)
    ends = [total * number // count for number in range(1, count + 1)]
    return [_task(part) for part in _cut(whole, ends)]


def _cut(
    runs: Mapping[SharedPartition, Sequence[Run]], ends: Sequence[int]
) -> Iterator[list[tuple[SharedPartition, Run]]]:
    """Return parts that end after so many offsets each, counted from the first."""
    part: list[tuple[SharedPartition, Run]] = []
    position, wanted = 0, iter(ends)
    end = next(wanted)
    for shared, each in runs.items():
        for run in each:
            first = run.first
            while first <= run.last:
                last = min(run.last, first + end - position - 1)
                part.append((shared, Run(first, last, run.delivery_count)))
                position += last - first + 1
                first = last + 1
                if position == end:
                    yield part
                    part, end = [], next(wanted, end)


def _task(part: Sequence[tuple[SharedPartition, Run]]) -> Task:
    grouped: dict[SharedPartition, list[Run]] = {}
    for shared, run in part:
        grouped.setdefault(shared, []).append(run)
    return tuple(span for shared, each in grouped.items() for span in _spans(shared, each))


def _spans(shared: SharedPartition, runs: Sequence[Run]) -> Iterator[Span]:
    near: list[Run] = []
    for run in sorted(runs):
        if near and run.first - near[-1].last - 1 > GAP_MAX:
            yield _span(shared, near)
            near = []
        near.append(run)
    yield _span(shared, near)


def _span(shared: SharedPartition, runs: Sequence[Run]) -> Span:
    topic_id, topic, index = shared
    return Span(Range(topic, index, runs[0].first, runs[-1].last + 1, topic_id), tuple(runs))
