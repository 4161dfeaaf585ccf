"""The account of a plan: who keeps what, what that adds up to, and where a replica may go.

Nodes and partitions are numbered by their position in the rows, and loads are lists: a plan for
100,000 partitions looks at these numbers millions of times. Only what keeps the sums right is here;
which replica goes where is decided by `draining`, `spreading` and `leading`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from headrace.cluster.balancing.terms import (
    UNKNOWN_BYTES,
    Limits,
    Move,
    NodeLoad,
    NodeRow,
    PartitionRow,
    Plan,
)

NO_LIMIT: Final = float("inf")


class Ledger:
    """Partitions on nodes, as a plan changes them."""

    def __init__(
        self, nodes: Sequence[NodeRow], partitions: Sequence[PartitionRow], limits: Limits
    ) -> None:
        """Take the rows; a node that only partitions name is down, and keeps what it has."""
        self.limits: Final = limits
        self.partitions: Final = partitions
        self.nodes: Final = _with_missing(nodes, partitions)
        self.index_of: Final = {row.node_id: index for index, row in enumerate(self.nodes)}
        self.hosts: Final = _numbered(row.host or f"node {row.node_id}" for row in self.nodes)
        self.racks: Final = _numbered(
            f"node {row.node_id}" if row.rack is None else f"rack {row.rack}" for row in self.nodes
        )
        self.open: Final = [
            index for index, row in enumerate(self.nodes) if row.is_up and not row.is_leaving
        ]
        """The nodes that may get replicas."""
        self.sizes: Final = [row.size_bytes for row in partitions]
        self.rates: Final = [row.bytes_in for row in partitions]
        self.replicas: Final = [
            [self.index_of[node_id] for node_id in row.replicas] for row in partitions
        ]
        self.reasons: Final[dict[int, str]] = {}
        """Why each partition moves, the first reason."""
        self.counts: Final = [0] * len(self.nodes)
        self.bytes: Final = [0] * len(self.nodes)
        self.traffic: Final = [0.0] * len(self.nodes)
        self.leaders: Final = [0] * len(self.nodes)
        for partition, replicas in enumerate(self.replicas):
            for node in replicas:
                self._count(node, partition, 1)
            self.leaders[replicas[0]] += 1
        self._disks: Final = _numbered(row.disk or f"node {row.node_id}" for row in self.nodes)
        self._room: Final = self._find_room()
        """Bytes that each disk may still get. What leaves it does not count: it goes later."""
        self.before: Final = self.loads()

    # Where a replica may go

    def has_room(self, node: int, partition: int) -> bool:
        return self.sizes[partition] <= self._room[self._disks[node]]

    def conflicts(self, partition: int, node: int, leaving: int) -> tuple[int, int]:
        """Return how many other replicas share the machine of a node, and its rack.

        `leaving` is the node whose replica would go there.
        """
        hosts, racks = self.hosts, self.racks
        host, rack = hosts[node], racks[node]
        same_host = same_rack = 0
        for each in self.replicas[partition]:
            if each != leaving:
                if hosts[each] == host:
                    same_host += 1
                if racks[each] == rack:
                    same_rack += 1
        return same_host, same_rack

    # Changes

    def move(self, partition: int, old: int, new: int, reason: str) -> None:
        """Move a replica to another node, which takes its place in the order."""
        replicas = self.replicas[partition]
        place = replicas.index(old)
        replicas[place] = new
        self._count(old, partition, -1)
        self._count(new, partition, 1)
        self._room[self._disks[new]] -= self.sizes[partition]
        if place == 0:
            self.leaders[old] -= 1
            self.leaders[new] += 1
        self.reasons.setdefault(partition, reason)

    def drop(self, partition: int, node: int, reason: str) -> None:
        """Take a replica away, which is not the only one."""
        replicas = self.replicas[partition]
        if replicas[0] == node:
            self.leaders[node] -= 1
            self.leaders[replicas[1]] += 1
        replicas.remove(node)
        self._count(node, partition, -1)
        self.reasons.setdefault(partition, reason)

    def lead(self, partition: int, node: int, reason: str) -> None:
        """Make a replica the preferred leader."""
        replicas = self.replicas[partition]
        self.leaders[replicas[0]] -= 1
        self.leaders[node] += 1
        replicas.remove(node)
        replicas.insert(0, node)
        self.reasons.setdefault(partition, reason)

    # What it adds up to

    def loads(self) -> tuple[NodeLoad, ...]:
        return tuple(
            NodeLoad(
                row.node_id,
                self.counts[index],
                self.leaders[index],
                self.bytes[index],
                self.traffic[index],
            )
            for index, row in enumerate(self.nodes)
        )

    def plan(self, problems: Iterable[str] = ()) -> Plan:
        """Return what has changed, in the order in which it was decided."""
        moves = []
        for partition, reason in self.reasons.items():
            row = self.partitions[partition]
            after = tuple(self.nodes[node].node_id for node in self.replicas[partition])
            if after != row.replicas:
                moves.append(
                    Move(row.topic, row.partition, row.replicas, after, row.size_bytes, reason)
                )
        return Plan(tuple(moves), tuple(problems), self.before, self.loads())

    def _count(self, node: int, partition: int, change: int) -> None:
        self.counts[node] += change
        self.bytes[node] += change * self.sizes[partition]
        self.traffic[node] += change * self.rates[partition]

    def _find_room(self) -> list[float]:
        room = [NO_LIMIT] * (max(self._disks, default=0) + 1)
        for index, row in enumerate(self.nodes):
            if UNKNOWN_BYTES not in (row.total_bytes, row.free_bytes):
                left = row.free_bytes - row.total_bytes * (1 - self.limits.fill_max)
                disk = self._disks[index]
                room[disk] = min(room[disk], max(0.0, left))
        return room


def _with_missing(
    nodes: Sequence[NodeRow], partitions: Sequence[PartitionRow]
) -> tuple[NodeRow, ...]:
    """Return the nodes by id, with those that only partitions know: they are down."""
    known = {row.node_id: row for row in nodes}
    for row in partitions:
        for node_id in row.replicas:
            if node_id not in known:
                known[node_id] = NodeRow(node_id, is_up=False)
    return tuple(known[node_id] for node_id in sorted(known))


def _numbered(names: Iterable[str]) -> list[int]:
    """Return a number for each name, the same for the same one."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
