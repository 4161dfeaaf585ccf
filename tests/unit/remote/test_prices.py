"""What a tier costs."""

import pytest

from headrace.remote.prices import MONTH_MS, PRICES, Prices, cost_of
from tests.unit.remote.statuses import partition_status, tier_status

PLAIN = Prices(1.0, 0.1, 0.0, 2.0, 0.5, 3.0)


def test_requests_and_bytes_are_paid_for() -> None:
    status = tier_status(
        uptime_ms=MONTH_MS // 10,
        puts=2000,
        gets=500,
        lists=1000,
        get_bytes=2 * 10**9,
        partitions=(partition_status(remote_bytes=4 * 10**9),),
    )
    rows = {row.what: row for row in cost_of([status], PLAIN)}
    assert (rows["put"].amount, rows["put"].so_far) == (2000, 2.0)
    assert rows["put"].per_month == pytest.approx(20.0)
    assert rows["get"].so_far == pytest.approx(0.05)
    assert rows["list"].per_month == pytest.approx(20.0)
    assert rows["delete"].so_far == 0
    assert rows["read"].so_far == pytest.approx(6.0)
    assert (rows["storage"].so_far, rows["storage"].per_month) == (None, 2.0)


def test_what_several_nodes_know_of_a_partition_is_paid_once() -> None:
    leader = tier_status(partitions=(partition_status(remote_bytes=10**9),))
    follower = tier_status(
        node=2, partitions=(partition_status(remote_bytes=7 * 10**9, is_leader=False),)
    )
    for nodes in ([leader, follower], [follower, leader]):
        rows = {row.what: row for row in cost_of(nodes, PLAIN)}
        assert rows["storage"].amount == 1.0


def test_a_node_that_has_just_started_costs_nothing_yet() -> None:
    assert sum(row.per_month for row in cost_of([tier_status(uptime_ms=0)], PRICES["s3"])) == 0
