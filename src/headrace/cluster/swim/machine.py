"""The pure machine: a message, a tick or a change of the allowed members goes in, outputs come out.

    swim = Swim(node, boot_epoch, settings=..., below=..., now_ms=...)
    outputs = swim.allow(peers, now_ms)            # whenever the metadata image changes
    outputs = swim.step(message, now_ms)           # an authenticated message
    outputs = swim.tick(now_ms)                    # at `deadline_ms()`, or later
    outputs = swim.leave(now_ms)                   # until LeaveFinished comes out

Same state and input, same output: there is no clock, network or chance in here. Messages of nodes
that are not allowed change nothing. All that is kept is in proportion to the allowed members.

`boot_epoch` has to grow with every start of a node: then a node that comes back is above all that
was said of its former life. In one life it gets there by a higher incarnation.
"""

from collections.abc import Iterable

import msgspec

from headrace.cluster.swim import beliefs, probing, syncing
from headrace.cluster.swim.checks import Marks, check
from headrace.cluster.swim.claims import BOOT_EPOCH_MAX, Claim, Standing
from headrace.cluster.swim.events import LeaveFinished, Outputs, Peer
from headrace.cluster.swim.messages import (
    Ack,
    Message,
    Nack,
    News,
    Ping,
    PingRequest,
    RelayedAck,
    Sync,
)
from headrace.cluster.swim.settings import SwimSettings
from headrace.cluster.swim.state import Below, Counters, Member, State
from headrace.cluster.swim.timers import Due
from headrace.ids import BrokerId as NodeId


class Seen(msgspec.Struct, frozen=True):
    """A member in the eyes of this node, for people and for planners."""

    node: NodeId
    boot_epoch: int
    incarnation: int
    standing: Standing
    is_heard: bool
    """Whether any node has heard of this life of it: else its presence is only assumed."""
    is_forgotten: bool


