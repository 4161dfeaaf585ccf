"""Who forms a cluster: what a node without one decides from what its seeds say.

    match decide(Blank(node, folder_id, frozenset(seeds)), answers): ...

A node without seeds is a cluster of its own. One with seeds joins a cluster if a seed belongs to
one. Otherwise one of the seeds may form it: the one with the lowest id, and only when every seed
has said that it has no cluster and was given the same seeds. So no two nodes can both be it: each
of them would have to have seen the other, with a higher id. `RULES` holds the conditions, one
function each; the test of this module removes each and finds the two clusters.

This rests on two promises of the shell. From its decision to form a cluster on, a node never again
says that it is blank, not even after a crash that left something of the cluster on its disk. And a
blank node keeps its id while others may still decide on what it said.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from headrace.ids import BrokerId as NodeId


class Blank(Struct, frozen=True):
    """A node that has no cluster."""

    node: NodeId
    folder_id: bytes
    seeds: frozenset[str]
    """The seeds that it was given, in one spelling on all nodes."""


class Member(Struct, frozen=True):
    """A node of a cluster."""

    cluster_id: str


class Join(Struct, frozen=True):
    """Join the cluster of the nodes at these addresses."""

    addresses: tuple[str, ...]


class Bootstrap(Struct, frozen=True):
    """Form the cluster."""


class Wait(Struct, frozen=True):
    """Ask again later: why, and what a person can do about it, nothing if it needs nobody."""

    reason: str
    remedy: str = ""


Answer: TypeAlias = Blank | Member
Decision: TypeAlias = Join | Bootstrap | Wait
Rule: TypeAlias = Callable[[Blank, Mapping[str, Blank]], Wait | None]


def decide(own: Blank, answers: Mapping[str, Answer | None]) -> Decision:
    """Return what to do, given the answer of each seed; None, or none at all, if it has not said.

    A node asks itself too, if it is a seed: its own answer tells that it is.
    """
    if not own.seeds:
        return Bootstrap()
    heard = {seed: answers.get(seed) for seed in sorted(own.seeds)}
    members = {seed: each.cluster_id for seed, each in heard.items() if isinstance(each, Member)}
    if len(set(members.values())) > 1:
        return _two_clusters(members)
    if members:
        return Join(tuple(members))
    blanks = {seed: each for seed, each in heard.items() if isinstance(each, Blank)}
    for rule in RULES:
        wait = rule(own, blanks)
        if wait is not None:
            return wait
    return Bootstrap()


def _two_clusters(members: Mapping[str, str]) -> Wait:
    told = ", ".join(f"{seed} of {cluster_id}" for seed, cluster_id in members.items())
    return Wait(
        f"the seeds are of different clusters: {told}",
        "name only seeds of the cluster that this node is to join in headrace.seeds",
    )


def _are_different_nodes(own: Blank, blanks: Mapping[str, Blank]) -> Wait | None:
    """Two ids that are equal have no lowest.

    Addresses that reach the same node are refused too. `localhost` is another node on each
    machine: a node that hears itself twice has not heard some other one.
    """
    by_folder: dict[bytes, str] = {}
    by_node: dict[NodeId, str] = {}
    for seed, blank in blanks.items():
        if blank.folder_id in by_folder:
            return Wait(
                f"the seeds {by_folder[blank.folder_id]} and {seed} are the same node, "
                f"{blank.node}, or one's data folder is a copy of the other's",
                "name each node once in headrace.seeds, with an address that means the same node "
                "on every machine, and never copy a data folder",
            )
        if blank.node in by_node:
            return Wait(
                f"the seeds {by_node[blank.node]} and {seed} both have the node id {blank.node}",
                "give every node an id of its own with node.id, and start the one you changed with "
                "an empty data folder",
            )
        by_folder[blank.folder_id] = by_node[blank.node] = seed
    return None


def _mean_the_same_seeds(own: Blank, blanks: Mapping[str, Blank]) -> Wait | None:
    for seed, blank in blanks.items():
        if blank.seeds == own.seeds:
            continue
        is_seed = any(each.folder_id == own.folder_id for each in blanks.values())
        crossed = "" if is_seed else ", and this node is none of its own: nobody forms a cluster"
        return Wait(
            f"this node was given the seeds {_names(own.seeds)}, but the one at {seed} was given "
            f"{_names(blank.seeds)}{crossed}",
            "give every node the same headrace.seeds, with the addresses of all that are to form "
            "the cluster",
        )
    return None


def _have_all_answered(own: Blank, blanks: Mapping[str, Blank]) -> Wait | None:
    missing = own.seeds.difference(blanks)
    if not missing:
        return None
    return Wait(
        f"no answer from {_names(missing)}: a cluster is formed when every seed has answered",
        "start these nodes, or correct their addresses in headrace.seeds on every node",
    )


def _include_this_node(own: Blank, blanks: Mapping[str, Blank]) -> Wait | None:
    if any(blank.folder_id == own.folder_id for blank in blanks.values()):
        return None
    return Wait(
        f"node {own.node} is not one of the seeds {_names(own.seeds)}: it joins when they have "
        "formed a cluster",
        "if it is to form the cluster with them, add its address to headrace.seeds on every node",
    )


def _is_this_node_the_lowest(own: Blank, blanks: Mapping[str, Blank]) -> Wait | None:
    lowest = min((blank.node for blank in blanks.values()), default=own.node)
    if own.node <= lowest:
        return None
    return Wait(f"node {lowest} has the lowest id of the seeds and forms the cluster")


def _names(seeds: Iterable[str]) -> str:
    return ", ".join(sorted(seeds)) or "no seeds"


RULES: Final[tuple[Rule, ...]] = (
    _are_different_nodes,
    _mean_the_same_seeds,
    _have_all_answered,
    _include_this_node,
    _is_this_node_the_lowest,
)
"""What must hold before a node forms a cluster; the first that does not says what is the matter."""
