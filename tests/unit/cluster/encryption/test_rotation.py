"""How a CA is replaced: no node is ever without a CA that its peers trust."""

import random

import pytest

from headrace.cluster.encryption.rotation import (
    Drop,
    NodeCertificates,
    Nothing,
    Reissue,
    Wait,
    next_step,
)

OLD, NEW = b"old", b"new"
VOTERS = (0, 1, 2)


def node(*trusted: bytes, signer: bytes = OLD, keys: tuple[bytes, ...] = ()) -> NodeCertificates:
    return NodeCertificates(frozenset(trusted), signer, frozenset(keys))


def test_one_ca_needs_nothing() -> None:
    assert next_step([OLD], {1: None}, [1]) == Nothing()
    assert next_step([], {}, []) == Nothing()


def test_a_node_that_is_down_or_late_holds_up_everything() -> None:
    ready = node(OLD, NEW, signer=NEW, keys=(NEW,))
    for late, word in (
        (None, "node 2 cannot be asked"),
        (node(OLD), "does not trust"),
        (node(OLD, NEW, signer=NEW), "does not have the key"),
    ):
        step = next_step([OLD, NEW], {1: ready, 2: late}, [1, 2])
        assert isinstance(step, Wait)
        assert word in step.reasons[0]


def test_nodes_get_certificates_once_all_trust_the_ca_and_the_old_one_goes_last() -> None:
    has = {1: node(OLD, NEW, keys=(OLD, NEW)), 2: node(OLD, NEW)}
    assert next_step([OLD, NEW], has, [1]) == Reissue((1, 2))
    has[1] = node(OLD, NEW, signer=NEW, keys=(OLD, NEW))
    assert next_step([OLD, NEW], has, [1]) == Reissue((2,))
    has[2] = node(OLD, NEW, signer=NEW)
    assert next_step([OLD, NEW], has, [1]) == Drop(OLD)


class Cluster:
    """Four nodes, three of which vote, and a CA that is being replaced."""

    def __init__(self) -> None:
        self.authorities = [OLD]
        self.nodes = {
            number: node(OLD, keys=(OLD,) if number in VOTERS else ()) for number in range(4)
        }

    def rotate(self) -> None:
        if self.authorities == [OLD]:
            self.authorities.append(NEW)

    def apply(self, number: int) -> None:
        """Let a node hear what is in the log."""
        trusted = frozenset(self.authorities)
        self.nodes[number] = self.nodes[number]._replace(trusted=trusted)

    def take_key(self, number: int) -> None:
        has = self.nodes[number]
        if number in VOTERS and NEW in has.trusted:
            self.nodes[number] = has._replace(keys=has.keys | {NEW})

    def step(self, down: int | None, reissued: int) -> None:
        """Let a controller do what is next, and end after some of it."""
        seen: dict[int, NodeCertificates | None] = dict(self.nodes)
        if down is not None:
            seen[down] = None
        step = next_step(self.authorities, seen, VOTERS)
        if isinstance(step, Reissue):
            for each in step.nodes[:reissued]:
                self.nodes[each] = self.nodes[each]._replace(signer=NEW)
        elif isinstance(step, Drop):
            self.authorities.remove(step.fingerprint)

    def check(self) -> None:
        """Any two nodes take each other's certificates, and new ones as well."""
        for one in self.nodes.values():
            assert all(one.signer in other.trusted for other in self.nodes.values())
            assert one.signer in self.authorities


@pytest.mark.parametrize("seed", range(200))
def test_any_two_nodes_can_talk_at_every_moment_of_a_replacement(seed: int) -> None:
    """Nodes hear of a change in any order, go down and come back, and the controller changes."""
    luck, cluster = random.Random(seed), Cluster()
    for _ in range(400):
        number = luck.randrange(4)
        match luck.randrange(4):
            case 0:
                cluster.rotate()
            case 1:
                cluster.apply(number)
            case 2:
                cluster.take_key(number)
            case 3:
                cluster.step(luck.choice([number, None, None]), luck.randrange(1, 4))
        cluster.check()
    for _ in range(20):
        for number in range(4):
            cluster.apply(number)
            cluster.take_key(number)
        cluster.step(None, 4)
        cluster.check()
    assert cluster.authorities == [NEW]
