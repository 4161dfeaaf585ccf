"""Spreading what nodes have: bytes, traffic and replicas, with as few moves as can be found.

    plan = plan_balance(nodes, partitions)

Nodes that leave are drained first, then replicas that share a machine or a rack part where they
can. After that, every move goes from a node that has too much of something to one that has too
little of it. It takes the largest replica that fits, so that there are few, and only one that makes
the whole more even: the sum of all squared deviations from the mean falls with every move, so a
plan is never worse than what was there, and planning ends. Leaders come last (`leading`).

A node that is within the tolerance is left alone. Replicas are counted too, with twice the
tolerance: a cluster whose topics are still empty is spread like any other.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.cluster.balancing.draining import drain
from headrace.cluster.balancing.leading import spread_leaders
from headrace.cluster.balancing.ledger import Ledger
from headrace.cluster.balancing.terms import Limits, NodeRow, PartitionRow, Plan

GAIN_MIN: Final = 1e-9
"""The least gain of a move, so that rounding does not count as one."""
SCANNED_MAX: Final = 32
"""How many replicas of a node are looked at for one that may go to another node."""
PARTNERS_MAX: Final = 12
"""How many other nodes are tried for a node that has too much or too little."""
COMPARED_MAX: Final = 4
"""How many replicas are looked at from the first one that may go."""
LARGER_MAX: Final = 2
"""How many of these may be larger than what fits best."""
APART: Final = (0, 0)
"""The conflicts of a replica that shares neither machine nor rack."""


def plan_balance(
    nodes: Sequence[NodeRow],
    partitions: Sequence[PartitionRow],
    limits: Limits = Limits(),  # noqa: B008  frozen
) -> Plan:
    """Plan that bytes, traffic, replicas and leaders are spread."""
    ledger = Ledger(nodes, partitions, limits)
    leaving = {index for index, row in enumerate(ledger.nodes) if row.is_leaving}
    problems = drain(ledger, leaving)
    _part(ledger)
    _Spreading(ledger).run()
    spread_leaders(ledger)
    plan = ledger.plan(problems)
    if limits.moves_max is None or len(plan.moves) <= limits.moves_max:
        return plan
    return _cut(ledger, plan, limits.moves_max)


def _cut(ledger: Ledger, plan: Plan, moves_max: int) -> Plan:
    """Return the first moves of a plan, and the loads with them."""
    moves = plan.moves[:moves_max]
    after = {(move.topic, move.partition): move.after for move in moves}
    moved = [
        PartitionRow(
            row.topic,
            row.partition,
            after.get((row.topic, row.partition), row.replicas),
            row.size_bytes,
            row.bytes_in,
        )
        for row in ledger.partitions
    ]
    return Plan(
        moves, plan.problems, plan.before, Ledger(ledger.nodes, moved, ledger.limits).before
    )


def _part(ledger: Ledger) -> None:
    """Part replicas that share a machine or a rack, where another node avoids it."""
    hosts, racks, counts = ledger.hosts, ledger.racks, ledger.counts
    for partition, replicas in enumerate(ledger.replicas):
        is_apart = len({racks[each] for each in replicas}) == len(replicas)
        if is_apart and len({hosts[each] for each in replicas}) == len(replicas):
            continue
        for source in tuple(reversed(replicas)):  # the leader stays if another one can go
            now = ledger.conflicts(partition, source, source)
            if now == APART:
                continue
            best = min(
                (
                    (ledger.conflicts(partition, each, source), counts[each], each)
                    for each in ledger.open
                    if each not in replicas and ledger.has_room(each, partition)
                ),
                default=None,
            )
            if best is not None and best[0] < now:
                ledger.move(partition, source, best[2], "shares a machine or a rack")


class _Dimension(NamedTuple):
    """Something that is to be spread."""

    name: str
    loads: list[int] | list[float]
    """By node."""
    amounts: list[int] | list[float]
    """By partition."""
    mean: float
    tolerance: float
    weight: float
    """The weight of a squared amount among the deviations."""


class _Spreading:
    """The moves from nodes that have much to nodes that have little."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open = ledger.open
        self._places = {node: place for place, node in enumerate(ledger.open)}
        tolerance = ledger.limits.tolerance
        self._dimensions = [
            _Dimension(name, loads, amounts, mean, share, 2 / (mean * mean))
            for name, loads, amounts, share in (
                ("bytes", ledger.bytes, ledger.sizes, tolerance),
                ("traffic", ledger.traffic, ledger.rates, tolerance),
                ("replicas", ledger.counts, [1] * len(ledger.sizes), 2 * tolerance),
            )
            if (mean := self._mean(loads)) > 0
        ]
        self._stuck: set[int] = set()
        """Excesses that cannot be made smaller."""
        self._excesses = [0.0] * (len(self._dimensions) * len(self._open) * 2)
        """How far each node is beyond the tolerance, in units of the mean: see `_number`."""
        for node in self._open:
            self._measure(node)
        self._kept: dict[int, list[int]] = {}
        self._sorted: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
        """By dimension and node: its replicas by amount, the smallest first."""

    def run(self) -> None:
        excesses, wide = self._excesses, 2 * len(self._open)
        while excesses and (worst := max(excesses)) > 0:
            number = excesses.index(worst)
            dimension, rest = divmod(number, wide)
            place, is_under = divmod(rest, 2)
            if not self._relieve(dimension, self._open[place], is_over=not is_under):
                self._stuck.add(number)
                excesses[number] = 0.0

    def _mean(self, loads: Sequence[float]) -> float:
        return sum(loads[each] for each in self._open) / len(self._open) if self._open else 0.0

    def _measure(self, node: int) -> None:
        """Find out how far a node is above and below the tolerance, in every dimension."""
        for number, dimension in enumerate(self._dimensions):
            share = dimension.loads[node] / dimension.mean
            over = share - 1 - dimension.tolerance
            under = 1 - dimension.tolerance - share
            first = 2 * (number * len(self._open) + self._places[node])
            for place, size in ((first, over), (first + 1, under)):
                is_seen = size > 0 and place not in self._stuck
                self._excesses[place] = size if is_seen else 0.0

    def _relieve(self, number: int, node: int, *, is_over: bool) -> bool:
        """Make the best move to or from a node; return whether there is one."""
        dimension = self._dimensions[number]
        loads = dimension.loads
        others = sorted(self._open, key=loads.__getitem__, reverse=not is_over)
        for other in others[:PARTNERS_MAX]:
            source, target = (node, other) if is_over else (other, node)
            if loads[source] <= loads[target]:
                return False  # so are all others
            partition = self._find(number, source, target)
            if partition is not None:
                self._move(partition, source, target, dimension.name)
                return True
        return False

    def _find(self, number: int, source: int, target: int) -> int | None:
        """Return the replica whose move from one node to another evens most, None without one.

        Of those that fit the largest come first, after a few that are larger.
        """
        dimension, replicas = self._dimensions[number], self._ledger.replicas
        over = dimension.loads[source] - dimension.mean
        under = dimension.mean - dimension.loads[target]
        wanted = min(over, under)
        if wanted <= 0:
            wanted = (over + under) / 2
        gaps = [
            (each.loads[source] - each.loads[target], each.amounts, each.weight)
            for each in self._dimensions
        ]
        kept = self._replicas_by_amount(number, source)
        fitting = bisect_right(kept, (wanted, float("inf"), 0))
        place = min(fitting + LARGER_MAX, len(kept))
        best: int | None = None
        best_gain, compared = GAIN_MIN, 0
        for _ in range(min(place, SCANNED_MAX)):
            place -= 1
            partition = kept[place][2]
            if source not in replicas[partition]:
                del kept[place]  # it has moved since
                continue
            gain = 0.0
            for gap, amounts, weight in gaps:
                amount = amounts[partition]
                gain += amount * (gap - amount) * weight
            if gain > best_gain and self._may_go(partition, source, target):
                best, best_gain = partition, gain
            compared += best is not None
            if compared == COMPARED_MAX:
                break
        return best

    def _replicas_by_amount(self, number: int, node: int) -> list[tuple[float, int, int]]:
        found = self._sorted.get((number, node))
        if found is None:
            if not self._kept:
                for partition, replicas in enumerate(self._ledger.replicas):
                    for each in replicas:
                        self._kept.setdefault(each, []).append(partition)
            found = sorted(self._entry(number, each) for each in self._kept.get(node, ()))
            self._sorted[number, node] = found
        return found

    def _entry(self, number: int, partition: int) -> tuple[float, int, int]:
        """Return the key of a replica: of those with equal amounts the smallest come last."""
        amounts = self._dimensions[number].amounts
        return amounts[partition], -self._ledger.sizes[partition], partition

    def _may_go(self, partition: int, source: int, target: int) -> bool:
        ledger = self._ledger
        if target in ledger.replicas[partition] or not ledger.has_room(target, partition):
            return False
        now = ledger.conflicts(partition, target, source)
        return now == APART or now <= ledger.conflicts(partition, source, source)

    def _move(self, partition: int, source: int, target: int, name: str) -> None:
        self._ledger.move(partition, source, target, f"spreads {name}")
        self._measure(source)
        self._measure(target)
        self._kept.setdefault(target, []).append(partition)
        for number in range(len(self._dimensions)):
            kept = self._sorted.get((number, target))
            if kept is not None:
                entry = self._entry(number, partition)
                place = bisect_right(kept, entry)
                if not place or kept[place - 1] != entry:  # it may have been here before
                    kept.insert(place, entry)
