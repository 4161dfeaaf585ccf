"""Members in a world that follows from a seed, and is against them; and that it does follow.

Machines and codec are the product's. Datagrams are lost, delayed, doubled and reordered, links are
cut one way or both, the cluster is cut in two, processes are stopped, killed, started again and
sent away, members are taken out of the metadata image and into it again. Then all calms down, but
for those who stay dead, and one more dies. What has to hold is in `Checks`.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import ceil
from random import Random

import pytest

from headrace.cluster.swim.checks import check_all
from headrace.cluster.swim.claims import Rank, Standing
from headrace.cluster.swim.events import Event, LeaveFinished, Outputs, Peer, Superseded
from headrace.cluster.swim.machine import Seen, Swim
from headrace.cluster.swim.messages import (
    CLAIM_BYTES,
    News,
    Ping,
    Sync,
    decode_message,
    encode_message,
)
from headrace.cluster.swim.sealing import SEAL_BYTES_MAX
from headrace.cluster.swim.settings import SwimSettings
from headrace.ids import BrokerId as NodeId

CHAOS_MS = 15_000
LAST_DEATH_MS = CHAOS_MS + 12_000
SIZES = (3, 3, 4, 5, 3, 7, 4, 5, 3, 10)


class Violation(AssertionError):
    """Something happened that must not."""


class Life:
    """One process of a node."""

    def __init__(self, world: "World", node: NodeId, boot_epoch: int) -> None:
        self.world = world
        self.node = node
        self.swim = Swim(
            node,
            boot_epoch,
            settings=world.settings,
            below=world.random.randrange,
            now_ms=world.now_ms,
        )
        self.awake_ms = 0
        """Until when it is stopped."""
        self.is_over = False
        self.started_ms = world.now_ms
        self.received = 0
        self.sent: Counter[type] = Counter()
        self.ranks: dict[NodeId, Rank] = {}
        self._wake_ms = -1
        self.allow(world.allowed)

    def take(self, outputs: Outputs) -> None:
        """Do what the machine wants done."""
        self.world.checks.note_outputs(self, outputs)
        for event in outputs.events:
            self.world.checks.note_event(self, event)
        for send in outputs.sends:
            self.sent[type(send.message.body)] += 1
            self.world.send(self.node, send.to.node, encode_message(send.message), self)
        self._schedule()

    def allow(self, peers: list[Peer]) -> None:
        """Hear of a new metadata image."""
        if not self.is_over:
            nodes = {peer.node for peer in peers}
            self.ranks = {node: rank for node, rank in self.ranks.items() if node in nodes}
            self.take(self.swim.allow(peers, self.world.now_ms))

    def receive(self, data: bytes, sender: NodeId, boot_epoch: int) -> None:
        world = self.world
        if self.awake_ms > world.now_ms:
            world.at(self.awake_ms, partial(self.receive, data, sender, boot_epoch))
        elif not self.is_over:
            self.received += 1
            message = decode_message(data, sender, boot_epoch)
            self.take(self.swim.step(message, world.now_ms))

    def _schedule(self) -> None:
        due_ms = max(self.swim.deadline_ms(), self.awake_ms, self.world.now_ms)
        if not self.world.now_ms <= self._wake_ms <= due_ms:
            self._wake_ms = due_ms
            self.world.at(due_ms, self._wake)

    def _wake(self) -> None:
        world = self.world
        if self.is_over or self._wake_ms != world.now_ms:
            return
        self._wake_ms = -1
        if self.awake_ms > world.now_ms or self.swim.deadline_ms() > world.now_ms:
            self._schedule()
        else:
            self.take(self.swim.tick(world.now_ms))


class World:
    name = "members"
    calm_ms = 24_000
    look_ms = 250
    is_judged_when_calm = True

    def __init__(self, seed: int, size: int | None = None) -> None:
        self.seed = seed
        self.random = Random(f"swim {self.name} {seed}")
        self.size = size or SIZES[seed % len(SIZES)]
        self.settings = SwimSettings(
            forget_after_ms=4000, piggyback_bytes_max=self.random.choice((100, 400))
        )
        self.now_ms = 0
        self.trace: list[str] = []
        self.peers = [Peer(NodeId(n), "host", 9093) for n in range(1, self.size + 1)]
        self.allowed = self.peers
        """Those of the metadata image."""
        self.boot_epochs: Counter[NodeId] = Counter()
        self.lives: dict[NodeId, Life] = {}
        self.last_words: dict[NodeId, tuple[int, int]] = {}
        """Boot epoch and incarnation in which a node was last."""
        self.has_left: set[NodeId] = set()
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.lasting_cut: set[tuple[NodeId, NodeId]] = set()
        self.loss = self.random.choice((0.0, 0.02, 0.1, 0.3))
        self.is_calm = False
        self.may_start = True
        self.datagrams = self.datagrams_of_chaos = 0
        self._order = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.checks = Checks(self)

    # One play

    def run(self) -> None:
        """Play the seed and raise Violation at the first breach."""
        for peer in self.peers:
            self.at(self.random.randrange(2000), partial(self.start, peer.node))
        self.start_chaos()
        self.at(CHAOS_MS, self.calm_down)
        end_ms = CHAOS_MS + self.calm_ms
        for at_ms in range(self.look_ms, end_ms, self.look_ms):
            self.at(at_ms, self.checks.look)
        while self._agenda and self._agenda[0][0] <= end_ms:
            self.now_ms, _, act = heappop(self._agenda)
            act()
        self.checks.check_end()

    def start_chaos(self) -> None:
        for at_ms in range(1000, CHAOS_MS, 400):
            self.at(at_ms, self.harm)
        if self.random.random() < 0.4:
            self.at(2500, self.split_for_long)

    def at(self, at_ms: int, act: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._agenda, (at_ms, self._order, act))

    def say(self, line: str) -> None:
        self.trace.append(f"{self.now_ms} {line}")

    # Processes

    def start(self, node: NodeId) -> None:
        if node not in self.lives and self.may_start:
            self.boot_epochs[node] += 1
            self.has_left.discard(node)
            self.say(f"{node} starts in boot epoch {self.boot_epochs[node]}")
            self.lives[node] = Life(self, node, self.boot_epochs[node])

    def kill(self, node: NodeId) -> None:
        life = self.lives.pop(node, None)
        if life is not None:
            self.say(f"{node} dies")
            life.is_over = True
            state = life.swim.state
            self.last_words[node] = (state.boot_epoch, state.incarnation)
            self.checks.note_gone(node)

    def leave(self, node: NodeId) -> None:
        life = self.lives.get(node)
        if life is not None and life.awake_ms <= self.now_ms:
            self.say(f"{node} leaves")
            self.has_left.add(node)
            life.take(life.swim.leave(self.now_ms))

    def stop(self, node: NodeId, for_ms: int) -> None:
        life = self.lives.get(node)
        if life is not None:
            self.say(f"{node} is stopped for {for_ms} ms")
            life.awake_ms = max(life.awake_ms, self.now_ms + for_ms)

    def change_image(self) -> None:
        """Take a member out of the metadata image, or one in; nodes hear of it one by one."""
        if len(self.allowed) < self.size:
            self.allowed = self.peers
        else:
            dropped = self.random.choice(self.peers)
            self.allowed = [peer for peer in self.peers if peer is not dropped]
        self.say(f"the image has {[peer.node for peer in self.allowed]}")
        for life in self.lives.values():
            delay_ms = self.random.randrange(1500)
            self.at(self.now_ms + delay_ms, partial(self.hear, life))

    def hear(self, life: Life) -> None:
        if life.awake_ms > self.now_ms:
            self.at(life.awake_ms, partial(self.hear, life))
        else:
            life.allow(self.allowed)

    # The network

    def send(self, sender: NodeId, to: NodeId, data: bytes, life: Life) -> None:
        self.datagrams += 1
        if (sender, to) in self.cut or self.random.random() < self.loss:
            return
        boot_epoch = life.swim.state.boot_epoch
        copies = 2 if not self.is_calm and self.random.random() < 0.03 else 1
        for _ in range(copies):
            self.at(
                self.now_ms + self.delay_ms(), partial(self.arrive, to, data, sender, boot_epoch)
            )

    def delay_ms(self) -> int:
        if not self.is_calm and self.random.random() < 0.03:
            return self.random.randrange(1000)
        return self.random.randrange(1, 6)

    def arrive(self, to: NodeId, data: bytes, sender: NodeId, boot_epoch: int) -> None:
        life = self.lives.get(to)
        if life is not None:
            life.receive(data, sender, boot_epoch)

    # What is against them

    def harm(self) -> None:
        node = self.random.choice(self.peers).node
        kind = self.random.random()
        if kind < 0.12:
            self.kill(node)
            if self.random.random() < 0.8:
                downtime_ms = self.random.randrange(10, self.random.choice((300, 6000)))
                self.at(self.now_ms + downtime_ms, partial(self.start, node))
        elif kind < 0.16:
            self.leave(node)
            self.at(self.now_ms + self.random.randrange(2000, 6000), partial(self.start, node))
        elif kind < 0.30:
            self.stop(node, self.random.randrange(50, 4000))
        elif kind < 0.45:
            self.cut |= {(node, each.node) for each in self.peers}
        elif kind < 0.60:
            self.cut.add((node, self.random.choice(self.peers).node))
        elif kind < 0.65:
            self.split()
        elif kind < 0.75:
            self.cut = set(self.lasting_cut)
        elif kind < 0.82:
            self.change_image()

    def split(self) -> None:
        numbers = [peer.node for peer in self.peers]
        side = set(self.random.sample(numbers, len(numbers) // 2))
        self.cut = {(a, b) for a in numbers for b in numbers if (a in side) != (b in side)}
        self.cut |= self.lasting_cut

    def split_for_long(self) -> None:
        """Cut the cluster in two until both sides have given each other up."""
        self.split()
        self.lasting_cut = set(self.cut)

    def calm_down(self) -> None:
        self.say("calm")
        self.is_calm = True
        self.cut.clear()
        self.loss = 0.0
        self.allowed = self.peers
        for node, life in list(self.lives.items()):
            life.awake_ms = min(life.awake_ms, self.now_ms)
            if node in self.has_left:
                self.kill(node)
            else:
                life.allow(self.allowed)
        if not self.lives:
            self.start(self.peers[0].node)
        self.may_start = False
        self.datagrams_of_chaos = self.datagrams
        self.at(LAST_DEATH_MS, self.checks._check_calm_load)
        if len(self.lives) > 2:
            self.at(LAST_DEATH_MS, partial(self.kill, self.random.choice([*self.lives])))

    def judge(self, life: Life, event: Event) -> None:
        """Raise Violation if an event must not happen in this world."""


class Checks:
    """What has to hold, seen from above."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: Counter[str] = Counter()
        self.gone_ms: dict[NodeId, int] = {}
        self.heal_ms_seen = 0
        self.detect_ms_seen = 0
        self.load_seen = 0.0

    @property
    def heal_ms(self) -> int:
        """How long after all is well nodes may still be wrong about who is there.

        A node that was not well before has a long period, and needs some to get well.
        """
        return 7_000 + 2 * self.turn_ms

    @property
    def turn_ms(self) -> int:
        """How long it takes to probe everybody once."""
        settings = self.world.settings
        return ceil(self.world.size / settings.probes_per_period) * settings.probe_interval_ms

    @property
    def news(self) -> float:
        """How many datagrams of nothing but news a node sends in a period at most."""
        settings = self.world.settings
        rounds = settings.probe_interval_ms / settings.gossip_interval_ms
        return (rounds + 1) * settings.gossip_members

    def detect_ms(self, died_ms: int) -> int:
        """How long a death may go unnoticed: a turn of probes, and a suspicion.

        While all is well others confirm it, and it is as short as it can be. A sole survivor looks
        to itself as one that was cut off: its periods are long, and nobody confirms anything.
        """
        settings, size = self.world.settings, self.world.size
        long_period_ms = settings.probe_interval_ms * (settings.health_score_max + 1)
        if died_ms == LAST_DEATH_MS:
            return settings.suspicion_ms(size, 0, 0) + 2 * self.turn_ms + 3_000
        return settings.suspicion_ms(size, 2, 0) + self.turn_ms + long_period_ms + 2_500

    def note_outputs(self, life: Life, outputs: Outputs) -> None:
        settings = self.world.settings
        pings = 0
        for send in outputs.sends:
            body, size = send.message.body, len(encode_message(send.message))
            pings += isinstance(body, Ping)
            room = len(send.message.claims) * CLAIM_BYTES
            if not isinstance(body, Sync | News) and room > settings.piggyback_bytes_max:
                raise Violation(f"{room} bytes of claims beside {body}")
            if size + SEAL_BYTES_MAX > settings.datagram_bytes_max:
                raise Violation(f"a datagram of {size + SEAL_BYTES_MAX} bytes")
        if pings > settings.probes_per_period + 1:
            raise Violation(f"{pings} pings at a time from {life.node}")

    def note_event(self, life: Life, event: Event) -> None:
        world = self.world
        self.events[type(event).__name__] += 1
        world.say(f"{life.node}: {event}")
        if isinstance(event, Superseded):
            raise Violation(f"{life.node} believes in another one of itself")
        world.judge(life, event)
        if isinstance(event, LeaveFinished):
            world.at(world.now_ms, partial(world.kill, life.node))

    def note_gone(self, node: NodeId) -> None:
        self.gone_ms[node] = self.world.now_ms

    def look(self) -> None:
        """Look at what everybody holds true of everybody."""
        world = self.world
        for life in world.lives.values():
            check_all(life.swim.state)
            self._check_load(life)
            for seen in life.swim.view():
                rank = (seen.boot_epoch, seen.incarnation, int(seen.standing))
                if rank < life.ranks.get(seen.node, rank):
                    raise Violation(f"{life.node} goes back to {seen}")
                life.ranks[seen.node] = rank
                self._check_rank(life, seen.node, rank)
                if world.is_calm and world.is_judged_when_calm:
                    self._check_calm(life, seen)

    def _check_rank(self, life: Life, node: NodeId, rank: Rank) -> None:
        """Nobody knows of a life or an incarnation that never was."""
        other = self.world.lives.get(node)
        real = self.world.last_words.get(node, (0, -1))
        if other is not None:
            real = (other.swim.state.boot_epoch, other.swim.state.incarnation)
        if rank[:2] > real:
            raise Violation(f"{life.node} holds {rank} of {node}, which is at {real}")

    def _check_calm(self, life: Life, seen: Seen) -> None:
        world, node, standing = self.world, seen.node, seen.standing
        calm_for_ms = world.now_ms - CHAOS_MS
        if node in world.lives:
            is_right = seen.boot_epoch == world.boot_epochs[node] and seen.is_heard
            if standing is not Standing.ALIVE or not is_right:
                self.heal_ms_seen = max(self.heal_ms_seen, calm_for_ms)
                if calm_for_ms > self.heal_ms:
                    raise Violation(
                        f"{life.node} thinks {standing.name} in boot epoch {seen.boot_epoch} of "
                        f"{node} {calm_for_ms} ms after all was well"
                    )
            return
        died_ms = max(self.gone_ms.get(node, 0), CHAOS_MS)
        gone_for_ms = world.now_ms - died_ms
        if standing <= Standing.SUSPECT:
            self.detect_ms_seen = max(self.detect_ms_seen, gone_for_ms)
            if gone_for_ms > self.detect_ms(died_ms):
                raise Violation(
                    f"{life.node} has not noticed for {gone_for_ms} ms that {node} died"
                )

    def _check_load(self, life: Life) -> None:
        """A node sends in proportion to its periods and to what it gets, whatever the size."""
        world, settings = self.world, self.world.settings
        periods = (world.now_ms - life.started_ms) / settings.probe_interval_ms + 2
        own = settings.probes_per_period * (1 + settings.indirect_probes) + self.news + 2
        sent = life.sent.total()
        if sent > periods * own + 2 * life.received:
            raise Violation(f"{life.node} sent {sent} in {periods} periods for {life.received}")

    def _check_calm_load(self) -> None:
        """When all is well a node sends probes and answers, and news for a while."""
        world, settings = self.world, self.world.settings
        periods = (LAST_DEATH_MS - CHAOS_MS) / settings.probe_interval_ms
        self.load_seen = (world.datagrams - world.datagrams_of_chaos) / periods / len(world.lives)
        if self.load_seen > 2 * (settings.probes_per_period + 1) + self.news:
            raise Violation(f"{self.load_seen} datagrams per node and period when all is well")

    def check_end(self) -> None:
        world = self.world
        for life in world.lives.values():
            for seen in life.swim.view():
                died_ms = max(self.gone_ms.get(seen.node, 0), CHAOS_MS)
                age_ms = world.now_ms - died_ms
                is_old = age_ms > self.detect_ms(died_ms) + world.settings.forget_after_ms
                if seen.node not in world.lives and is_old and not seen.is_forgotten:
                    raise Violation(f"{life.node} does not forget {seen.node}")


@pytest.mark.parametrize("seed", [0, 2])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    traces = []
    for _ in range(2):
        world = World(seed)
        world.run()
        traces.append(world.trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 20
