import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cluster.balancing.spreading import plan_balance
from headrace.cluster.balancing.terms import Limits, NodeRow, PartitionRow
from tests.unit.cluster.balancing.rows import (
    check,
    clusters,
    partition,
    partitions,
    unevenness,
)


@given(clusters())
def test_a_plan_keeps_factors_and_parts_no_less_than_before(
    cluster: tuple[list[NodeRow], list[PartitionRow]],
) -> None:
    nodes, rows = cluster
    of_id = {node.node_id: node for node in nodes}
    plan = plan_balance(nodes, rows)
    check(rows, plan)
    assert not plan.problems
    for move in plan.moves:
        spread = [len({of_id[each].host for each in side}) for side in (move.before, move.after)]
        assert spread[1] >= spread[0]
    assert plan == plan_balance(nodes, rows)


@given(clusters(hosts=False))
def test_a_plan_is_never_worse_than_what_was_there(
    cluster: tuple[list[NodeRow], list[PartitionRow]],
) -> None:
    nodes, rows = cluster
    plan = plan_balance(nodes, rows)
    assert unevenness(plan.after) <= unevenness(plan.before) + 1e-6
    if not any(move.adding for move in plan.moves):
        assert unevenness(plan.after) == unevenness(plan.before)
    again = plan_balance(
        nodes,
        [
            PartitionRow(row.topic, row.partition, replicas, row.size_bytes, row.bytes_in)
            for row, replicas in zip(rows, check(rows, plan).values(), strict=True)
        ],
    )
    assert unevenness(again.after) <= unevenness(plan.after) + 1e-6


@settings(max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_equal_partitions_are_spread_with_the_fewest_moves(leaders: list[int]) -> None:
    """Compare with every other way to place them."""
    nodes = [NodeRow(each) for each in (1, 2, 3, 4)]
    rows = partitions(*((each,) for each in leaders))
    plan = plan_balance(nodes, rows)

    def spread(placed: tuple[int, ...]) -> float:
        return float(sum(placed.count(each) ** 2 for each in (1, 2, 3, 4)))

    reached = spread(tuple(replicas[0] for replicas in check(rows, plan).values()))
    fewest = min(
        sum(new != old for new, old in zip(placed, leaders, strict=True))
        for placed in itertools.product((1, 2, 3, 4), repeat=len(leaders))
        if spread(placed) <= reached
    )
    assert plan.copies == fewest


def test_a_new_node_gets_its_share_with_as_many_moves_as_it_gets_replicas() -> None:
    nodes = [NodeRow(each) for each in (1, 2, 3, 4)]
    rows = partitions(*[(1, 2), (2, 3), (3, 1)] * 20, size=100)
    plan = plan_balance(nodes, rows)
    (new,) = [load for load in plan.after if load.node_id == 4]
    assert 27 <= new.replicas == plan.copies <= 33
    assert 13 <= new.leaders <= 17
    assert max(load.size_bytes for load in plan.after) <= 3300


def test_large_partitions_go_first_so_that_few_move() -> None:
    nodes = [NodeRow(each) for each in (1, 2)]
    rows = [partition(1, size=1000), partition(1, size=1000, index=1)]
    rows += [partition(1, size=1, index=index) for index in range(2, 12)]
    plan = plan_balance(nodes, rows, Limits(tolerance=0.5))
    assert plan.moves[0].size_bytes == 1000


def test_replicas_that_share_a_machine_part() -> None:
    nodes = [NodeRow(1, host="a"), NodeRow(2, host="a"), NodeRow(3, host="b")]
    plan = plan_balance(nodes, partitions((1, 2)))
    (move,) = plan.moves
    assert set(move.after) in ({1, 3}, {2, 3})


def test_busy_partitions_are_spread_even_if_they_are_small() -> None:
    nodes = [NodeRow(each) for each in (1, 2)]
    rows = [partition(1, 2, size=10, rate=100.0, index=index) for index in range(4)]
    rows += [partition(2, 1, size=10, rate=0.0, index=index) for index in range(4, 8)]
    plan = plan_balance(nodes, rows)
    led = {replicas[0] for index, replicas in check(rows, plan).items() if index < 4}
    assert led == {1, 2}
    assert plan.copied_bytes == 0


def test_a_node_that_is_down_keeps_what_it_has_and_one_that_leaves_does_not() -> None:
    nodes = [NodeRow(1), NodeRow(2, is_up=False), NodeRow(3), NodeRow(4, is_leaving=True)]
    rows = partitions((2,), (2,), (1,), (3,), (4,))
    found = check(rows, plan_balance(nodes, rows))
    assert found[0] == found[1] == (2,)
    assert found[4] in ((1,), (3,))


def test_the_number_of_moves_is_bounded_and_the_loads_are_those_of_what_is_left() -> None:
    nodes = [NodeRow(each) for each in (1, 2)]
    rows = partitions(*[(1,)] * 20)
    plan = plan_balance(nodes, rows, Limits(moves_max=3))
    assert len(plan.moves) == 3
    assert [load.replicas for load in plan.after] == [17, 3]
    check(rows, plan)
