"""What is held true of members: claims go in, the highest holds, and what follows from it is done.

The life of a member in the eyes of another, in one incarnation (a refutation, or a new boot epoch,
takes it back to ALIVE from everywhere):

    ALIVE --a probe failed--> SUSPECT --not refuted in time--> UNREACHABLE --> forgotten
      `------------------ said so itself --> LEFT --> forgotten
"""

from collections.abc import Iterable

from headrace.cluster.swim.claims import INCARNATION_MAX, Claim, Standing
from headrace.cluster.swim.events import (
    Event,
    Forgotten,
    Joined,
    Left,
    Peer,
    Recovered,
    Superseded,
    Suspected,
    Unreachable,
)
from headrace.cluster.swim.state import Member, State, Suspicion, unheard
from headrace.cluster.swim.timers import Due
from headrace.ids import BrokerId as NodeId


def learn(state: State, claim: Claim) -> None:
    """Adopt a claim if it is higher than the current belief."""
    if claim.node == state.node:
        refute(state, claim)
        return
    member = state.members.get(claim.node)
    if member is None:
        state.counters.strangers += 1
    elif claim.rank > member.claim.rank:
        _hold(state, member, claim)
    elif claim.standing is Standing.ALIVE:
        pass
    elif claim.rank < member.claim.rank:
        state.corrections[claim.node] = member.claim
    elif claim.standing is Standing.SUSPECT:
        _confirm(state, member, claim.accuser)


def accuse(state: State, member: Member) -> None:
    """Suspect a member that did not respond to a probe."""
    held = member.claim
    claim = Claim(held.node, held.boot_epoch, held.incarnation, Standing.SUSPECT, state.node)
    if held.is_present:
        learn(state, claim)


def condemn(state: State, member: Member) -> None:
    """Declare a member dead that did not refute a suspicion in time."""
    held = member.claim
    learn(
        state,
        Claim(held.node, held.boot_epoch, held.incarnation, Standing.UNREACHABLE, state.node),
    )


def forget(state: State, member: Member) -> None:
    """Stop telling others of a member that has been gone for long.

    What was held of it stays, so that late claims of its former lives are still seen for what
    they are; it goes with the member's place in the metadata image.
    """
    member.is_forgotten = True
    state.gossip.drop(member.peer.node)
    state.events.append(Forgotten(member.peer.node, member.claim.boot_epoch))


def refute(state: State, claim: Claim) -> None:
    """Answer a claim on this very node."""
    if claim.boot_epoch > state.boot_epoch:
        if claim.boot_epoch > state.superseded_by:
            state.superseded_by = claim.boot_epoch
            state.events.append(Superseded(state.node, claim.boot_epoch))
        return
    own = state.own_claim()
    if claim.rank == own.rank:
        return
    if claim.rank < own.rank and claim.standing is Standing.ALIVE:
        if claim.boot_epoch < own.boot_epoch:
            state.gossip.put(own)
        return
    if claim.rank > own.rank:
        state.incarnation = min(claim.incarnation + 1, INCARNATION_MAX)
        if claim.standing is not Standing.ALIVE:
            state.counters.refutations += 1
            state.health.change(1)
    # Also when it is refuted already: whoever says it has not heard of that.
    state.gossip.put(state.own_claim())


def allow(state: State, peers: Iterable[Peer]) -> None:
    """Know of these members and of no others."""
    wanted = {peer.node: peer for peer in peers if peer.node != state.node}
    for node in [node for node in state.members if node not in wanted]:
        _remove(state, node)
    for node, peer in wanted.items():
        member = state.members.get(node)
        if member is None:
            state.members[node] = Member(peer)
            state.present_count += 1
            state.rotation.insert(state.below(len(state.rotation) + 1), node)
        elif member.peer != peer:
            member.peer = peer
            if peer.boot_epoch > member.claim.boot_epoch:
                _hold(state, member, unheard(peer))


