"""Nodes of a quorum in a world that follows from a seed, and is against them.

Cores and storages are the product's; time, network, disks, clients and operators are simulated:
messages are lost, doubled and reordered, links are cut one way or both, machines lose power in
the middle of a write, disks fail to sync, clocks drift, members come and go. What must hold is
checked at every step by `raft_checks`; a breach raises `Violation`.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from random import Random

from headrace.errors import HeadraceError
from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind
from headrace.raft.errors import CorruptRaftLog, RaftError
from headrace.raft.membership import Membership
from headrace.raft.messages import Message, decode_message, encode_message
from headrace.raft.ready import Proposed, Ready
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from headrace.raft.storage import RaftStorage, open_storage
from headrace.testing.disk import PowerLost, SimulatedDisk
from tests.sim.raft_checks import Checks, Machine, Violation

CHAOS_MS = 2500.0
CALM_MS = 4000.0
SNAPSHOT_ENTRIES = 15
SPARE_NODES = 2
"""How many nodes operators may add to the first ones."""


class World:
    """One seed's quorum; `run` plays it and raises Violation at the first breach."""

    def __init__(self, seed: int, voters: int = 3, *, is_lying: bool = False) -> None:
        self.random = Random(seed)
        self.now_ms = 0.0
        self.trace: list[str] = []
        self.checks = Checks(self)
        self.is_lying = is_lying
        """Whether disks confirm syncs that they do not do."""
        self.settings = RaftSettings(
            election_timeout_ms=100,
            heartbeat_ms=20,
            clock_drift_ms_max=20,
            has_lease_reads=self.random.random() < 0.4,
            append_bytes_max=self.random.choice((1, 200)),
            in_flight_appends_max=4,
            in_flight_bytes_max=1000,
            uncommitted_entries_max=200,
            snapshot_chunk_bytes=64,
            kept_entries=self.random.choice((0, 3, 10)),
            promotion_lag_entries_max=50,
            segment_bytes=2000,
        )
        self.loss = self.random.choice((0.0, 0.02, 0.1))
        self.cruelty = self.random.choice((0.0, 0.3, 0.8))
        """How often a new leader is felled within milliseconds."""
        self.zeal = self.random.choice((1, 1, 4))
        """How many changes of members operators try at once."""
        self.cut: set[tuple[BrokerId, BrokerId]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._value_count = 0
        self.is_calm = False
        first = tuple(BrokerId(number) for number in range(1, voters + 1))
        self.nodes: dict[BrokerId, Node] = {}
        for number in range(1, voters + SPARE_NODES + 1):
            bootstrap = Membership(first) if number <= voters else Membership()
            self.nodes[BrokerId(number)] = Node(self, BrokerId(number), bootstrap, seed)

    def run(self) -> None:
        for node in self.nodes.values():
            node.start()
        for at_ms in range(10, int(CHAOS_MS), 7):
            self.at(at_ms, self.act)
        for at_ms in range(50, int(CHAOS_MS), 60):
            self.at(at_ms, self.harm)
        self.at(CHAOS_MS, self.calm_down)
        for at_ms in range(int(CHAOS_MS) + 300, int(CHAOS_MS + CALM_MS), 300):
            self.at(at_ms, self.propose_to_leader)
        self.play(CHAOS_MS + CALM_MS)
        self.checks.check_end()

    def play(self, until_ms: float) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, act = heappop(self._events)
            act()
            if self.is_calm and self.checks.is_settled():
                return

    def at(self, at_ms: float, act: Callable[[], None]) -> None:
        self._event_count += 1
        heappush(self._events, (max(at_ms, self.now_ms), self._event_count, act))

    def after(self, delay_ms: float, act: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, act)

    def say(self, line: str) -> None:
        self.trace.append(f"{self.now_ms:.3f} {line}")

    # The network

    def send(self, messages: list[Message]) -> None:
        for message in messages:
            if (message.sender, message.to) in self.cut or self.random.random() < self.loss:
                continue
            data = encode_message(message)
            copies = 2 if not self.is_calm and self.random.random() < 0.03 else 1
            for _ in range(copies):
                delay_ms = self.random.uniform(0.2, 3.0)
                if not self.is_calm and self.random.random() < 0.05:
                    delay_ms *= 20
                self.after(delay_ms, partial(self.arrive, message.to, data))

    def arrive(self, to: BrokerId, data: bytes) -> None:
        node = self.nodes.get(to)
        if node is not None and node.raft is not None:
            node.receive(decode_message(data))

    # Clients and operators

    def act(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        kind = self.random.random()
        if kind < 0.55:
            leader = self.leader() if self.random.random() < 0.7 else node
            (leader or node).propose(self.new_value())
        elif kind < 0.88:
            for each in self.nodes.values():  # above all those who wrongly believe that they lead
                if each is node or (each.raft and each.raft.state.role is Role.LEADER):
                    each.read()
        elif kind < 0.94:
            for _ in range(self.zeal):
                self.change_members()
        elif (leader := self.leader()) is not None:
            leader.ask(lambda raft, now: raft.transfer(node.number, now))
            if self.random.random() < 0.5:
                self.after(self.random.uniform(0, 6), leader.isolate)

    def change_members(self) -> None:
        leader = self.leader()
        if leader is None or leader.raft is None:
            return
        membership = leader.raft.state.membership
        number = self.random.choice(list(self.nodes))
        if number in membership.learners and number != leader.number:
            leader.ask(lambda raft, now: raft.promote(number, now))
        elif number not in membership.voters:
            leader.ask(lambda raft, now: raft.add_learner(number, now))
        elif self.random.random() < 0.5:
            leader.ask(lambda raft, now: raft.remove(number, now))

    def new_value(self) -> bytes:
        self._value_count += 1
        return b"value-%d" % self._value_count + b"." * self.random.randrange(60)

    def propose_to_leader(self) -> None:
        leader = self.leader()
        if leader is not None:
            leader.propose(self.new_value())

    def leader(self) -> "Node | None":
        """Give who leads in the highest term, if anybody does."""
        leaders = [
            node
            for node in self.nodes.values()
            if node.raft is not None and node.raft.state.role is Role.LEADER
        ]
        return max(leaders, key=lambda node: node.term, default=None)

    # What is against them

    def harm(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        others = [each for each in self.nodes if each != node.number]
        kind = self.random.random()
        if kind < 0.25:
            node.lose_power()
        elif kind < 0.35:
            node.kill()
        elif kind < 0.40:
            node.disk.fail("sync", "*.raft")
        elif kind < 0.55:
            node.isolate()
        elif kind < 0.60:
            other = self.random.choice(others)
            self.cut.add((node.number, other))
        elif kind < 0.65:
            side = set(self.random.sample(list(self.nodes), len(self.nodes) // 2))
            self.cut = {
                (a, b) for a in self.nodes for b in self.nodes if (a in side) != (b in side)
            }
        elif kind < 0.72:
            node.sync_ms = self.random.choice((0.3, 2.0, 60.0))
        elif kind < 0.78 and (leader := self.leader()) is not None:
            leader.lose_power()
        else:
            self.reconnect()

    def reconnect(self) -> None:
        self.cut.clear()

    def note_leader(self, node: "Node") -> None:
        """See a new leader, and often fell it before it has done much."""
        self.say(f"{node.number} leads {node.term}")
        if not self.is_calm and self.random.random() < self.cruelty:
            fell = node.lose_power if self.random.random() < 0.7 else node.isolate
            self.after(self.random.expovariate(1 / 3), fell)
            self.after(self.random.uniform(20, 150), self.reconnect)

    def calm_down(self) -> None:
        self.say("calm")
        self.is_calm = True
        self.reconnect()
        self.loss = 0.0
        for node in self.nodes.values():
            node.sync_ms = 0.3
            node.disk.heal()
            if node.raft is None:
                node.start()


class Node:
    """A machine: a disk, a clock that drifts, and while it is on a core with its storage."""

    def __init__(self, world: World, number: BrokerId, bootstrap: Membership, seed: int) -> None:
        self.world = world
        self.number = number
        self.bootstrap = bootstrap
        self.disk = SimulatedDisk(seed * 100 + number)
        if world.is_lying:
            self.disk.lose_sync("*.raft")
        self.random = Random(f"{seed} {number}")
        drift = 1.05 if world.settings.has_lease_reads else 1.5
        self.clock_rate = drift ** self.random.uniform(-1, 1)
        self.clock_offset_ms = self.random.uniform(0, 100_000)
        self.sync_ms = 0.3
        self.machine = Machine()
        self.raft: Raft | None = None
        self.storage: RaftStorage
        self.storing: Ready | None = None
        self.life = 0
        """Counts starts, so that events of an earlier life are void."""
        self.timer_ms: float | None = None
        self.reads: dict[int, int] = {}
        self.read_count = 0
        self.proposals: dict[int, tuple[int, bytes]] = {}
        self.snapshot_index = 0

    @property
    def term(self) -> int:
        return self.raft.state.term if self.raft is not None else -1

    def local_ms(self) -> int:
        return int(self.world.now_ms * self.clock_rate + self.clock_offset_ms)

    # Life and death

    def start(self) -> None:
        if self.raft is not None:
            return
        try:
            self.storage, stored = open_storage(
                self.disk, "raft", bootstrap=self.bootstrap, segment_bytes=2000
            )
        except (OSError, PowerLost) as error:
            if isinstance(error, PowerLost):
                self.disk.crash()
            self.world.after(50, self.start)
            return
        except CorruptRaftLog as error:
            raise Violation(f"node {self.number} cannot start: {error}") from error
        self.world.checks.check_recovered(self, stored)
        self.life += 1
        self.machine = Machine.load(stored.snapshot.data)
        self.snapshot_index = stored.snapshot.index
        self.world.checks.check_state(self, stored.snapshot.index)
        self.raft = Raft(
            self.number,
            settings=self.world.settings,
            stored=stored,
            jitter=self.random.randrange,
            now_ms=self.local_ms(),
        )
        self.world.say(f"{self.number} starts at {self.raft.state.log.last_index}")
        self.work()

    def kill(self) -> None:
        """End the process; what it wrote is in the page cache."""
        if self.raft is not None:
            self.world.say(f"{self.number} is killed")
            self.world.checks.remember(self, None)
            self.stop()

    def lose_power(self) -> None:
        """Crash the machine, perhaps in the middle of what it is storing."""
        if self.raft is None or self.world.is_calm:
            return
        self.world.say(f"{self.number} loses power")
        storing = self.storing
        if storing is not None:
            self.disk.lose_power_after(self.random.randrange(6))
            with suppress(PowerLost, OSError):
                self.storage.store(storing)
        self.world.checks.remember(self, storing)
        self.disk.crash()
        self.stop()

    def isolate(self) -> None:
        """Cut every link of this node."""
        if self.world.is_calm:
            return
        others = [each for each in self.world.nodes if each != self.number]
        self.world.cut |= {(self.number, other) for other in others}
        self.world.cut |= {(other, self.number) for other in others}

    def stop(self) -> None:
        self.raft = None
        self.storing = None
        self.timer_ms = None
        self.reads.clear()
        self.proposals.clear()
        self.life += 1
        self.world.after(self.random.uniform(5, 300), self.start)

    # Work

    def receive(self, message: Message) -> None:
        assert self.raft is not None
        self.raft.step(message, self.local_ms())
        self.work()

    def work(self) -> None:
        """Do what the core wants, until it wants nothing or waits for the disk."""
        while self.raft is not None:
            self.world.checks.check_node(self)
            if self.storing is not None:
                break
            self.save_if_due()
            if self.raft is None:
                return
            ready = self.raft.ready(self.local_ms())
            if ready is None:
                break
            self.world.checks.check_ready(self, ready)
            self.world.send(ready.early_messages)
            self.apply(ready.committed)
            self.storing = ready
            if ready.must_persist:
                delay_ms = self.sync_ms * self.random.uniform(0.5, 2.0)
                self.world.after(delay_ms, partial(self.finish, self.life))
                break
            self.finish(self.life)
        self.set_timer()

    def finish(self, life: int) -> None:
        """Store what is being stored, at the end of the time that it takes."""
        ready = self.storing
        if life != self.life or ready is None or self.raft is None:
            return
        if ready.must_persist:
            try:
                self.storage.store(ready)
            except (OSError, PowerLost) as error:
                self.world.say(f"{self.number} stops: {error}")
                self.world.checks.remember(self, ready)
                if isinstance(error, PowerLost) or self.random.random() < 0.5:
                    self.disk.crash()
                self.stop()
                return
        self.storing = None
        self.raft.persisted(ready, self.local_ms())
        if ready.snapshot is not None:
            self.machine = Machine.load(ready.snapshot.data)
            self.snapshot_index = ready.snapshot.index
            self.world.say(f"{self.number} restores {ready.snapshot.index}")
            self.world.checks.check_state(self, ready.snapshot.index)
            self.proposals.clear()
        self.world.send(ready.messages)
        for read_id, index in ready.reads:
            self.world.checks.check_read(self, index, self.reads.pop(read_id))
        for read_id in ready.dropped_reads:
            del self.reads[read_id]
        if ready.must_persist:  # else `work` is the caller and goes on
            self.work()

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.world.checks.check_applied(self, entry)
            if entry.kind is EntryKind.DATA:
                self.machine.apply(entry.data)
            self.machine.index = entry.index
            self.world.checks.note_state(self, entry.index)
            proposed = self.proposals.pop(entry.index, None)
            if proposed is not None and proposed[0] == entry.term and proposed[1] != entry.data:
                raise Violation(f"node {self.number} confirmed another value at {entry.index}")
        if entries:
            self.world.say(f"{self.number} applies {entries[0].index}..{entries[-1].index}")

    def save_if_due(self) -> None:
        raft = self.raft
        assert raft is not None
        if self.machine.index - self.snapshot_index < SNAPSHOT_ENTRIES:
            return
        snapshot = raft.make_snapshot(self.machine.index, self.machine.save())
        kept_from = snapshot.index - self.world.settings.kept_entries
        if not self.world.is_calm and self.random.random() < 0.1:
            self.disk.lose_power_after(self.random.randrange(8))
        try:
            self.storage.store_snapshot(snapshot)
            self.storage.compact(kept_from)
        except PowerLost:
            self.world.say(f"{self.number} loses power in a snapshot")
            self.world.checks.remember(self, None)
            self.disk.crash()
            self.stop()
            return
        raft.compact(snapshot)
        self.snapshot_index = snapshot.index

    def set_timer(self) -> None:
        raft = self.raft
        if raft is None:
            return
        due_ms = (raft.deadline_ms() + 1 - self.clock_offset_ms) / self.clock_rate
        if self.timer_ms is None or due_ms < self.timer_ms:
            self.timer_ms = due_ms
            self.world.at(due_ms, partial(self.tick, self.life))

    def tick(self, life: int) -> None:
        if life != self.life or self.raft is None:
            return
        self.timer_ms = None
        now_ms = self.local_ms()
        if now_ms >= self.raft.deadline_ms():
            self.raft.tick(now_ms)
        self.work()
        self.set_timer()

    # What others ask for

    def ask(self, question: Callable[[Raft, int], object]) -> bool:
        """Ask the core, and say whether it agreed."""
        if self.raft is None:
            return False
        try:
            question(self.raft, self.local_ms())
        except RaftError:
            return False
        self.work()
        return True

    def propose(self, value: bytes) -> None:
        if self.raft is None:
            return
        try:
            proposed = self.raft.propose(value, self.local_ms())
        except HeadraceError:
            return
        assert isinstance(proposed, Proposed)
        self.proposals[proposed.index] = (proposed.term, value)
        self.work()

    def read(self) -> None:
        self.read_count += 1
        read_id = self.read_count
        self.reads[read_id] = self.world.checks.read_floor()
        if not self.ask(lambda raft, now: raft.read(read_id, now)):
            self.reads.pop(read_id, None)