class Swim:
    """One node among the members."""

    def __init__(
        self, node: NodeId, boot_epoch: int, *, settings: SwimSettings, below: Below, now_ms: int
    ) -> None:
        """Begin alone; `allow` says whom to look for."""
        assert 1 <= boot_epoch <= BOOT_EPOCH_MAX, f"boot epoch {boot_epoch}"
        self.state = state = State(node, boot_epoch, settings=settings, below=below, now_ms=now_ms)
        self._marks = Marks()
        # Nodes that start together do not all probe at the same time.
        state.timers.set(Due.PERIOD, 0, now_ms + below(settings.probe_interval_ms))
        state.timers.set(Due.SYNC, 0, now_ms + below(settings.sync_interval_ms))

    # Inputs

    def allow(self, peers: Iterable[Peer], now_ms: int) -> Outputs:
        """Replace the members by those of the metadata image."""
        state = self._at(now_ms)
        beliefs.allow(state, peers)
        return self._outputs()

    def step(self, message: Message, now_ms: int) -> Outputs:
        """Handle a message from an authenticated sender."""
        state = self._at(now_ms)
        sender = state.members.get(message.sender)
        if sender is None:
            state.counters.strangers += 1
        elif message.boot_epoch < sender.claim.boot_epoch:
            state.counters.stale += 1
        else:
            state.answering = message.sender
            self._learn(sender, message)
            self._handle(sender, message)
            if state.corrections:  # no answer has taken them along
                state.send(sender, News())
            state.answering = None
        return self._outputs()

    def tick(self, now_ms: int) -> Outputs:
        """Do what is due by now; `deadline_ms` says when something will be."""
        state = self._at(now_ms)
        due_ms = state.timers.first_due_ms()
        if due_ms is not None and now_ms - due_ms > state.settings.probe_timeout_ms:
            self._return_from_away(now_ms - due_ms)
        for kind, number in state.timers.take_due(now_ms):
            self._do(kind, number)
        return self._outputs()

    def leave(self, now_ms: int) -> Outputs:
        """Announce that this node leaves; `LeaveFinished` is emitted when enough members know."""
        state = self._at(now_ms)
        if not state.is_leaving:
            state.is_leaving = True
            state.gossip.put(state.own_claim())
            state.leave_sends_left = state.settings.gossip_limit(state.size)
            state.timers.set(Due.PERIOD, 0, now_ms)
        return self._outputs()

    # Questions

    def deadline_ms(self) -> int:
        """Return when the next tick has something to do."""
        due_ms = self.state.timers.first_due_ms()
        assert due_ms is not None
        return due_ms

    def view(self) -> list[Seen]:
        """Return what this node holds true of every other."""
        return [
            Seen(
                member.claim.node,
                member.claim.boot_epoch,
                member.claim.incarnation,
                member.claim.standing,
                member.claim.is_heard,
                member.is_forgotten,
            )
            for _, member in sorted(self.state.members.items())
        ]

    @property
    def counters(self) -> Counters:
        return self.state.counters

    # Inside

    def _at(self, now_ms: int) -> State:
        state = self.state
        assert now_ms >= state.now_ms, f"time went back from {state.now_ms} to {now_ms}"
        state.now_ms = now_ms
        return state

    def _learn(self, sender: Member, message: Message) -> None:
        """Learn what every message says: that its sender is there, and what goes along."""
        state = self.state
        standing = Standing.LEFT if message.is_leaving else Standing.ALIVE
        node = message.sender
        beliefs.learn(state, Claim(node, message.boot_epoch, message.incarnation, standing, node))
        if not isinstance(message.body, Sync):
            for claim in message.claims:
                beliefs.learn(state, claim)
        if not state.has_synced and sender.claim.standing is Standing.ALIVE:
            syncing.sync_with(state, sender)

    def _handle(self, sender: Member, message: Message) -> None:
        state, body = self.state, message.body
        match body:
            case Ping():
                probing.handle_ping(state, sender, body)
            case Ack():
                probing.handle_ack(state, sender, body, message)
            case PingRequest():
                probing.handle_ping_request(state, sender, body)
            case RelayedAck():
                probing.handle_relayed_ack(state, sender, body)
            case Nack():
                probing.handle_nack(state, sender, body)
            case Sync():
                syncing.handle_sync(state, sender, body, message.claims)
            case News():
                pass  # it is all in its claims

    def _do(self, kind: Due, number: int) -> None:
        state = self.state
        match kind:
            case Due.PERIOD:
                probing.start_period(state)
                if state.is_leaving and not state.present_count:
                    state.leave_sends_left = 0  # there is nobody to be told
            case Due.PROBE:
                probing.ask_helpers(state, number)
            case Due.VERDICT:
                probing.fail_probe(state, number)
            case Due.RELAY:
                probing.end_relay(state, number)
            case Due.SUSPICION:
                beliefs.condemn(state, state.members[NodeId(number)])
            case Due.FORGET:
                beliefs.forget(state, state.members[NodeId(number)])
            case Due.SYNC:
                syncing.start_round(state)
            case Due.GOSSIP:
                syncing.spread(state)

    def _return_from_away(self, away_ms: int) -> None:
        """Extend deadlines by the time that this node was stopped or too busy to listen."""
        state = self.state
        state.counters.late += 1
        state.health.change(1)
        probing.drop_probes(state)
        state.timers.put_off(Due.SUSPICION, away_ms)

    def _outputs(self) -> Outputs:
        state = self.state
        if state.is_leaving and not state.leave_sends_left and not state.has_left:
            state.has_left = True
            state.events.append(LeaveFinished(state.node, state.boot_epoch))
        if state.gossip and state.timers.due_ms(Due.GOSSIP, 0) is None:
            state.timers.set(Due.GOSSIP, 0, state.now_ms + state.settings.gossip_interval_ms)
        check(state, self._marks)
        outputs = Outputs(state.sends, state.events)
        state.sends, state.events, state.changed, state.corrections = [], [], {}, {}
        return outputs