def _remove(state: State, node: NodeId) -> None:
    member = state.members.pop(node)
    state.changed.pop(node, None)
    if node in state.rotation:
        state.rotation.remove(node)
    state.present_count -= member.claim.is_present
    state.gossip.drop(node)
    state.timers.cancel(Due.SUSPICION, node)
    state.timers.cancel(Due.FORGET, node)
    for number in [number for number, probe in state.probes.items() if probe.target == node]:
        del state.probes[number]
        state.timers.cancel(Due.PROBE, number)
        state.timers.cancel(Due.VERDICT, number)
    for number, relay in list(state.relays.items()):
        if node in (relay.requester, relay.target):
            del state.relays[number]
            state.timers.cancel(Due.RELAY, number)


def _hold(state: State, member: Member, claim: Claim) -> None:
    """Hold a claim, tell others, set the timers that it needs."""
    before = member.claim
    node = claim.node
    state.changed.setdefault(node, before.rank)
    member.claim = claim
    state.present_count += claim.is_present - before.is_present
    if claim.is_present and not before.is_present and node not in state.rotation:
        state.rotation.insert(state.below(len(state.rotation) + 1), node)
    if claim.is_heard:
        state.gossip.put(claim)
    else:
        state.gossip.drop(node)
    if claim.standing is Standing.SUSPECT:
        state.counters.suspicions += 1
        _start_suspicion(state, member, claim)
    else:
        member.suspicion = None
        state.timers.cancel(Due.SUSPICION, node)
    if claim.is_present:
        state.timers.cancel(Due.FORGET, node)
    else:
        state.timers.set(Due.FORGET, node, state.now_ms + state.settings.forget_after_ms)
    member.is_forgotten = False
    event = _event(before, claim)
    if event is not None:
        state.events.append(event)


def _event(before: Claim, claim: Claim) -> Event | None:
    node, boot_epoch = claim.node, claim.boot_epoch
    match claim.standing:
        case Standing.SUSPECT:
            return Suspected(node, boot_epoch, claim.accuser)
        case Standing.UNREACHABLE:
            return Unreachable(node, boot_epoch)
        case Standing.LEFT:
            return Left(node, boot_epoch)
    if not claim.is_heard:
        return None
    if not before.is_heard or before.boot_epoch != boot_epoch:
        return Joined(node, boot_epoch)
    return None if before.standing is Standing.ALIVE else Recovered(node, boot_epoch)


def _start_suspicion(state: State, member: Member, claim: Claim) -> None:
    # Nobody else is told of a life that was not heard of, so nobody could confirm. That the others
    # are suspected, too, makes no suspicion shorter: it is rather this node that was cut off.
    others = state.size - 2 if claim.is_heard else 0
    wanted = max(0, min(state.settings.suspicion_confirmations, others))
    member.suspicion = Suspicion(claim.accuser, state.now_ms, wanted)
    _set_suspicion_timer(state, member, member.suspicion)


def _confirm(state: State, member: Member, accuser: NodeId) -> None:
    """Count one more accuser, and gossip about it."""
    suspicion = member.suspicion
    assert suspicion is not None
    if accuser in suspicion.accusers or suspicion.confirmations >= suspicion.wanted:
        return
    suspicion.accusers.add(accuser)
    claim = member.claim
    if claim.is_heard:
        state.gossip.put(
            Claim(claim.node, claim.boot_epoch, claim.incarnation, Standing.SUSPECT, accuser)
        )
    _set_suspicion_timer(state, member, suspicion)


def _set_suspicion_timer(state: State, member: Member, suspicion: Suspicion) -> None:
    lasts_ms = state.settings.suspicion_ms(state.size, suspicion.wanted, suspicion.confirmations)
    due_ms = max(state.now_ms, suspicion.since_ms + lasts_ms)
    state.timers.set(Due.SUSPICION, member.peer.node, due_ms)
