"""How the CA of a cluster is replaced, as a function of what is so now. Pure.

    step = next_step(authorities, nodes, voters)

    two CAs are trusted -> every node says that it trusts the newest, every voter has its key
    -> every node gets a certificate that the newest has signed -> the oldest is dropped

Nothing is remembered: the CAs are in the metadata log, and nodes are asked each time. So whoever
leads goes on from where the last one was, and a node that is down holds up the replacement.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class NodeCertificates(NamedTuple):
    """What a node says of itself; CAs are named by their fingerprints."""

    trusted: frozenset[bytes]
    signer: bytes
    """The signer of its certificate."""
    keys: frozenset[bytes]
    """The CAs whose keys it has."""


class Nothing(NamedTuple):
    """There is one CA."""


class Wait(NamedTuple):
    """Some nodes are not as far as the others."""

    reasons: tuple[str, ...]


class Reissue(NamedTuple):
    """These nodes need certificates of the newest CA, which everybody trusts."""

    nodes: tuple[int, ...]


class Drop(NamedTuple):
    """Nobody needs this CA any more."""

    fingerprint: bytes


Step = Nothing | Wait | Reissue | Drop


def next_step(
    authorities: Sequence[bytes],
    nodes: Mapping[int, NodeCertificates | None],
    voters: Collection[int],
) -> Step:
    """Return what comes next. `authorities` are fingerprints, the newest last; a node that cannot
    be asked is None."""
    if len(authorities) < 2:
        return Nothing()
    newest = authorities[-1]
    reasons = []
    late = []
    for node, has in sorted(nodes.items()):
        if has is None:
            reasons.append(f"node {node} cannot be asked: start it, or remove it from the cluster")
        elif newest not in has.trusted:
            reasons.append(f"node {node} does not trust the new CA yet")
        elif node in voters and newest not in has.keys:
            reasons.append(f"node {node} votes and does not have the key of the new CA yet")
        elif has.signer != newest:
            late.append(node)
    if reasons:
        return Wait(tuple(reasons))
    if late:
        return Reissue(tuple(late))
    return Drop(authorities[0])
