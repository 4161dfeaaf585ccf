"""Arithmetic on ranges of offsets. Pure."""

from collections.abc import Iterable

Interval = tuple[int, int]
"""Offsets, both ends included."""


def overlaps(first: int, last: int, others: Iterable[Interval]) -> list[Interval]:
    """Give the parts of a range that are in any of some disjoint others, ascending."""
    found = [(max(first, begin), min(last, end)) for begin, end in others]
    return sorted(each for each in found if each[0] <= each[1])


def outside(first: int, last: int, others: Iterable[Interval]) -> list[Interval]:
    """Give the parts of a range that are in none of some disjoint others, ascending."""
    parts: list[Interval] = []
    position = first
    for begin, end in overlaps(first, last, others):
        if begin > position:
            parts.append((position, begin - 1))
        position = end + 1
    if position <= last:
        parts.append((position, last))
    return parts


def merged(ranges: Iterable[Interval]) -> list[Interval]:
    """Give ranges ascending and disjoint, neighbours as one."""
    found: list[Interval] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
