"""Replication throttles: rates, which replicas they are for, and what they never hold back."""

import pytest

from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition
from headrace.replication.throttles import Throttle, is_throttled, throttled_partitions
from tests.config_requests import BROKER, TOPIC
from tests.unit.api.test_fetch_replica import OTHER, World
from tests.unit.harness import Harness
from tests.unit.node.test_settings_change import alter
from tests.unit.replication.followers import Node, in_virtual_time, until


class Clock:
    now_ms = 0


def throttle(clock: Clock, rate: int) -> Throttle:
    return Throttle(lambda: rate, lambda: clock.now_ms, window_count=11, window_ms=1000)


def test_a_rate_is_exceeded_until_enough_time_has_passed() -> None:
    clock = Clock()
    limited = throttle(clock, 1000)
    assert not limited.is_exceeded()
    limited.record(5000)
    for now_ms, expected in ((0, True), (4000, True), (5000, False)):
        clock.now_ms = now_ms
        assert limited.is_exceeded() is expected
    assert limited.bytes_per_second() == 1000


def test_a_rate_of_nothing_lets_one_response_through_and_no_more() -> None:
    clock = Clock()
    limited = throttle(clock, 0)
    assert not limited.is_exceeded()
    limited.record(1)
    clock.now_ms = 10_000
    assert limited.is_exceeded()


@pytest.mark.parametrize(
    ("replicas", "node", "throttled"),
    [
        ((), 1, []),
        (("*",), 1, [0, 1, 2, 3]),
        (("0:1", "2:1", "3:2"), 1, [0, 2]),
        (("0:1", "2:1", "3:2"), 2, [3]),
    ],
)
def test_a_topic_names_its_throttled_replicas(
    replicas: tuple[str, ...], node: int, throttled: list[int]
) -> None:
    partitions = throttled_partitions(replicas, node)
    assert [index for index in range(4) if is_throttled(partitions, index)] == throttled


# The leader


def set_isr(world: World, *isr: int) -> None:
    change = ChangePartition(world.topic_id, PartitionIndex(0), isr=tuple(map(BrokerId, isr)))
    world.harness.run(world.harness.broker.quorum.propose(change))


def test_a_leader_leaves_out_throttled_partitions_of_followers_that_are_behind(
    harness: Harness,
) -> None:
    world = World(harness)
    replicas = {"leader.replication.throttled.replicas": "0:1"}
    alter(harness, (TOPIC, "orders"), replicas)
    alter(harness, (BROKER, "1"), {"leader.replication.throttled.rate": "10"})
    set_isr(world, 1)
    for index in (0, 1):
        world.append(b"x" * 1000, index=index)
        world.append(b"x" * 1000, index=index)
    # Nothing has gone yet, so the rate is not exceeded; but more than a batch does not go.
    first = world.follower.fetch({0: 0})[0].records
    assert 1000 < len(first) < 2000
    found = world.follower.fetch({0: 1, 1: 0})
    assert 0 not in found
    assert found[1].records, "another partition is not held back"
    alter(harness, (BROKER, "1"), {"leader.replication.throttled.rate": None})
    assert world.follower.fetch({0: 1})[0].records


def test_a_follower_in_sync_is_never_throttled(harness: Harness) -> None:
    world = World(harness)
    alter(harness, (TOPIC, "orders"), {"leader.replication.throttled.replicas": "*"})
    alter(harness, (BROKER, "1"), {"leader.replication.throttled.rate": "10"})
    assert OTHER in world.partition().isr
    for offset in range(3):
        world.append(b"x" * 1000)
        assert world.follower.fetch({0: offset})[0].records


# The follower


def test_a_follower_that_is_behind_fetches_at_its_rate() -> None:
    async def main() -> None:
        node = Node(replica_fetch_max_bytes="1000")
        node.throttle_rate = 2000
        for index in range(2):
            led = node.leader.lead(index)
            for _ in range(20):
                led.append(b"x" * 500)
        node.partition(0).is_follower_throttled = True
        for index in range(2):
            node.follow(index=index)
        await until(lambda: node.log(1).high_watermark == 20)
        assert node.log(0).end_offset < 10, "the other one is not held up"
        await until(lambda: node.log(0).high_watermark == 20)
        assert node.throttle.bytes_per_second() < 2 * node.throttle_rate
        node.leader.led[0].append(b"y")
        await until(lambda: node.log(0).high_watermark == 21)
        await node.fetchers.stop()

    in_virtual_time(main())


def test_a_throttle_that_is_lifted_lets_a_follower_go_on_at_once() -> None:
    async def main() -> None:
        node = Node(replica_fetch_max_bytes="1000")
        node.throttle_rate = 1
        led = node.leader.lead()
        for _ in range(20):
            led.append(b"x" * 500)
        node.partition().is_follower_throttled = True
        node.follow()
        await until(lambda: node.log().end_offset > 0)
        held_at = node.log().end_offset
        await until(node.throttle.is_exceeded)
        assert held_at < 20
        node.throttle_rate = 10**9
        await until(lambda: node.log().high_watermark == 20, seconds=2)
        await node.fetchers.stop()

    in_virtual_time(main())
