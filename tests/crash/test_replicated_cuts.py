"""Three copies of everything on three nodes between which the network is cut, under load.

Clients reach every node all the time. Cuts lose packets without a word, both ways or one way, for
long or on and off, between the controller and a leader or between a leader and its followers.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.crash.namespaces import CannotBuild, Networks, networks
from tests.crash.replicated_producers import Load, producers, values_by_partition
from tests.crash.test_replicated_kills import (
    PARTITIONS,
    REPLICATED,
    TOPIC,
    leaders,
)
from tests.process_cluster import Place, ProcessCluster, wait_for

NODES = (1, 2, 3)
CUT_SECONDS = 4
"""Longer than a session lasts, so that a node that is cut off is fenced."""
FLAP_SECONDS = 0.4
ACKNOWLEDGED_PER_SECOND_MIN = 30
"""A run in which less is acknowledged, cuts included, proves nothing."""


@pytest.fixture
def network() -> Iterator[Networks]:
    try:
        with networks(3) as made:
            yield made
    except CannotBuild as error:
        pytest.skip(str(error))


@pytest.fixture
def cluster(network: Networks, tmp_path: Path) -> Iterator[ProcessCluster]:
    secret = tmp_path / "secret"
    secret.write_text("of three nodes, as long as it must be\n")
    places = {
        number: Place(network.address(number), 9092, 9093, network.within(number))
        for number in NODES
    }
    settings = {
        **REPLICATED,
        "headrace.cluster.secret.file": str(secret),
        "replica.lag.time.max.ms": "2000",
        "leader.imbalance.check.interval.seconds": "1",  # each node leads again after a cut
    }
    with ProcessCluster(tmp_path, settings, places=places) as cluster:
        cluster.wait_until_all_agree()
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        cluster.wait_until_in_sync()
        yield cluster


Cut = Callable[[Networks, int, int], None]


def lose_for(seconds: float) -> None:
    time.sleep(seconds)  # how long packets are lost is what is tested


def both_ways(network: Networks, one: int, other: int) -> None:
    network.cut(one, other)
    network.cut(other, one)
    lose_for(CUT_SECONDS)


def one_way(network: Networks, one: int, other: int) -> None:
    network.cut(one, other)
    lose_for(CUT_SECONDS)


def on_and_off(network: Networks, one: int, other: int) -> None:
    for _ in range(int(CUT_SECONDS / (2 * FLAP_SECONDS))):
        network.cut(one, other)
        network.cut(other, one)
        lose_for(FLAP_SECONDS)
        network.heal()
        lose_for(FLAP_SECONDS)


CUTS: tuple[Cut, ...] = (both_ways, one_way, on_and_off)


def run_cuts(
    network: Networks, cluster: ProcessCluster, cuts: Iterable[tuple[Cut, tuple[int, int]]]
) -> int:
    """Cut pairs of nodes under load, heal each time, and compare with what was promised.

    Return how many of the cuts had taken a replica out of an ISR when they were healed.
    """
    felt = 0
    with producers(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_for_more(50)
        begun, before = time.monotonic(), count(load)
        for cut, (one, other) in cuts:
            cut(network, one, other)
            felt += has_lost_replicas(cluster)
            network.heal()
            load.wait_for_more(10)
            cluster.wait_until_in_sync()
        per_second = (count(load) - before) / (time.monotonic() - begun)
        load.wait_for_more(50)
    load.check(values_by_partition(cluster.bootstrap, TOPIC))
    assert per_second >= ACKNOWLEDGED_PER_SECOND_MIN
    cluster.wait_until_all_agree()
    return felt


def has_lost_replicas(cluster: ProcessCluster) -> bool:
    """Tell whether some node knows of an ISR that is not whole; clients reach all nodes."""
    return any(
        len(isr) < len(NODES)
        for number in NODES
        for _, _, isr in cluster.view(number)["topics"][TOPIC][1].values()
    )


def count(load: Load) -> int:
    return sum(sender.count for sender in load.senders)


def leader_apart(cluster: ProcessCluster) -> tuple[int, int]:
    """Return a node that leads a partition and is not the controller, and the controller."""
    found: list[int] = []

    def is_found() -> bool:
        controller = cluster.controller()
        others = [each for each in leaders(cluster).values() if each not in (-1, controller)]
        found[:] = [*others[:1], controller]
        return len(found) == 2

    wait_for(is_found, "a leader that is not the controller")
    return found[0], found[1]


def follower_pair(cluster: ProcessCluster) -> tuple[int, int]:
    """Return a leader, and a follower of it that is not the controller if that can be."""
    leader, controller = leader_apart(cluster)
    return leader, next(each for each in NODES if each not in (leader, controller))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cuts_lose_double_and_reorder_nothing_that_was_acknowledged(
    network: Networks, cluster: ProcessCluster
) -> None:
    def cuts() -> Iterator[tuple[Cut, tuple[int, int]]]:
        yield both_ways, leader_apart(cluster)
        yield one_way, follower_pair(cluster)
        yield on_and_off, leader_apart(cluster)

    assert run_cuts(network, cluster, cuts())


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cut", CUTS)
def test_cuts_between_every_pair_lose_nothing(
    network: Networks, cluster: ProcessCluster, cut: Cut
) -> None:
    chance = random.Random(cut.__name__)
    pairs = [*permutations(NODES, 2)] * 3
    chance.shuffle(pairs)
    felt = run_cuts(network, cluster, ((cut, pair) for pair in pairs))
    assert felt or cut is on_and_off


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cut", CUTS)
def test_cuts_around_a_leader_lose_nothing(
    network: Networks, cluster: ProcessCluster, cut: Cut
) -> None:
    """The leader is cut off from both followers at once, then from the controller alone."""

    def around(network: Networks, one: int, other: int) -> None:
        third = 6 - one - other
        if cut is not one_way:
            network.cut(third, one)
        network.cut(one, third)
        cut(network, one, other)

    def cuts() -> Iterator[tuple[Cut, tuple[int, int]]]:
        for _ in range(6):
            yield around, leader_apart(cluster)
            yield cut, leader_apart(cluster)
            yield cut, follower_pair(cluster)
            yield cut, follower_pair(cluster)[::-1]

    felt = run_cuts(network, cluster, cuts())
    assert felt or cut is on_and_off
