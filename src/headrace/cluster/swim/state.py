"""What a member knows; `beliefs`, `probing` and `syncing` change it."""

from collections.abc import Callable, Iterable

import msgspec

from headrace.cluster.swim.claims import UNHEARD, Claim, Rank, Standing
from headrace.cluster.swim.events import Event, Peer, Send
from headrace.cluster.swim.gossip import Gossip
from headrace.cluster.swim.health import LocalHealth
from headrace.cluster.swim.messages import CLAIM_BYTES, CLAIMS_MAX, Body, Message
from headrace.cluster.swim.settings import SwimSettings
from headrace.cluster.swim.timers import Timers
from headrace.ids import BrokerId as NodeId

Below = Callable[[int], int]
"""Returns a number from 0 up to below its argument, by chance."""


class Counters(msgspec.Struct):
    """Counters for operators."""

    probes: int = 0
    probe_failures: int = 0
    indirect_probes: int = 0
    relays: int = 0
    relays_refused: int = 0
    refutations: int = 0
    suspicions: int = 0
    strangers: int = 0
    """Messages of, or claims on, nodes that the metadata image does not have."""
    stale: int = 0
    """Messages of a former life of their sender."""
    unexpected: int = 0
    """Responses without a pending probe."""
    late: int = 0
    """How often this node was away for longer than a probe waits."""


class Suspicion:
    """The accusers of a member, and since when."""

    __slots__ = ("accusers", "since_ms", "wanted")

    def __init__(self, accuser: NodeId, since_ms: int, wanted: int) -> None:
        self.accusers = {accuser}
        self.since_ms = since_ms
        self.wanted = wanted

    @property
    def confirmations(self) -> int:
        return len(self.accusers) - 1


class Member:
    """Another node, allowed by the metadata image."""

    __slots__ = ("claim", "is_forgotten", "is_probed", "peer", "suspicion")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.claim = unheard(peer)
        self.suspicion: Suspicion | None = None
        self.is_forgotten = False
        self.is_probed = False


class Probe:
    """A ping that waits for its ack."""

    __slots__ = ("helpers", "nacks", "target", "verdict_ms")

    def __init__(self, target: NodeId, verdict_ms: int) -> None:
        self.target = target
        self.verdict_ms = verdict_ms
        self.helpers: frozenset[NodeId] = frozenset()
        self.nacks: set[NodeId] = set()


class Relay(msgspec.Struct, frozen=True):
    """A ping for another node."""

    requester: NodeId
    number: int
    target: NodeId


class State:
    def __init__(
        self, node: NodeId, boot_epoch: int, *, settings: SwimSettings, below: Below, now_ms: int
    ) -> None:
        self.node = node
        self.boot_epoch = boot_epoch
        self.incarnation = 0
        self.is_leaving = False
        self.leave_sends_left = 0
        """How many more messages a node that leaves has to send."""
        self.has_left = False
        self.settings = settings
        self.below = below
        self.now_ms = now_ms
        self.members: dict[NodeId, Member] = {}
        self.present_count = 0
        """How many members are alive or suspected."""
        self.rotation: list[NodeId] = []
        """Whom to probe next, from the end on."""
        self.probes: dict[int, Probe] = {}
        self.relays: dict[int, Relay] = {}
        self.last_number = below(2**31)
        self.sync_after: int = -1
        self.has_synced = False
        self.superseded_by = 0
        self.health = LocalHealth(settings.health_score_max)
        self.timers = Timers()
        self.gossip = Gossip()
        self.counters = Counters()
        self.sends: list[Send] = []
        self.events: list[Event] = []
        self.answering: NodeId | None = None
        """The sender of the message that this step is about."""
        self.corrections: dict[NodeId, Claim] = {}
        """What is held of members that the sender accused although it is behind."""
        self.changed: dict[NodeId, Rank] = {}
        """Members that this step changed, and what was held of them before."""

    @property
    def size(self) -> int:
        """How many nodes there are, this one among them, as far as is known."""
        return self.present_count + 1

    def own_claim(self) -> Claim:
        standing = Standing.LEFT if self.is_leaving else Standing.ALIVE
        return Claim(self.node, self.boot_epoch, self.incarnation, standing, self.node)

    def next_number(self) -> int:
        """Return a number for a ping; it is never `NO_REPLY`."""
        self.last_number = self.last_number % (2**32 - 1) + 1
        return self.last_number

    def send(self, member: Member, body: Body, claims: tuple[Claim, ...] | None = None) -> None:
        """Send a message, with as many claims as fit along unless it has its own.

        A suspected member is told first, as nothing can refute the suspicion sooner (Lifeguard's
        buddy system). Then the sender of the message being answered is corrected.
        """
        if claims is None:
            claims = self._passengers(member)
        message = Message(
            self.node, self.boot_epoch, self.incarnation, self.is_leaving, body, claims
        )
        self.sends.append(Send(member.peer, message))
        if self.leave_sends_left:
            self.leave_sends_left -= 1

    def _passengers(self, member: Member) -> tuple[Claim, ...]:
        room = min(self.settings.piggyback_bytes_max // CLAIM_BYTES, CLAIMS_MAX)
        chosen: dict[NodeId, Claim] = {}
        held = member.claim
        if held.is_heard and held.standing is not Standing.ALIVE:
            chosen[held.node] = held
        if member.peer.node == self.answering:
            chosen |= self.corrections
            self.corrections = {}
        claims = list(chosen.values())[:room]
        limit = self.settings.gossip_limit(self.size)
        for claim in self.gossip.take(room - len(claims), limit):
            if claim.node not in chosen:
                claims.append(claim)
        return tuple(claims)

    def sample(self, nodes: Iterable[NodeId], count_max: int) -> list[NodeId]:
        """Return up to so many of the nodes, by chance."""
        pool = list(nodes)
        taken: list[NodeId] = []
        while pool and len(taken) < count_max:
            at = self.below(len(pool))
            pool[at], pool[-1] = pool[-1], pool[at]
            taken.append(pool.pop())
        return taken


def unheard(peer: Peer) -> Claim:
    """Return the belief about a member that no node has heard of."""
    return Claim(peer.node, peer.boot_epoch, UNHEARD, Standing.ALIVE, peer.node)
