"""Records that a query is done with and that come to it again: they are acknowledged, not read.

Pure. A lease is lost with its connection, so a driver that dies, or a broker that restarts, leaves
records behind that are durable in the sink and not acknowledged. If they come to the same query
again, it knows them. If they come to another member of the group, they are done twice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from headrace.client.share.session import SharedPartition
from headrace.spark.share.intervals import Interval, outside, overlaps
from headrace.spark.share.journal import Debt, Debts, Run, Runs

DEBTS_MAX: Final = 10_000
"""How many runs of a partition are remembered; the oldest go first, and may be read again."""


class Parted(NamedTuple):
    """What came, by what is to be done with it."""

    fresh: list[Run]
    accepted: list[Interval]
    rejected: list[Interval]


def part(runs: Iterable[Run], debts: Sequence[Debt]) -> Parted:
    """Tell records that are owed from those that are to be read.

    What was delivered less often than when this query read it is read again: the group was reset
    since, which means that somebody wants it to be.
    """
    parted = Parted([], [], [])
    for run in runs:
        known = [debt for debt in debts if run.delivery_count >= debt.delivery_count]
        for kind in (False, True):
            ranges = [(debt.first, debt.last) for debt in known if debt.is_rejected is kind]
            paid = parted.rejected if kind else parted.accepted
            paid += overlaps(run.first, run.last, ranges)
        ranges = [(debt.first, debt.last) for debt in known]
        parted.fresh.extend(
            Run(first, last, run.delivery_count)
            for first, last in outside(run.first, run.last, ranges)
        )
    return parted


def incur(debts: Sequence[Debt], more: Iterable[Debt]) -> list[Debt]:
    """Add debts; what is newer holds."""
    added = list(more)
    ranges = [(debt.first, debt.last) for debt in added]
    return sorted([*_without(debts, ranges), *added])[-DEBTS_MAX:]


def pay(debts: Sequence[Debt], paid: Sequence[Interval]) -> list[Debt]:
    """Take away what is acknowledged."""
    return list(_without(debts, paid))


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
    unfinished: dict[SharedPartition, list[Interval]],
    rejected: Iterable[tuple[SharedPartition, int, int]],
) -> Debts:
    """Give the debts that a batch leaves: of its runs, what could not be acknowledged."""
    refused: dict[SharedPartition, list[Interval]] = {}
    for shared, first, last in rejected:
        refused.setdefault(shared, []).append((first, last))
    found: Debts = {}
    for shared, ranges in unfinished.items():
        for run in runs.get(shared, ()):
            for first, last in overlaps(run.first, run.last, ranges):
                bad = refused.get(shared, [])
                found.setdefault(shared, []).extend(
                    [
                        *(
                            Debt(*each, run.delivery_count, True)
                            for each in overlaps(first, last, bad)
                        ),
                        *(
                            Debt(*each, run.delivery_count, False)
                            for each in outside(first, last, bad)
                        ),
                    ]
                )
    return found


def _without(debts: Iterable[Debt], ranges: Sequence[Interval]) -> Iterable[Debt]:
    for debt in debts:
        for first, last in outside(debt.first, debt.last, ranges):
            yield Debt(first, last, debt.delivery_count, debt.is_rejected)
