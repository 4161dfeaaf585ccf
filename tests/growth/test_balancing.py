from headrace.cluster.balancing.draining import plan_drain
from headrace.cluster.balancing.spreading import plan_balance
from headrace.cluster.balancing.terms import NodeRow, PartitionRow, Plan
from tests.growth.steps import assert_grows_linearly, steps

NODES = 10


def _nodes(count: int = NODES) -> list[NodeRow]:
    return [NodeRow(each, rack=f"rack {each % 3}") for each in range(count)]


def _rows(count: int, on: int) -> list[PartitionRow]:
    """Return partitions on the first nodes, of sizes and rates that differ."""
    return [
        PartitionRow(
            f"topic {index // 100}",
            index % 100,
            (index % on, (index + 1) % on, (index + 2) % on),
            size_bytes=1 + index * 7919 % 1009,
            bytes_in=float(index * 104_729 % 97),
        )
        for index in range(count)
    ]


def test_planning_to_drain_a_node_grows_with_what_it_has() -> None:
    def plan(count: int) -> int:
        nodes, rows = _nodes(), _rows(count, NODES)
        return steps(lambda: plan_drain(nodes, rows, {0}))

    assert_grows_linearly(plan, 300)


def test_planning_to_spread_partitions_grows_with_their_number() -> None:
    def plan(count: int) -> int:
        nodes, rows = _nodes(), _rows(count, NODES - 2)
        made: list[Plan] = []
        cost = steps(lambda: made.append(plan_balance(nodes, rows)))
        assert len(made[0].moves) > count / 10
        return cost

    assert_grows_linearly(plan, 300)


def test_partitions_that_stay_cost_little() -> None:
    """A cluster that is even is looked at once."""

    def plan(count: int) -> int:
        nodes, rows = _nodes(), _rows(count, NODES)
        return steps(lambda: plan_balance(nodes, rows))

    assert_grows_linearly(plan, 300)
