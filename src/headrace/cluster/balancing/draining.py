"""Taking nodes out: every replica that they have goes to another node.

The largest partitions are placed first, while there is room. Each goes to the machine and the rack
that have the fewest replicas of it, and there to the node with the least to do. That is one move
for each replica, and there cannot be fewer. Where a leaving node was to lead, the replica leads
that leads the fewest, if possible one that has the records already.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from typing import Final

from msgspec.structs import replace

from headrace.cluster.balancing.ledger import Ledger
from headrace.cluster.balancing.terms import Limits, NodeRow, PartitionRow, Plan

EXAMPLES: Final = 3
"""How many partitions a problem names."""


def plan_drain(
    nodes: Sequence[NodeRow],
    partitions: Sequence[PartitionRow],
    leaving: Collection[int],
    limits: Limits = Limits(),  # noqa: B008  frozen
) -> Plan:
    """Plan that nodes keep nothing; with problems if something cannot go anywhere."""
    marked = [replace(row, is_leaving=True) if row.node_id in leaving else row for row in nodes]
    ledger = Ledger(marked, partitions, limits)
    sources = {ledger.index_of[each] for each in leaving if each in ledger.index_of}
    return ledger.plan(drain(ledger, sources))


def drain(ledger: Ledger, sources: Set[int]) -> list[str]:
    """Move what these nodes have to others; return why some of it cannot be."""
    found = [
        partition
        for partition, replicas in enumerate(ledger.replicas)
        if not sources.isdisjoint(replicas)
    ]
    found.sort(key=lambda each: (-ledger.sizes[each], each))
    scores, problems = _Scores(ledger), _Problems(ledger)
    for partition in found:
        for source in [each for each in ledger.replicas[partition] if each in sources]:
            _place(ledger, partition, source, scores, problems)
    return problems.texts()


def _place(
    ledger: Ledger, partition: int, source: int, scores: "_Scores", problems: "_Problems"
) -> None:
    replicas = ledger.replicas[partition]
    free = [each for each in ledger.open if each not in replicas]
    roomy = [each for each in free if ledger.has_room(each, partition)]
    reason = f"leaves node {ledger.nodes[source].node_id}"
    if not free and len(replicas) > 1 and ledger.limits.may_shrink:
        ledger.drop(partition, source, reason)
        return
    if not roomy:
        problems.note(partition, is_room=bool(free))
        return
    values = scores.values
    target = min(
        roomy,
        key=lambda each: (*ledger.conflicts(partition, each, source), values[each], each),
    )
    leads = replicas[0] == source
    ledger.move(partition, source, target, reason)
    scores.add(target, partition)
    if leads:
        heir = min(
            (each for each in replicas if each in scores.open),  # the target is one
            key=lambda each: (ledger.leaders[each] - (each == target), each == target, each),
        )
        if heir != target:
            ledger.lead(partition, heir, reason)


class _Scores:
    """How much each node has to do: its shares of bytes, traffic and replicas."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.open = frozenset(ledger.open)
        count = max(len(ledger.open), 1)
        self._byte = count / max(sum(ledger.bytes), 1)
        self._byte_in = count / max(sum(ledger.traffic), 1.0)
        self._replica = count / max(sum(ledger.counts), 1)
        self.values = [
            ledger.bytes[each] * self._byte
            + ledger.traffic[each] * self._byte_in
            + ledger.counts[each] * self._replica
            for each in range(len(ledger.nodes))
        ]

    def add(self, node: int, partition: int) -> None:
        self.values[node] += (
            self._ledger.sizes[partition] * self._byte
            + self._ledger.rates[partition] * self._byte_in
            + self._replica
        )


class _Problems:
    """Partitions that have nowhere to go, and why."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._crowded: list[int] = []
        """Every node that is left has one of their replicas already."""
        self._large: list[int] = []
        """No disk has room for them."""

    def note(self, partition: int, *, is_room: bool) -> None:
        (self._large if is_room else self._crowded).append(partition)

    def texts(self) -> list[str]:
        ledger, texts = self._ledger, []
        if self._crowded:
            factors = Counter(len(ledger.replicas[each]) for each in self._crowded)
            texts.append(
                f"{_name(ledger, self._crowded)} with up to {max(factors)} replicas, but "
                f"{len(ledger.open)} nodes would be left: add a node, or keep fewer replicas with "
                "--fewer-replicas"
            )
        if self._large:
            size = sum(ledger.sizes[each] for each in self._large)
            texts.append(
                f"{_name(ledger, self._large)} with {size:,} bytes in all: no disk has room for "
                f"them below {ledger.limits.fill_max:.0%}: add a node or a larger disk, or raise "
                "the bound with --fill-max"
            )
        return texts


def _name(ledger: Ledger, partitions: Iterable[int]) -> str:
    every = list(partitions)
    named = ", ".join(str(ledger.partitions[each]) for each in every[:EXAMPLES])
    dots = ", ..." if len(every) > EXAMPLES else ""
    return f"{len(every)} partition{'s' if len(every) != 1 else ''} ({named}{dots})"
