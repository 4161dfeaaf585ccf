"""Gossip besides probes: news at once, and a full exchange now and then.

News goes to a few members at a time for as long as there is some. It is sent a bounded number of
times, so a node can miss a claim: therefore pairs of nodes occasionally compare everything they
know, with one datagram each way. What does not fit is left to the next comparison, which continues
after it.
"""

from collections.abc import Container
from typing import Final

from headrace.cluster.swim import beliefs
from headrace.cluster.swim.claims import Claim, Rank, Standing
from headrace.cluster.swim.messages import (
    CLAIM_BYTES,
    CLAIMS_MAX,
    MESSAGE_BYTES_MAX,
    NODE_ID_MAX,
    News,
    Sync,
)
from headrace.cluster.swim.sealing import SEAL_BYTES_MAX
from headrace.cluster.swim.settings import SwimSettings
from headrace.cluster.swim.state import Member, State
from headrace.cluster.swim.timers import Due
from headrace.ids import BrokerId as NodeId

_NOTHING: Final[Rank] = (-1, -1, -1)


def spread(state: State) -> None:
    """Send news to a few members."""
    present = (node for node, member in state.members.items() if member.claim.is_present)
    for node in state.sample(present, state.settings.gossip_members):
        if state.gossip:
            state.send(state.members[node], News())


def start_round(state: State) -> None:
    """Compare with a member, by chance, and set the timer for the next time."""
    state.timers.set(Due.SYNC, 0, state.now_ms + state.settings.sync_interval_ms)
    alive = (
        node
        for node, member in state.members.items()
        if member.claim.standing is Standing.ALIVE and member.claim.is_heard
    )
    for node in state.sample(alive, 1):
        sync_with(state, state.members[node])


def sync_with(state: State, member: Member) -> None:
    """Send the next part of what is known, and request the same part."""
    state.has_synced = True
    first = NodeId(state.sync_after + 1)
    claims = _known(state, first, NodeId(NODE_ID_MAX))
    room = claims_max(state.settings)
    last = claims[room - 1].node if len(claims) > room else NODE_ID_MAX
    state.sync_after = last if last < NODE_ID_MAX else -1
    state.send(member, Sync(first, NodeId(last)), tuple(claims[:room]))


def handle_sync(state: State, sender: Member, body: Sync, claims: tuple[Claim, ...]) -> None:
    """Send what is known here of the same members, then learn."""
    said = {claim.node: claim.rank for claim in claims}
    known = _known(state, body.first, body.last, said)
    news = [claim for claim in known if said.get(claim.node, _NOTHING) < claim.rank]
    if news:
        state.send(sender, News(), tuple(news[: claims_max(state.settings)]))
    for claim in claims:
        beliefs.learn(state, claim)
    state.corrections = {}  # the answer has them


def claims_max(settings: SwimSettings) -> int:
    """Return how many claims fit a datagram."""
    room = settings.datagram_bytes_max - SEAL_BYTES_MAX - MESSAGE_BYTES_MAX
    return min(CLAIMS_MAX, room // CLAIM_BYTES)


def _known(state: State, first: NodeId, last: NodeId, said: Container[NodeId] = ()) -> list[Claim]:
    """Return the claims on members from `first` to `last` that may be shared, in order.

    Claims on forgotten members are only shared with a node that speaks of them (`said`).
    """
    members = (
        member
        for node, member in state.members.items()
        if first <= node <= last
        and member.claim.is_heard
        and (not member.is_forgotten or node in said)
    )
    return sorted((member.claim for member in members), key=lambda claim: claim.node)
