"""Clusters for the tests of plans, and what must be true of every plan."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import strategies as st

from headrace.cluster.balancing.terms import NodeLoad, NodeRow, PartitionRow, Plan


def partition(*replicas: int, size: int = 0, rate: float = 0.0, index: int = 0) -> PartitionRow:
    return PartitionRow("orders", index, replicas, size, rate)


def partitions(*every: tuple[int, ...], size: int = 0) -> list[PartitionRow]:
    return [partition(*replicas, size=size, index=index) for index, replicas in enumerate(every)]


@st.composite
def clusters(
    draw: st.DrawFn, *, hosts: bool = True, weights: bool = True
) -> tuple[list[NodeRow], list[PartitionRow]]:
    """Return up to 8 nodes on some machines and racks, and up to 30 partitions."""
    count = draw(st.integers(2, 8))
    nodes = []
    for node_id in range(1, count + 1):
        host = f"host {draw(st.integers(1, 4))}" if hosts else ""
        rack = draw(st.sampled_from([None, "a", "b", "c"])) if hosts else None
        nodes.append(NodeRow(node_id, rack, host))
    rows = []
    for index in range(draw(st.integers(0, 30))):
        factor = draw(st.integers(1, min(3, count)))
        replicas = draw(st.permutations(range(1, count + 1)))[:factor]
        size = draw(st.integers(0, 1000)) if weights else 0
        rate = draw(st.integers(0, 50)) if weights else 0
        rows.append(partition(*replicas, size=size, rate=float(rate), index=index))
    return nodes, rows


def after(rows: Sequence[PartitionRow], plan: Plan) -> dict[int, tuple[int, ...]]:
    """Return the replicas of each partition when a plan is carried out."""
    found = {row.partition: row.replicas for row in rows}
    for move in plan.moves:
        assert found[move.partition] == move.before != move.after
        found[move.partition] = move.after
    return found


def check(rows: Sequence[PartitionRow], plan: Plan) -> dict[int, tuple[int, ...]]:
    """Check what every plan keeps, and return what is after it."""
    found = after(rows, plan)
    for row in rows:
        assert len(found[row.partition]) == len(row.replicas) == len(set(found[row.partition]))
    counts = Counter(node for replicas in found.values() for node in replicas)
    leaders = Counter(replicas[0] for replicas in found.values())
    sizes = Counter[int]()
    for row in rows:
        for node in found[row.partition]:
            sizes[node] += row.size_bytes
    for load in plan.after:
        assert load.replicas == counts[load.node_id]
        assert load.leaders == leaders[load.node_id]
        assert load.size_bytes == sizes[load.node_id]
    return found


def unevenness(loads: Sequence[NodeLoad]) -> float:
    """Return the sum of squared deviations from the mean, in units of the mean."""
    total = 0.0
    for measure in ("size_bytes", "bytes_in", "replicas"):
        values = [getattr(load, measure) for load in loads]
        mean = sum(values) / max(len(values), 1)
        if mean > 0:
            total += sum((value / mean - 1) ** 2 for value in values)
    return total
