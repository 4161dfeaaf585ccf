"""Machines among which every message arrives at once, unless a link is cut."""

from collections import deque
from random import Random

from headrace.cluster.swim.claims import Claim, Standing
from headrace.cluster.swim.events import Event, Outputs, Peer
from headrace.cluster.swim.machine import Swim
from headrace.cluster.swim.messages import Body, Message, News
from headrace.cluster.swim.settings import SwimSettings
from headrace.ids import BrokerId as NodeId

SETTINGS = SwimSettings()


def peer(node: int, boot_epoch: int = 0) -> Peer:
    return Peer(NodeId(node), f"host-{node}", 9093, boot_epoch)


def claim(
    node: int,
    standing: Standing = Standing.ALIVE,
    *,
    boot_epoch: int = 1,
    incarnation: int = 0,
    accuser: int | None = None,
) -> Claim:
    said_by = NodeId(node if accuser is None else accuser)
    return Claim(NodeId(node), boot_epoch, incarnation, standing, said_by)


def message(
    sender: int,
    body: Body,
    *claims: Claim,
    boot_epoch: int = 1,
    incarnation: int = 0,
    is_leaving: bool = False,
) -> Message:
    return Message(NodeId(sender), boot_epoch, incarnation, is_leaving, body, claims)


def swim_of(
    node: int, others: int, settings: SwimSettings = SETTINGS, *, boot_epoch: int = 1
) -> Swim:
    """Return a node that has been told of so many others: 2, 3 and so on for node 1."""
    swim = Swim(NodeId(node), boot_epoch, settings=settings, below=Random(node).randrange, now_ms=0)
    swim.allow([peer(each) for each in range(1, others + 2)], 0)
    swim.state.has_synced = True  # else the first message has a Sync beside what a test is about
    return swim


def meet(swim: Swim, *nodes: int, now_ms: int = 0) -> None:
    """Let a node hear of others."""
    for node in nodes:
        swim.state.now_ms = max(swim.state.now_ms, now_ms)
        swim.step(message(node, News()), swim.state.now_ms)


def standing_of(swim: Swim, node: int) -> Standing:
    return swim.state.members[NodeId(node)].claim.standing


def bodies(outputs: Outputs) -> list[tuple[int, Body]]:
    """Return what is sent to whom, but for news, which there is at any time."""
    sent = ((send.to.node, send.message.body) for send in outputs.sends)
    return [(node, body) for node, body in sent if not isinstance(body, News)]


class Group:
    """Several machines on one clock."""

    def __init__(self, size: int, settings: SwimSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 0
        self.peers = [peer(node) for node in range(1, size + 1)]
        self.swims: dict[int, Swim] = {}
        self.cut: set[tuple[int, int]] = set()
        self.dead: set[int] = set()
        self.events: list[tuple[int, Event]] = []
        self.sent: list[tuple[int, int, Message]] = []
        self._boot_epochs = dict.fromkeys(range(1, size + 1), 0)
        self._random = Random(size)
        self._mail: deque[tuple[int, int, Message]] = deque()
        for node in range(1, size + 1):
            self.start(node)

    def start(self, node: int) -> None:
        """Start a node, in a new life if it had one."""
        self.dead.discard(node)
        self._boot_epochs[node] += 1
        self.swims[node] = swim = Swim(
            NodeId(node),
            self._boot_epochs[node],
            settings=self.settings,
            below=self._random.randrange,
            now_ms=self.now_ms,
        )
        self.take(node, swim.allow(self.peers, self.now_ms))

    def take(self, node: int, outputs: Outputs) -> None:
        self.events += [(node, event) for event in outputs.events]
        for send in outputs.sends:
            self.sent.append((node, send.to.node, send.message))
            self._mail.append((node, send.to.node, send.message))
        self._deliver()

    def run(self, for_ms: int) -> None:
        """Let so much time pass."""
        end_ms = self.now_ms + for_ms
        while True:
            due_ms, node = min(
                (swim.deadline_ms(), node)
                for node, swim in self.swims.items()
                if node not in self.dead
            )
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.take(node, self.swims[node].tick(self.now_ms))
        self.now_ms = end_ms

    def isolate(self, node: int) -> None:
        others = [each for each in self.swims if each != node]
        self.cut |= {(node, each) for each in others} | {(each, node) for each in others}

    def seen(self, kind: type[Event], *, by: int | None = None) -> list[int]:
        """Return whom events of a kind were about."""
        return [
            event.node
            for node, event in self.events
            if isinstance(event, kind) and by in (None, node)
        ]

    def _deliver(self) -> None:
        while self._mail:
            sender, to, sent = self._mail.popleft()
            if (sender, to) not in self.cut and to not in self.dead:
                outputs = self.swims[to].step(sent, self.now_ms)
                self.events += [(to, event) for event in outputs.events]
                for send in outputs.sends:
                    self.sent.append((to, send.to.node, send.message))
                    self._mail.append((to, send.to.node, send.message))
