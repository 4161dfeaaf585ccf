import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cluster.balancing.spreading import plan_balance
from headrace.cluster.balancing.terms import Limits, NodeRow
from tests.unit.cluster.balancing.rows import check, partitions

THREE = [NodeRow(each) for each in (1, 2, 3)]


@settings(max_examples=60)
@given(st.lists(st.permutations((1, 2, 3)), min_size=1, max_size=6))
def test_leaders_are_spread_with_the_fewest_changes(orders: list[list[int]]) -> None:
    rows = partitions(*map(tuple, orders))
    plan = plan_balance(THREE, rows, Limits(tolerance=0.01))
    assert plan.copies == 0
    led = [replicas[0] for replicas in check(rows, plan).values()]
    counts = [led.count(each) for each in (1, 2, 3)]
    assert max(counts) - min(counts) <= 1
    fewest = min(
        sum(new != order[0] for new, order in zip(chosen, orders, strict=True))
        for chosen in itertools.product((1, 2, 3), repeat=len(orders))
        if max(map(chosen.count, (1, 2, 3))) - min(map(chosen.count, (1, 2, 3))) <= 1
    )
    assert len(plan.moves) == fewest


def test_a_leader_is_passed_on_over_a_chain() -> None:
    """Node 1 shares nothing with node 3, so node 2 passes one on."""
    rows = partitions((1, 2), (1, 2), (1, 2), (2, 3))
    nodes = [NodeRow(1, rack="a"), NodeRow(2, rack="b"), NodeRow(3, rack="c")]
    plan = plan_balance(nodes, rows, Limits(tolerance=0.99))
    led = [replicas[0] for replicas in check(rows, plan).values()]
    assert sorted(map(led.count, (1, 2, 3))) in ([1, 1, 2], [0, 2, 2])
