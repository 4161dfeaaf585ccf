"""Spreading leaders: who comes first in the order of replicas. Nothing is copied for it.

A node that leads too much gives a partition to the replica that leads least, directly or over a
chain of nodes, each of which passes one on. The shortest chain is taken, so there are as few
changes of leaders as possible. Afterwards, busy partitions are led by others where that spreads
traffic, in exchange for quiet ones if a node would lead too much.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from headrace.cluster.balancing.ledger import Ledger

REASON: Final = "spreads leaders"
GAIN_MIN: Final = 1e-9


def spread_leaders(ledger: Ledger) -> None:
    """Move leaders until every node leads its share, within the tolerance."""
    nodes = ledger.open
    if len(nodes) < 2:
        return
    mean = sum(ledger.leaders[each] for each in nodes) / len(nodes)
    low, high = _bounds(mean, ledger.limits.tolerance)
    passing = _Passing(ledger)
    for is_over in (True, False):
        leaders = ledger.leaders
        for node in sorted(nodes, key=lambda each: leaders[each], reverse=is_over):
            while leaders[node] > high if is_over else leaders[node] < low:
                if not passing.pass_one(node, is_over=is_over):
                    break
    _Traffic(ledger, low, high).run()


def _bounds(mean: float, tolerance: float) -> tuple[int, int]:
    """Return how many partitions a node should lead: whole ones, the mean among them."""
    low, high = int(mean * (1 - tolerance)), int(mean * (1 + tolerance))
    floor = int(mean)
    ceiling = floor if mean == floor else floor + 1
    if mean * (1 - tolerance) > low:
        low += 1
    return min(low, floor), max(high, ceiling)


class _Passing:
    """Which partitions each node may pass to which other one."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open = frozenset(ledger.open)
        self._led: dict[int, dict[int, list[int]]] = {}
        """By leader and other replica; some may be led by another node by now."""
        for partition in range(len(ledger.replicas)):
            self._note(partition)

    def pass_one(self, node: int, *, is_over: bool) -> bool:
        """Take one leader from a node, or add one; return whether that evened things out."""
        chain = self._chain_from(node) if is_over else self._chain_to(node)
        if chain is None:
            return False
        for giver, taker in pairwise(chain):
            partition = self._take(giver, taker)
            assert partition is not None, "the chain has one"
            self._ledger.lead(partition, taker, REASON)
            self._note(partition)
        return True

    def _chain_from(self, start: int) -> list[int] | None:
        """Return the shortest chain to a node that leads less by two or more, and least."""
        leaders = self._ledger.leaders
        return self._search(start, lambda end: leaders[end] + 2 <= leaders[start], is_forward=True)

    def _chain_to(self, end: int) -> list[int] | None:
        leaders = self._ledger.leaders
        found = self._search(
            end, lambda start: leaders[start] >= leaders[end] + 2, is_forward=False
        )
        return None if found is None else found[::-1]

    def _search(
        self, start: int, is_end: Callable[[int], bool], *, is_forward: bool
    ) -> list[int] | None:
        """Return the nodes from one to the nearest that will do, over what they may pass on."""
        leaders, sign = self._ledger.leaders, 1 if is_forward else -1
        came_from = {start: start}
        layer = [start]
        while layer:
            following: list[int] = []
            for node in layer:
                for other in self._ledger.open:
                    if other in came_from:
                        continue
                    giver, taker = (node, other) if is_forward else (other, node)
                    if self._has(giver, taker):
                        came_from[other] = node
                        following.append(other)
            ends = [each for each in following if is_end(each)]
            if ends:
                chain = [min(ends, key=lambda each: (sign * leaders[each], each))]
                while chain[-1] != start:
                    chain.append(came_from[chain[-1]])
                return chain[::-1]
            layer = sorted(following, key=lambda each: (sign * leaders[each], each))
        return None

    def _note(self, partition: int) -> None:
        leader, *others = self._ledger.replicas[partition]
        for other in others:
            if other in self._open:
                self._led.setdefault(leader, {}).setdefault(other, []).append(partition)

    def _has(self, giver: int, taker: int) -> bool:
        """Return whether a node leads a partition that another one has."""
        partitions = self._led.get(giver, _NOTHING).get(taker)
        while partitions:
            if self._ledger.replicas[partitions[-1]][0] == giver:
                return True
            partitions.pop()
        return False

    def _take(self, giver: int, taker: int) -> int | None:
        return self._led[giver][taker].pop() if self._has(giver, taker) else None


class _Traffic:
    """Leaders of busy partitions, changed where it spreads traffic."""

    def __init__(self, ledger: Ledger, low: int, high: int) -> None:
        self._ledger = ledger
        self._low, self._high = low, high
        self._nodes = frozenset(ledger.open)
        self._loads = [0.0] * len(ledger.nodes)
        for partition, replicas in enumerate(ledger.replicas):
            self._loads[replicas[0]] += ledger.rates[partition]
        self._quiet: dict[tuple[int, int], list[int]] = {}
        """By leader and another replica: partitions, the quietest last; some may have moved."""

    def run(self) -> None:
        ledger, rates, loads = self._ledger, self._ledger.rates, self._loads
        limit = sum(loads[each] for each in self._nodes) / len(self._nodes)
        limit *= 1 + ledger.limits.tolerance
        busy = [each for each in range(len(rates)) if rates[each] > 0]
        if not busy or max(loads) <= limit:
            return
        busy.sort(key=lambda each: (-rates[each], each))
        self._sort_quiet()
        for partition in busy:
            leader, *others = ledger.replicas[partition]
            if loads[leader] > limit and leader in self._nodes:
                others.sort(key=loads.__getitem__)
                any(self._pass(partition, leader, other) for other in others)

    def _pass(self, partition: int, leader: int, other: int) -> bool:
        """Make another replica the leader, in exchange for a quiet partition if it leads enough."""
        ledger, loads = self._ledger, self._loads
        rate, back = ledger.rates[partition], None
        if other not in self._nodes:
            return False
        if ledger.leaders[leader] <= self._low or ledger.leaders[other] >= self._high:
            back = self._quietest(other, leader)
            if back is None:
                return False
            rate -= ledger.rates[back]
        if rate * (loads[leader] - loads[other] - rate) <= GAIN_MIN:
            return False
        ledger.lead(partition, other, REASON)
        if back is not None:
            ledger.lead(back, leader, REASON)
        loads[leader] -= rate
        loads[other] += rate
        return True

    def _sort_quiet(self) -> None:
        rates = self._ledger.rates
        for partition in sorted(range(len(rates)), key=lambda each: (-rates[each], each)):
            leader, *others = self._ledger.replicas[partition]
            for other in others:
                self._quiet.setdefault((leader, other), []).append(partition)

    def _quietest(self, leader: int, other: int) -> int | None:
        """Return the quietest partition that a node leads and another one has."""
        partitions = self._quiet.get((leader, other))
        while partitions:
            if self._ledger.replicas[partitions[-1]][0] == leader:
                return partitions[-1]
            partitions.pop()
        return None


_NOTHING: Final[dict[int, list[int]]] = {}
