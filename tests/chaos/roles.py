"""Who something happens to: the node that has a role just now."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.client.topics import TopicPartition
from tests.chaos.loads import Load
from tests.chaos.moves import Move
from tests.chaos.nodes import Nodes


class Role(NamedTuple):
    name: str
    find: Callable[[Nodes, Load, Move | None], int]
    is_of_a_move: bool = False


def controller(nodes: Nodes, load: Load, move: Move | None) -> int:
    return nodes.controller()


def leader(nodes: Nodes, load: Load, move: Move | None) -> int:
    """Return the leader of a partition, not the controller if that can be."""
    leaders = [
        nodes.partition(TopicPartition(load.topic, index)).leader
        for index in range(load.partitions)
    ]
    return _apart(nodes, leaders)


def follower(nodes: Nodes, load: Load, move: Move | None) -> int:
    """Return a follower of a partition, neither the controller nor a leader if that can be."""
    state = nodes.partition(TopicPartition(load.topic, 0))
    return _apart(nodes, [each for each in state.replicas if each != state.leader])


def coordinator(nodes: Nodes, load: Load, move: Move | None) -> int:
    return nodes.coordinator(*load.coordinated)


def source(nodes: Nodes, load: Load, move: Move | None) -> int:
    assert move is not None
    return move.source


def target(nodes: Nodes, load: Load, move: Move | None) -> int:
    assert move is not None
    return move.target


def _apart(nodes: Nodes, candidates: list[int]) -> int:
    busy = nodes.controller()
    return next((each for each in candidates if each != busy), candidates[0])


ROLES = (
    Role("controller", controller),
    Role("leader", leader),
    Role("follower", follower),
    Role("coordinator", coordinator),
    Role("source", source, is_of_a_move=True),
    Role("target", target, is_of_a_move=True),
)
