"""Arithmetic on ranges of offsets, in one pass over each. Pure.

Whatever is passed in is ascending and disjoint unless it says otherwise, and so is what comes out.
A range may have more than its two ends: a run, a debt or a lease is one as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

Interval = tuple[int, int]
"""Offsets, both ends included."""
A = TypeVar("A", bound=tuple[Any, ...])
B = TypeVar("B", bound=tuple[Any, ...])


def aligned(ranges: Iterable[A], others: Sequence[B]) -> Iterator[tuple[A, B | None, int, int]]:
    """Cut ranges where others begin and end.

    Yield every part with the range that it is of, the other that covers it or None, and its ends.
    """
    at, count = 0, len(others)
    for each in ranges:
        position, last = each[0], each[1]
        while position <= last:
            while at < count and others[at][1] < position:
                at += 1
            if at == count or others[at][0] > last:
                yield each, None, position, last
                break
            other = others[at]
            if other[0] > position:
                yield each, None, position, other[0] - 1
                position = other[0]
            end = min(last, other[1])
            yield each, other, position, end
            position = end + 1


def overlaps(ranges: Iterable[A], others: Sequence[B]) -> list[Interval]:
    """Return the parts of ranges that are in any of the others."""
    return [(first, last) for _, other, first, last in aligned(ranges, others) if other is not None]


def outside(ranges: Iterable[A], others: Sequence[B]) -> list[Interval]:
    """Return the parts of ranges that are in none of the others."""
    return [(first, last) for _, other, first, last in aligned(ranges, others) if other is None]


def merged(ranges: Iterable[tuple[Any, ...]]) -> list[Interval]:
    """Return ranges of any order, which may overlap, ascending and disjoint, neighbours as one."""
    found: list[Interval] = []
    for first, last, *_ in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            if last > found[-1][1]:
                found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
