"""A cluster in a test: it starts, loses nodes, is cut and healed."""

import pytest

from headrace.client import Admin
from headrace.ids import BrokerId, TopicName
from headrace.testing.cluster import TestCluster


def test_records_of_all_nodes_are_read_through_any_of_them() -> None:
    with TestCluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        values = {b"%d" % number for number in range(60)}
        cluster.produce("orders", *((value, value) for value in values))
        assert {record.value for record in cluster.consume("orders")} == values
        for node in cluster.nodes.values():
            assert {record.value for record in node.consume("orders")} == values


def test_a_change_is_accepted_by_every_node_and_visible_there_at_once() -> None:
    with TestCluster(nodes=3) as cluster:
        for number, node in cluster.nodes.items():
            name = node.create_topic(f"of-{number}")
            assert node.node.broker.image.topic(TopicName(name)) is not None


@pytest.mark.slow
def test_the_others_go_on_when_the_controller_is_killed() -> None:
    with TestCluster(nodes=3) as cluster:
        lost = cluster.controller
        cluster.kill(lost)
        cluster.create_topic("while-it-is-gone")
        assert cluster.controller != lost
        cluster.restart(lost)
        assert (
            cluster.nodes[lost].node.broker.image.topic(TopicName("while-it-is-gone")) is not None
        )


@pytest.mark.slow
def test_a_controller_that_is_cut_off_is_replaced_and_comes_back() -> None:
    with TestCluster(nodes=3) as cluster:
        alone = cluster.controller
        cluster.isolate(alone)
        cluster.wait_for(
            lambda: not cluster.nodes[alone].node.cluster.is_controller, "it to resign"
        )
        other = cluster.controller
        assert other != alone
        cluster.nodes[other].create_topic("on-the-other-side")
        image = cluster.nodes[alone].node.broker.image
        assert image.topic(TopicName("on-the-other-side")) is None
        cluster.heal()
        cluster.wait_for(
            lambda: (
                cluster.nodes[alone].node.broker.image.topic(TopicName("on-the-other-side"))
                is not None
            ),
            "the news",
        )


@pytest.mark.slow
def test_a_paused_node_is_fenced_and_comes_back() -> None:
    with TestCluster(nodes=3) as cluster:
        paused = next(number for number in cluster.nodes if number != cluster.controller)
        cluster.pause(paused)
        watcher = cluster.nodes[cluster.controller].node

        def is_fenced() -> bool:
            broker = watcher.broker.image.broker(BrokerId(paused))
            return broker is not None and broker.is_fenced

        cluster.wait_for(is_fenced, "the node to be fenced")
        cluster.heal()
        cluster.wait_for(lambda: not is_fenced(), "the node to be unfenced")


def test_a_node_joins_later_and_follows_when_there_are_voters_enough() -> None:
    with TestCluster(nodes=3) as cluster:
        fourth = cluster.add()
        node = cluster.nodes[fourth]
        assert node.node.broker.quorum.driver.state.membership.learners == (fourth,)
        node.create_topic("by-a-learner", partitions=8)

        async def brokers() -> set[int]:
            async with Admin(node.bootstrap) as admin:
                return {each.node_id for each in (await admin.describe_cluster()).nodes}

        assert node.run(brokers()) == {1, 2, 3, 4}


def test_the_clocks_of_all_nodes_move() -> None:
    with TestCluster(nodes=2) as cluster:
        before = [node.clock.now_ms() for node in cluster.nodes.values()]
        cluster.clock.advance(3_600_000)
        after = [node.clock.now_ms() for node in cluster.nodes.values()]
        assert all(late - early >= 3_600_000 for early, late in zip(before, after, strict=True))


def test_a_cluster_has_nodes() -> None:
    with pytest.raises(ValueError, match="0"):
        TestCluster(nodes=0)


def test_the_fixture_is_a_cluster_of_three(headrace_cluster: TestCluster) -> None:
    headrace_cluster.create_topic("orders")
    headrace_cluster.produce("orders", "one")
    assert [record.value for record in headrace_cluster.consume("orders")] == [b"one"]
    assert sorted(headrace_cluster.nodes) == [1, 2, 3]
