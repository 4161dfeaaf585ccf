"""Who forms a cluster: the words for people, and a search through everything three nodes can do.

In the search every node asks its seeds one after the other, in any order and at any time, and gets
an answer or none: a seed that has not started, restarts or cannot be reached says nothing. A node
that has asked all decides. A blank node may restart at any time, which forgets what it has heard.
Whoever formed or joined a cluster says so from then on. No two nodes whose seeds overlap may ever
form one each.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain, combinations, permutations, product

import pytest

from headrace.cluster import forming
from headrace.cluster.forming import Answer, Blank, Bootstrap, Decision, Join, Member, Wait, decide
from headrace.ids import BrokerId

A, B, C = "a:9093", "b:9093", "c:9093"
ADDRESSES = (A, B, C)
HERE = "localhost:9093"
"""On every machine another node: the one that asks."""
ALL = frozenset(ADDRESSES)


def blank(node: int, *seeds: str, folder: bytes = b"") -> Blank:
    return Blank(BrokerId(node), folder or bytes([node]), frozenset(seeds))


def wait(own: Blank, answers: Mapping[str, Answer | None]) -> Wait:
    decision = decide(own, answers)
    assert isinstance(decision, Wait)
    return decision


def test_a_node_without_seeds_is_a_cluster_of_its_own() -> None:
    assert decide(blank(7), {}) == Bootstrap()


def test_a_node_that_is_its_only_seed_forms_a_cluster() -> None:
    assert decide(blank(7, A), {A: blank(7, A)}) == Bootstrap()


def test_the_lowest_of_blank_seeds_forms_the_cluster_and_the_others_wait_for_it() -> None:
    answers = {A: blank(3, A, B), B: blank(2, A, B)}
    assert decide(blank(2, A, B), answers) == Bootstrap()
    assert "node 2" in wait(blank(3, A, B), answers).reason


@pytest.mark.parametrize("others", [None, blank(1, A, B, C)])
def test_a_node_joins_where_there_is_a_cluster(others: Answer | None) -> None:
    answers = {A: others, B: Member("X"), C: Member("X")}
    assert decide(blank(1, A, B, C), answers) == Join((B, C))


def test_seeds_of_two_clusters_are_both_named() -> None:
    told = wait(blank(1, A, B), {A: Member("first"), B: Member("second")})
    assert all(each in told.reason for each in (A, B, "first", "second"))
    assert "headrace.seeds" in told.remedy


def test_seeds_that_do_not_answer_are_named() -> None:
    told = wait(blank(1, A, B, C), {A: blank(1, A, B, C), B: None})
    assert B in told.reason
    assert C in told.reason
    assert A not in told.reason
    assert told.remedy


def test_a_node_that_is_no_seed_waits_for_them_whatever_its_id() -> None:
    told = wait(blank(0, A, B), {A: blank(1, A, B), B: blank(2, A, B)})
    assert "not one of the seeds" in told.reason
    assert told.remedy


def test_crossed_seeds_are_told_that_nobody_forms_a_cluster() -> None:
    told = wait(blank(1, B), {B: blank(2, A)})
    assert "nobody forms" in told.reason
    assert A in told.reason
    assert told.remedy


def test_seeds_that_differ_are_shown() -> None:
    told = wait(blank(1, A, B), {A: blank(1, A, B), B: blank(2, B, C)})
    assert C in told.reason
    assert "nobody" not in told.reason
    assert "no seeds" in wait(blank(1, A, B), {A: blank(1, A, B), B: blank(2)}).reason


def test_two_seeds_with_the_same_id_are_named() -> None:
    told = wait(blank(1, A, B), {A: blank(1, A, B), B: blank(1, A, B, folder=b"other")})
    assert all(each in told.reason for each in (A, B, "node id 1"))
    assert "node.id" in told.remedy


def test_two_addresses_of_one_node_are_named() -> None:
    answers = {A: blank(1, A, B), B: blank(1, A, B)}
    told = wait(blank(1, A, B), answers)
    assert "same node" in told.reason


def test_what_else_was_asked_does_not_count() -> None:
    assert decide(blank(1, A), {A: blank(1, A), B: Member("X")}) == Bootstrap()


# The search

Setup = tuple[tuple[int, frozenset[str]], ...]
"""The id and the seeds of the node at each address."""
Heard = tuple[tuple[str, Answer | None], ...]
NodeState = Heard | str
"""What a blank node has heard, by seed; the cluster of one that is not blank any more."""
State = tuple[NodeState, ...]


def same(ids: tuple[int, ...], *seeds: str) -> Setup:
    return tuple((each, frozenset(seeds)) for each in ids)


SUBSETS = [
    frozenset(each) for each in chain.from_iterable(combinations(ADDRESSES, n) for n in (1, 2, 3))
]
SETUPS: list[Setup] = [
    *(same(ids, *ADDRESSES) for ids in permutations((1, 2, 3))),
    *(same(ids, *ADDRESSES) for ids in ((1, 1, 2), (1, 2, 2), (1, 1, 1))),
    *(same(ids, A, B) for ids in ((1, 2, 0), (1, 2, 3), (2, 3, 1), (1, 1, 2))),
    *(same(ids, HERE, B) for ids in ((1, 2, 3), (2, 1, 3), (3, 2, 1))),
    ((1, frozenset((A, B))), (2, frozenset((B, C))), (0, frozenset((B, C)))),
    ((1, frozenset((B,))), (2, frozenset((A,))), (3, frozenset((A, B)))),
    ((1, frozenset((A,))), (2, frozenset((A, B))), (3, ALL)),
]
DIFFERENT: list[Setup] = [tuple(enumerate(seeds, 1)) for seeds in product(SUBSETS, repeat=3)]
"""Every way in which three nodes can be given seeds."""


class World:
    """Three nodes with a setup, each at one address."""

    def __init__(self, setup: Setup) -> None:
        self.blanks = [
            Blank(BrokerId(node), bytes([index]), seeds)
            for index, (node, seeds) in enumerate(setup)
        ]
        self.decide: Callable[[int, Heard], Decision] = cache(
            lambda index, heard: decide(self.blanks[index], dict(heard))
        )

    def at(self, seed: str, asker: int) -> int:
        return asker if seed == HERE else ADDRESSES.index(seed)

    def answer(self, state: State, index: int) -> Answer:
        node = state[index]
        return Member(node) if isinstance(node, str) else self.blanks[index]

    def next_states(self, state: State) -> Iterator[State]:
        for index, heard in enumerate(state):
            if isinstance(heard, str):
                continue
            asked = dict(heard)
            for seed in self.blanks[index].seeds.difference(asked):
                answers = {self.answer(state, self.at(seed, index)), None}
                for answer in answers if self.at(seed, index) != index else answers - {None}:
                    told = sorted({**asked, seed: answer}.items(), key=lambda each: each[0])
                    yield _with(state, index, tuple(told))
            if len(asked) == len(self.blanks[index].seeds):
                yield _with(state, index, self.after(state, index, heard))
            elif heard:
                yield _with(state, index, ())

    def after(self, state: State, index: int, heard: Heard) -> NodeState:
        """What becomes of a node that decides."""
        match self.decide(index, heard):
            case Bootstrap():
                return f"of {index}"
            case Join(addresses):
                cluster = self.answer(state, self.at(addresses[0], index))
                assert isinstance(cluster, Member)
                return cluster.cluster_id
            case _:
                return ()

    def check(self, state: State) -> None:
        founders = [index for index in range(len(state)) if f"of {index}" in state]
        for one, other in combinations(founders, 2):
            shared = self.blanks[one].seeds & self.blanks[other].seeds
            assert not shared, f"nodes {one} and {other} each formed a cluster: {state}"

    def search(self) -> set[State]:
        """Return every state that can be reached; AssertionError if there is one with two."""
        start: State = ((),) * len(self.blanks)
        seen, left = {start}, [start]
        while left:
            for state in self.next_states(left.pop()):
                if state not in seen:
                    self.check(state)
                    seen.add(state)
                    left.append(state)
        return seen


def _with(state: State, index: int, node: NodeState) -> State:
    return (*state[:index], node, *state[index + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("setup", SETUPS)
def test_seeds_that_overlap_never_form_two_clusters(setup: Setup) -> None:
    assert len(World(setup).search()) > 10


@pytest.mark.slow
def test_no_choice_of_seeds_makes_two_clusters_where_they_overlap() -> None:
    states = sum(len(World(setup).search()) for setup in DIFFERENT)
    assert states > 10_000


@pytest.mark.parametrize("ids", list(permutations((1, 2, 3))))
def test_nodes_with_the_same_seeds_end_in_one_cluster_from_wherever_they_are(
    ids: tuple[int, ...],
) -> None:
    world = World(same(ids, *ADDRESSES))
    ended = {state for state in world.search() if all(isinstance(each, str) for each in state)}
    assert ended == {(f"of {ids.index(1)}",) * 3}


@pytest.mark.parametrize("rule", forming.RULES)
def test_without_any_of_the_rules_there_are_two_clusters(
    rule: forming.Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tuple(each for each in forming.RULES if each is not rule)
    monkeypatch.setattr(forming, "RULES", rules)
    assert any(_makes_two_clusters(World(setup)) for setup in reversed(SETUPS))


def test_a_node_that_does_not_look_for_members_makes_two_clusters() -> None:
    def forgetful(index: int, heard: Heard) -> Decision:
        own = world.blanks[index]
        known = {seed: each for seed, each in heard if not isinstance(each, Member)}
        return decide(Blank(own.node, own.folder_id, frozenset(known)), as_if(known))

    def as_if(known: Mapping[str, Answer | None]) -> dict[str, Answer | None]:
        return {
            seed: Blank(each.node, each.folder_id, frozenset(known))
            for seed, each in known.items()
            if isinstance(each, Blank)
        }

    world = World(same((1, 2, 3), *ADDRESSES))
    world.decide = forgetful
    assert _makes_two_clusters(world)


def test_a_founder_that_says_it_is_blank_and_has_another_id_makes_two_clusters() -> None:
    """The search sees what the module says it rests on."""

    class Forgetful(World):
        def answer(self, state: State, index: int) -> Answer:
            renamed = Blank(BrokerId(9), bytes([index]), self.blanks[index].seeds)
            return renamed if state[index] == f"of {index}" else super().answer(state, index)

    assert _makes_two_clusters(Forgetful(same((1, 2, 3), *ADDRESSES)))


def _makes_two_clusters(world: World) -> bool:
    try:
        world.search()
    except AssertionError:
        return True
    return False
