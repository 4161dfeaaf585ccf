"""Requests of one connection take effect in order, whichever node of a cluster it leads to.

A node that is not the controller sends changes there, and answers from its own image.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.testing.cluster import TestCluster
from tests.differential.comparison import play
from tests.differential.conversation import Conversation
from tests.differential.pairs import nodes
from tests.differential.pairs.pair import Pair

NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3, settings={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("pair", nodes.PAIRS, ids=lambda pair: pair.name)
def test_a_request_sees_what_those_before_it_did(
    cluster: TestCluster, pair: Pair, number: int
) -> None:
    with closing(Conversation(cluster.nodes[number].bootstrap, f"node{number}")) as talk:
        pair.script(talk)


def test_what_is_known_of_a_lost_node_is_what_those_before_it_left() -> None:
    with TestCluster(nodes=3) as cluster:
        cluster.stop(3)
        other = next(number for number in (1, 2) if number != cluster.controller)
        (pair,) = nodes.LOSSES
        play(pair.script, cluster.nodes[other].bootstrap)
