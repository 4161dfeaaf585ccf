"""Finished records that are delivered to a query again: they are acknowledged, not read.

Pure. A lease is lost with its connection, so a driver that dies, or a broker that restarts, leaves
records that are durable in the sink but not acknowledged. If the same query gets them again, it
recognizes them. If another member of the group gets them, they are processed twice.

Debts of a partition, runs and ranges are ascending and disjoint: each is traversed once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.client.share.session import SharedPartition
from headrace.spark.share.intervals import Interval, aligned
from headrace.spark.share.journal import Debt, Debts, Run, Runs

DEBTS_MAX: Final = 10_000
"""How many runs of a partition are remembered; the oldest go first, and may be read again."""


class Parted(NamedTuple):
    """What came, by what is to be done with it."""

    fresh: list[Run]
    accepted: list[Interval]
    rejected: list[Interval]


def part(runs: Iterable[Run], debts: Sequence[Debt]) -> Parted:
    """Separate records that are owed from those to be read.

    A record with a lower delivery count than when this query read it is read again: the group was
    reset since, in order to read it again.
    """
    parted = Parted([], [], [])
    for run, debt, first, last in aligned(runs, debts):
        if debt is None or run.delivery_count < debt.delivery_count:
            parted.fresh.append(Run(first, last, run.delivery_count))
        else:
            paid = parted.rejected if debt.is_rejected else parted.accepted
            paid.append((first, last))
    return parted


def incur(debts: Sequence[Debt], more: Sequence[Debt]) -> list[Debt]:
    """Add debts; what is newer holds."""
    return sorted([*pay(debts, more), *more])[-DEBTS_MAX:]


def pay(debts: Sequence[Debt], paid: Sequence[tuple[int, ...]]) -> list[Debt]:
    """Remove acknowledged records."""
    return [
        Debt(first, last, debt.delivery_count, debt.is_rejected)
        for debt, other, first, last in aligned(debts, paid)
        if other is None
    ]


def forget(debts: Debts, start_of: Callable[[SharedPartition], float | None]) -> Debts:
    """Leave out what the group is done with: everything before its start."""
    left: Debts = {}
    for shared, each in debts.items():
        start = start_of(shared)
        kept = [debt for debt in each if start is None or debt.last >= start]
        if kept:
            left[shared] = kept
    return left


def owed(
    runs: Runs,
    unfinished: Mapping[SharedPartition, Sequence[Interval]],
    rejected: Mapping[SharedPartition, Sequence[Interval]],
) -> Debts:
    """Return the debts that a batch leaves: of its runs, what could not be acknowledged."""
    found: Debts = {}
    for shared, ranges in unfinished.items():
        left = [
            Run(first, last, run.delivery_count)
            for run, other, first, last in aligned(runs.get(shared, ()), ranges)
            if other is not None
        ]
        debts = [
            Debt(first, last, run.delivery_count, bad is not None)
            for run, bad, first, last in aligned(left, rejected.get(shared, ()))
        ]
        if debts:
            found[shared] = debts
    return found
