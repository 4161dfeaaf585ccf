"""Nodes of a quorum in a world that follows from a seed, and is against them.

Drivers, cores and storages are the product's; time, network, disks, clients and operators are
simulated: messages are lost, doubled and reordered, links are cut one way or both, machines lose
power in the middle of a write, disks are slow, full or fail to sync, clocks drift, members come and
go.
What must hold is checked at every step by `raft_checks`; a breach raises `Violation`.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import msgspec

from headrace.ids import BrokerId
from headrace.raft.errors import RaftError
from headrace.raft.membership import Membership
from headrace.raft.messages import Message, decode_message, encode_message
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from headrace.testing.virtual_loop import run_virtual
from tests.sim.raft_checks import Checks, DigestMachine, Machine, Violation
from tests.sim.raft_node import Node

CHAOS_MS = 2500.0
CALM_MS = 4000.0
CHUNK_BYTES = (64, 64, 1 << 20)
"""Pieces of a snapshot: smaller than it is, or larger."""
SPARE_NODES = 2
"""How many nodes operators may add to the first ones."""


class World:
    """One seed's quorum; `run` plays it and raises Violation at the first breach.

    Scenarios (see `raft_scenarios`) replace what is against the nodes, and how they are set up.
    """

    name = "promises"
    """What the tests of this scenario have in their names."""
    has_failing_syncs = True

    def __init__(
        self,
        seed: int,
        voters: int | None = None,
        *,
        is_lying: bool = False,
        is_cramped: bool | None = None,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace: list[str] = []
        self.checks = Checks(self)
        self.is_lying = is_lying
        """Whether disks confirm syncs that they do not do."""
        self.settings = self.make_settings()
        self.drift = 1.05 if self.settings.has_lease_reads else 1.5
        self.loss = self.random.choice((0.0, 0.02, 0.1))
        self.cruelty = self.random.choice((0.0, 0.3, 0.8))
        """How often a new leader is felled within milliseconds."""
        self.zeal = self.random.choice((1, 1, 4))
        """How many changes of members operators try at once."""
        self.is_cramped = seed % 2 == 1 if is_cramped is None else is_cramped
        """Whether disks fill up now and then."""
        self.cut: set[tuple[BrokerId, BrokerId]] = set()
        self.value_count = 0
        self.is_calm = False
        self.voters = voters or (5 if seed % 3 == 2 else 3)
        self.nodes: dict[BrokerId, Node] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.set_up()

    # How nodes are set up

    def set_up(self) -> None:
        """Change what a scenario wants to be otherwise."""

    def make_settings(self) -> RaftSettings:
        choose = self.random.choice
        return RaftSettings(
            election_timeout_ms=100,
            heartbeat_ms=20,
            clock_drift_ms_max=20,
            has_lease_reads=self.random.random() < 0.4,
            append_bytes_max=choose((1, 200)),
            in_flight_appends_max=4,
            in_flight_bytes_max=1000,
            uncommitted_entries_max=200,
            snapshot_chunk_bytes=choose(CHUNK_BYTES),
            kept_entries=choose((0, 3, 10)),
            promotion_lag_entries_max=50,
            segment_bytes=2000,
            snapshot_trigger_bytes=1000,
            proposal_timeout_ms=1000,
            full_disk_retry_ms_max=300,
        )

    def change_settings(self, **values: Any) -> None:
        self.settings = msgspec.structs.replace(self.settings, **values)
        self.drift = 1.05 if self.settings.has_lease_reads else 1.5

    def settings_of(self, node: Node) -> RaftSettings:
        """Return the settings of a node's next life."""
        return self.settings

    def make_machine(self, node: Node) -> Machine:
        """Return an empty state for a node's next life."""
        return DigestMachine(node)

    # One play

    def run(self) -> None:
        """Play the seed and raise Violation at the first breach."""
        run_virtual(self._play())

    async def _play(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._end = self.loop.create_future()
        # Whatever a callback raises is a breach, or a mistake in here.
        self.loop.set_exception_handler(lambda _, context: self.breach(context.get("exception")))
        first = tuple(BrokerId(number) for number in range(1, self.voters + 1))
        for number in range(1, self.voters + SPARE_NODES + 1):
            bootstrap = Membership(first) if number <= self.voters else Membership()
            node = self.nodes[BrokerId(number)] = Node(self, BrokerId(number), bootstrap)
            node.start()
        self.start_chaos()
        self.after(CHAOS_MS, self.calm_down)
        for at_ms in range(int(CHAOS_MS) + 300, int(CHAOS_MS + CALM_MS), 300):
            self.after(at_ms, self.propose_to_leader)
        for at_ms in range(int(CHAOS_MS) + 10, int(CHAOS_MS + CALM_MS), 10):
            self.after(at_ms, self.end_if_settled)
        self.after(CHAOS_MS + CALM_MS, self.end)
        try:
            await self._end
            self.checks.check_end()
        finally:
            for node in self.nodes.values():
                await node.end()

    def start_chaos(self) -> None:
        """Let clients, operators and what is against them begin."""
        for at_ms in range(10, int(CHAOS_MS), 7):
            self.after(at_ms, self.act)
        for at_ms in range(50, int(CHAOS_MS), 60):
            self.after(at_ms, self.harm)
        if self.is_cramped:
            for at_ms in range(80, int(CHAOS_MS), 110):
                self.after(at_ms, self.cramp)

    def end_if_settled(self) -> None:
        if self.is_settled():
            self.end()

    def is_settled(self) -> bool:
        """Say whether all is well at the end."""
        return self.checks.is_settled()

    def end(self) -> None:
        if not self._end.done():
            self._end.set_result(None)

    def breach(self, error: BaseException | None) -> None:
        if not self._end.done():
            self._end.set_exception(error or Violation("something failed"))

    def after(self, delay_ms: float, act: Callable[[], None]) -> None:
        self.loop.call_later(delay_ms / 1000, act)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)

    def _note_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.breach(task.exception())

    def say(self, line: str) -> None:
        self.trace.append(f"{self.loop.time() * 1000:.3f} {line}")

    # The network

    def send(self, messages: list[Message]) -> None:
        for message in messages:
            if (message.sender, message.to) in self.cut or self.loses(message):
                continue
            data = encode_message(message)
            copies = 2 if not self.is_calm and self.random.random() < 0.03 else 1
            for _ in range(copies):
                self.after(self.delay_ms(message), partial(self.arrive, message.to, data))

    def loses(self, message: Message) -> bool:
        return self.random.random() < self.loss

    def delay_ms(self, message: Message) -> float:
        delay_ms = self.random.uniform(0.2, 3.0)
        if not self.is_calm and self.random.random() < 0.05:
            delay_ms *= 20
        return delay_ms

    def arrive(self, to: BrokerId, data: bytes) -> None:
        driver = self.nodes[to].driver
        if driver is not None:
            driver.receive([decode_message(data)])

    # Clients and operators

    def act(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        kind = self.random.random()
        if kind < 0.55:
            leader = self.leader() if self.random.random() < 0.7 else node
            self.spawn((leader or node).propose(self.new_value()))
        elif kind < 0.88:
            for each in self.nodes.values():  # above all those who wrongly believe that they lead
                if each is node or (each.raft and each.raft.state.role is Role.LEADER):
                    self.spawn(each.read())
        elif kind < 0.94:
            for _ in range(self.zeal):
                self.spawn(self.change_members())
        elif (leader := self.leader()) is not None:
            leader.transfer(node.number)
            if self.random.random() < 0.5:
                self.after(self.random.uniform(0, 6), leader.isolate)

    async def change_members(self) -> None:
        leader = self.leader()
        if leader is None or leader.driver is None:
            return
        driver = leader.driver
        membership = driver.state.membership
        number = self.random.choice(list(self.nodes))
        with suppress(RaftError):
            if number in membership.learners and number != leader.number:
                await driver.promote(number)
            elif number not in membership.voters:
                await driver.add_learner(number)
            elif self.random.random() < 0.5:
                await driver.remove(number)

    def new_value(self) -> bytes:
        self.value_count += 1
        return b"value-%d" % self.value_count + b"." * self.random.randrange(60)

    def propose_to_leader(self) -> None:
        leader = self.leader()
        if leader is not None:
            self.spawn(leader.propose(self.new_value()))

    def leader(self) -> Node | None:
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
            node.fail("sync", errno.EIO)
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
            node.sync_ms = self.random.choice((0.3, 2.0, 60.0, 400.0))
        elif kind < 0.78 and (leader := self.leader()) is not None:
            leader.lose_power()
        else:
            self.reconnect()

    def cramp(self) -> None:
        """Fill a disk up, or make room on one."""
        node = self.random.choice(list(self.nodes.values()))
        if self.random.random() < 0.3 and (leader := self.leader()) is not None:
            node = leader
        if self.random.random() < 0.45:
            node.disk.make_room()
        else:
            self.fill(node)

    def fill(self, node: Node) -> None:
        """Leave a disk no room, or none for names, or none to cut or remove anything."""
        kind = self.random.random()
        node.disk.fill_up(self.random.choice((0, 0, 30, 200, 800)))
        if kind < 0.13:  # what is written in part stays there
            node.fail("truncate", errno.ENOSPC)
        elif kind < 0.27:
            node.disk.make_room()  # for bytes, but not for names
            node.fail("create", errno.EDQUOT, times=self.random.randrange(1, 5))
        elif kind < 0.36:
            node.fail("sync", errno.ENOSPC)
        elif kind < 0.5:  # what is not wanted any more stays there, too
            node.fail("remove", errno.ENOSPC, times=self.random.randrange(1, 5))

    def downtime_ms(self) -> float:
        """Return how long a node is down that goes down now."""
        return self.random.uniform(5, 300)

    def note_install(self, node: Node) -> None:
        """See a node begin to store a leader's snapshot."""

    def reconnect(self) -> None:
        self.cut.clear()

    def note_leader(self, node: Node) -> None:
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
            node.disk.make_room()
            node.start()
