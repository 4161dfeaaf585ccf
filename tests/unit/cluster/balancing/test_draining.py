from hypothesis import given

from headrace.cluster.balancing.draining import plan_drain
from headrace.cluster.balancing.terms import Limits, NodeRow, PartitionRow
from tests.unit.cluster.balancing.rows import check, clusters, partition, partitions

GIB = 1024**3


@given(clusters())
def test_every_replica_of_the_node_moves_once_and_nothing_else_does(
    cluster: tuple[list[NodeRow], list[PartitionRow]],
) -> None:
    nodes, rows = cluster
    leaving = nodes[0].node_id
    plan = plan_drain(nodes, rows, {leaving})
    found = check(rows, plan)
    stuck = [row for row in rows if leaving in row.replicas and len(row.replicas) == len(nodes)]
    assert bool(stuck) == bool(plan.problems)
    for row in rows:
        if leaving not in row.replicas or row in stuck:
            assert found[row.partition] == row.replicas
        else:
            new = set(found[row.partition]) - set(row.replicas)
            assert len(new) == 1
            assert set(row.replicas) - set(found[row.partition]) == {leaving}
    assert plan == plan_drain(nodes, rows, {leaving})


@given(clusters())
def test_machines_and_racks_are_shared_only_where_it_cannot_be_avoided(
    cluster: tuple[list[NodeRow], list[PartitionRow]],
) -> None:
    nodes, rows = cluster
    of_id = {node.node_id: node for node in nodes}
    plan = plan_drain(nodes, rows, {1})
    for move in plan.moves:
        (new,) = move.adding
        others = [of_id[each] for each in move.after if each != new]
        free = [node for node in nodes if node.node_id not in (*move.before, 1)]

        def conflicts(node: NodeRow, others: list[NodeRow] = others) -> tuple[int, int]:
            racks = sum(node.rack is not None and node.rack == each.rack for each in others)
            return sum(node.host == each.host for each in others), racks

        assert conflicts(of_id[new]) == min(map(conflicts, free))


def test_leaders_of_the_node_are_spread_over_those_that_have_the_records_first() -> None:
    nodes = [NodeRow(each) for each in (1, 2, 3, 4)]
    rows = partitions(*[(1, 2, 3)] * 4)
    plan = plan_drain(nodes, rows, {1})
    first = [move.after[0] for move in plan.moves]
    assert first[:2] == [2, 3]
    assert max(map(first.count, first)) == 2
    assert {load.leaders for load in plan.after if load.node_id != 1} == {1, 2}


def test_no_disk_is_filled_beyond_the_bound() -> None:
    nodes = [
        NodeRow(1),
        NodeRow(2, total_bytes=100 * GIB, free_bytes=25 * GIB),
        NodeRow(3, total_bytes=100 * GIB, free_bytes=15 * GIB),
    ]
    rows = [partition(1, size=5 * GIB, index=index) for index in range(4)]
    assert not plan_drain(nodes, rows, {1}).problems
    plan = plan_drain(nodes, [*rows, partition(1, size=GIB, index=4)], {1})
    (problem,) = plan.problems
    assert "orders-4" in problem
    assert "90%" in problem
    assert not plan_drain(nodes, rows, {1}, Limits(fill_max=1.0)).problems


def test_nodes_on_one_disk_share_its_room() -> None:
    disk = {"disk": "a", "total_bytes": 100, "free_bytes": 20}
    nodes = [NodeRow(1), NodeRow(2, **disk), NodeRow(3, **disk)]  # type: ignore[arg-type]
    assert plan_drain(nodes, [partition(1, size=8), partition(1, size=8, index=1)], {1}).problems


def test_too_few_nodes_are_said_to_be_too_few_unless_fewer_replicas_will_do() -> None:
    nodes = [NodeRow(each) for each in (1, 2, 3)]
    rows = partitions((1, 2, 3), (2, 3, 1))
    (problem,) = plan_drain(nodes, rows, {1}).problems
    assert "2 partitions (orders-0, orders-1)" in problem
    assert "2 nodes would be left" in problem
    plan = plan_drain(nodes, rows, {1}, Limits(may_shrink=True))
    assert not plan.problems
    assert [move.after for move in plan.moves] == [(2, 3), (2, 3)]


def test_nodes_that_are_down_or_leave_get_nothing() -> None:
    nodes = [NodeRow(1), NodeRow(2, is_up=False), NodeRow(3, is_leaving=True), NodeRow(4)]
    plan = plan_drain(nodes, partitions((1,), (1,)), {1})
    assert [move.after for move in plan.moves] == [(4,), (4,)]


def test_a_node_that_is_gone_and_not_listed_is_drained_too() -> None:
    plan = plan_drain([NodeRow(2), NodeRow(3)], partitions((9, 2)), {9})
    assert [move.after for move in plan.moves] == [(2, 3)]
