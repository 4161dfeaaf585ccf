"""Arithmetic on ranges of offsets, in one pass over each. Pure.

Whatever is passed in is ascending and disjoint unless it says otherwise, and so is what comes out.
A range may have more than its two ends: a run, a debt or a lease is one as well.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Interval = tuple[int, int]
"""Offsets, both ends included."""
A = TypeVar("A", bound=tuple[Any, ...])
B = TypeVar("B", bound=tuple[Any, ...])


def aligned(ranges: Iterable[A], others: Iterable[B]) -> Iterator[tuple[A, B | None, int, int]]:
    """Cut ranges where others begin and end.

    Yield every part with the range that it is of, the other that covers it or None, and its ends.
    """
    rest = iter(others)
    other = next(rest, None)
    for each in ranges:
        position, last = each[0], each[1]
        while other is not None and other[0] <= last:
            first, end = other[0], other[1]
            if end < position:
                other = next(rest, None)
                continue
            if first > position:
                yield each, None, position, first - 1
                position = first
            if end > last:
                yield each, other, position, last
                position = last + 1
                break
            yield each, other, position, end
            position = end + 1
            other = next(rest, None)
        if position <= last:
            yield each, None, position, last


def overlaps(ranges: Iterable[A], others: Iterable[B]) -> list[Interval]:
    """Return the parts of ranges that are in any of the others."""
    return [(first, last) for _, other, first, last in aligned(ranges, others) if other is not None]


def outside(ranges: Iterable[A], others: Iterable[B]) -> list[Interval]:
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
