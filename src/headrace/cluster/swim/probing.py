"""Probes: in every period some members are pinged, side by side and in a shuffled order.

If a member does not respond, helpers ping it too; each of them relays the ack, or sends a nack. A
helper that sends neither is evidence against this node (Lifeguard's nacks). Members that are gone
get one ping per period in all, so that a partitioned cluster finds together again.
"""

from headrace.cluster.swim import beliefs
from headrace.cluster.swim.claims import Claim, Standing
from headrace.cluster.swim.messages import (
    NO_REPLY,
    Ack,
    Message,
    Nack,
    Ping,
    PingRequest,
    RelayedAck,
)
from headrace.cluster.swim.state import Member, Probe, Relay, State
from headrace.cluster.swim.timers import Due
from headrace.ids import BrokerId as NodeId


def start_period(state: State) -> None:
    """Probe the next members; a node that is not well itself takes its time."""
    period_ms = state.health.scale(state.settings.probe_interval_ms)
    state.timers.set(Due.PERIOD, 0, state.now_ms + period_ms)
    for member in _next_targets(state):
        _start_probe(state, member, period_ms)
    gone = [node for node, member in state.members.items() if not member.claim.is_present]
    for node in state.sample(gone, 1):
        state.send(state.members[node], Ping(NO_REPLY))


def ask_helpers(state: State, number: int) -> None:
    """Ask helpers to reach a member that has not responded yet."""
    probe = state.probes[number]
    able = (
        node
        for node, member in state.members.items()
        if node != probe.target
        and member.claim.standing is Standing.ALIVE
        and member.claim.is_heard
    )
    probe.helpers = frozenset(helpers := state.sample(able, state.settings.indirect_probes))
    for helper in helpers:
        state.counters.indirect_probes += 1
        state.send(state.members[helper], PingRequest(number, probe.target))
    # However late this is, helpers have the time that they were promised.
    verdict_ms = max(probe.verdict_ms, state.now_ms + state.settings.relay_timeout_ms)
    state.timers.set(Due.VERDICT, number, verdict_ms)


def fail_probe(state: State, number: int) -> None:
    """Suspect a member that no helper reached, and this node as far as helpers were silent.

    Without helpers this node is suspect, unless the member may never have been there.
    """
    probe = _end_probe(state, number)
    target = state.members[probe.target]
    state.counters.probe_failures += 1
    if probe.helpers:
        state.health.change(len(probe.helpers - probe.nacks))
    elif target.claim.is_heard:
        state.health.change(1)
    beliefs.accuse(state, target)


def end_relay(state: State, number: int) -> None:
    """Send a nack: the target does not respond here either."""
    relay = state.relays.pop(number)
    state.send(state.members[relay.requester], Nack(relay.number))


def drop_probes(state: State) -> None:
    """End all probes without a verdict, as this node could not have heard an ack."""
    for number in list(state.probes):
        _end_probe(state, number)
    for number in list(state.relays):
        del state.relays[number]
        state.timers.cancel(Due.RELAY, number)


# Messages


def handle_ping(state: State, sender: Member, body: Ping) -> None:
    state.send(sender, Ack(body.number))


def handle_ack(state: State, sender: Member, body: Ack, message: Message) -> None:
    node = sender.peer.node
    probe = state.probes.get(body.number)
    relay = state.relays.get(body.number)
    if probe is not None and probe.target == node:
        _end_probe(state, body.number)
        state.health.change(-1)
    elif relay is not None and relay.target == node:
        del state.relays[body.number]
        state.timers.cancel(Due.RELAY, body.number)
        answer = RelayedAck(relay.number, node, message.boot_epoch, message.incarnation)
        state.send(state.members[relay.requester], answer)
    elif body.number != NO_REPLY:
        state.counters.unexpected += 1


def handle_ping_request(state: State, sender: Member, body: PingRequest) -> None:
    """Ping the target for the sender; only members are pinged, so no other host is a target."""
    target = state.members.get(body.target)
    relay = Relay(sender.peer.node, body.number, body.target)
    if target is None or target is sender:
        state.counters.strangers += 1
    elif relay in state.relays.values():
        state.counters.unexpected += 1
    elif len(state.relays) >= state.settings.relays_max:
        state.counters.relays_refused += 1
        state.send(sender, Nack(body.number))
    else:
        number = state.next_number()
        state.counters.relays += 1
        state.relays[number] = relay
        state.timers.set(Due.RELAY, number, state.now_ms + state.settings.relay_timeout_ms)
        state.send(target, Ping(number))


def handle_relayed_ack(state: State, sender: Member, body: RelayedAck) -> None:
    probe = state.probes.get(body.number)
    if probe is None or probe.target != body.target or sender.peer.node not in probe.helpers:
        state.counters.unexpected += 1
        return
    _end_probe(state, body.number)
    state.health.change(-1)
    target = body.target
    beliefs.learn(state, Claim(target, body.boot_epoch, body.incarnation, Standing.ALIVE, target))


def handle_nack(state: State, sender: Member, body: Nack) -> None:
    probe = state.probes.get(body.number)
    if probe is None or sender.peer.node not in probe.helpers:
        state.counters.unexpected += 1
    else:
        probe.nacks.add(sender.peer.node)


# Inside


def _next_targets(state: State) -> list[Member]:
    """Return the members to probe now: each gets a turn before any gets the next one."""
    targets: dict[NodeId, Member] = {}
    wanted = min(state.settings.probes_per_period, state.present_count)
    is_refilled = False
    while len(targets) < wanted:
        if not state.rotation:
            if is_refilled:
                break
            is_refilled = True
            present = [node for node, each in state.members.items() if each.claim.is_present]
            state.rotation = state.sample(present, len(present))
            continue
        node = state.rotation.pop()
        member = state.members.get(node)
        if member is not None and member.claim.is_present and not member.is_probed:
            targets[node] = member
    return list(targets.values())


def _start_probe(state: State, member: Member, period_ms: int) -> None:
    number = state.next_number()
    state.counters.probes += 1
    state.probes[number] = Probe(member.peer.node, state.now_ms + period_ms)
    member.is_probed = True
    timeout_ms = state.health.scale(state.settings.probe_timeout_ms)
    state.timers.set(Due.PROBE, number, state.now_ms + timeout_ms)
    state.send(member, Ping(number))


def _end_probe(state: State, number: int) -> Probe:
    probe = state.probes.pop(number)
    state.members[probe.target].is_probed = False
    state.timers.cancel(Due.PROBE, number)
    state.timers.cancel(Due.VERDICT, number)
    return probe
