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

from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.disk_thread import Then, Work
from headrace.raft.driver import RaftDriver
from headrace.raft.entries import Snapshot
from headrace.raft.errors import CorruptRaftLog, DiskFull, ProposalLost, RaftError
from headrace.raft.membership import Membership
from headrace.raft.messages import Message, decode_message, encode_message
from headrace.raft.ready import Ready
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from headrace.testing.disk import Operation, PowerLost, SimulatedDisk
from headrace.testing.virtual_loop import run_virtual
from tests.sim.raft_checks import Checks, Machine, Violation
from tests.sim.virtual_host import VirtualHost, VirtualWorker

CHAOS_MS = 2500.0
CALM_MS = 4000.0
SPARE_NODES = 2
"""How many nodes operators may add to the first ones."""


class World:
    """One seed's quorum; `run` plays it and raises Violation at the first breach."""

    def __init__(
        self,
        seed: int,
        voters: int = 3,
        *,
        is_lying: bool = False,
        is_cramped: bool | None = None,
    ) -> None:
        self.random = Random(seed)
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
            snapshot_trigger_bytes=1000,
            proposal_timeout_ms=1000,
            full_disk_retry_ms_max=300,
        )
        self.loss = self.random.choice((0.0, 0.02, 0.1))
        self.cruelty = self.random.choice((0.0, 0.3, 0.8))
        """How often a new leader is felled within milliseconds."""
        self.zeal = self.random.choice((1, 1, 4))
        """How many changes of members operators try at once."""
        self.is_cramped = seed % 2 == 1 if is_cramped is None else is_cramped
        """Whether disks fill up now and then."""
        self.cut: set[tuple[BrokerId, BrokerId]] = set()
        self._value_count = 0
        self.is_calm = False
        self.seed = seed
        self._voters = voters
        self.nodes: dict[BrokerId, Node] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Play the seed and raise Violation at the first breach."""
        run_virtual(self._play())

    async def _play(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._end = self.loop.create_future()
        # Whatever a callback raises is a breach, or a mistake in here.
        self.loop.set_exception_handler(lambda _, context: self.breach(context.get("exception")))
        first = tuple(BrokerId(number) for number in range(1, self._voters + 1))
        for number in range(1, self._voters + SPARE_NODES + 1):
            bootstrap = Membership(first) if number <= self._voters else Membership()
            node = self.nodes[BrokerId(number)] = Node(self, BrokerId(number), bootstrap)
            node.start()
        for at_ms in range(10, int(CHAOS_MS), 7):
            self.after(at_ms, self.act)
        for at_ms in range(50, int(CHAOS_MS), 60):
            self.after(at_ms, self.harm)
        if self.is_cramped:
            for at_ms in range(80, int(CHAOS_MS), 110):
                self.after(at_ms, self.cramp)
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

    def end_if_settled(self) -> None:
        if self.checks.is_settled():
            self.end()

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
        self._value_count += 1
        return b"value-%d" % self._value_count + b"." * self.random.randrange(60)

    def propose_to_leader(self) -> None:
        leader = self.leader()
        if leader is not None:
            self.spawn(leader.propose(self.new_value()))

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
        kind = self.random.random()
        if kind < 0.45:
            node.disk.make_room()
            return
        node.disk.fill_up(self.random.choice((0, 0, 30, 200, 800)))
        if kind < 0.52:  # what is written in part stays there
            node.fail("truncate", errno.ENOSPC)
        elif kind < 0.6:
            node.disk.make_room()  # for bytes, but not for names
            node.fail("create", errno.EDQUOT, times=self.random.randrange(1, 5))
        elif kind < 0.65:
            node.fail("sync", errno.ENOSPC)

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
            node.disk.make_room()
            node.start()


class Node:
    """A machine: a disk, a clock that drifts, and while it is on a driver."""

    def __init__(self, world: World, number: BrokerId, bootstrap: Membership) -> None:
        self.world = world
        self.number = number
        self.bootstrap = bootstrap
        self.disk = SimulatedDisk(world.seed * 100 + number)
        if world.is_lying:
            self.disk.lose_sync("*.raft")
        self.random = Random(f"{world.seed} {number}")
        drift = 1.05 if world.settings.has_lease_reads else 1.5
        self.clock_rate = drift ** self.random.uniform(-1, 1)
        self.clock_offset_ms = self.random.uniform(0, 100_000)
        self.sync_ms = 0.3
        self.life = 0
        """Counts starts and ends, so that what an earlier life does is void."""
        self.machine = Machine(self)
        self.host: WatchedHost
        self.driver: RaftDriver | None = None
        self.storing: Ready | None = None
        self.snapshot_index = 0
        """Of the last snapshot that is durable."""

    @property
    def raft(self) -> Raft | None:
        return self.driver._raft if self.driver is not None else None

    @property
    def term(self) -> int:
        return self.raft.state.term if self.raft is not None else -1

    # Life and death

    def start(self) -> None:
        if self.driver is None:
            self.life += 1
            self.world.spawn(self._live(self.life))

    async def _live(self, life: int) -> None:
        """Start, and see to what follows when the driver stops by itself."""
        self.machine = Machine(self)
        self.host = WatchedHost(self)
        driver = RaftDriver(
            self.number,
            self.disk,
            "raft",
            machine=self.machine,
            transport=Link(self),
            settings=self.world.settings,
            jitter=self.random.randrange,
            host=self.host,
        )
        try:
            await driver.start(bootstrap=self.bootstrap)
        except (OSError, PowerLost) as error:
            if isinstance(error, PowerLost):
                self.disk.crash()
            self.world.after(50, self.start)
            return
        except CorruptRaftLog as error:
            raise Violation(f"node {self.number} cannot start: {error}") from error
        self.driver, self.storing = driver, None
        assert self.raft is not None
        self.world.say(f"{self.number} starts at {self.raft.state.log.last_index}")
        self.world.checks.check_recovered(self)
        self.look()
        reason = await driver.wait_stopped()
        if life == self.life:
            if not reason.startswith(("OSError", "PowerLost")):
                raise Violation(f"node {self.number} stopped: {reason}")
            self.world.say(f"{self.number} stops: {reason}")
            self.world.checks.remember(self)
            if self.random.random() < 0.5:
                self.disk.crash()
            self.go_down()

    def kill(self) -> None:
        """End the process; what it wrote is in the page cache."""
        if self.driver is not None:
            self.world.say(f"{self.number} is killed")
            self.world.checks.remember(self)
            self.host.kill(finishing=self.random.random() < 0.5)
            self.go_down()

    def lose_power(self) -> None:
        """Crash the machine, perhaps in the middle of what it is storing."""
        if self.driver is None or self.world.is_calm:
            return
        self.world.say(f"{self.number} loses power")
        self.world.checks.remember(self)
        self.disk.lose_power_after(self.random.randrange(6))
        self.host.kill(finishing=True)
        self.disk.crash()
        self.go_down()

    def go_down(self) -> None:
        assert self.driver is not None
        self.life += 1
        self.world.spawn(self.driver.stop())
        self.driver = self.storing = None
        self.world.after(self.random.uniform(5, 300), self.start)

    async def end(self) -> None:
        if self.driver is not None:
            self.life += 1
            if self.driver.failure is None:  # else it is about to end, and needs its workers
                self.host.kill(finishing=False)
            await self.driver.stop()

    def fail(self, operation: Operation, error: int, *, times: int = 1) -> None:
        """Let the disk fail, in this way only: what failed to sync has to be cut off, at least."""
        if not self.world.is_lying:
            self.disk.heal()
            self.disk.fail(operation, "*.raft", error=error, times=times)

    def isolate(self) -> None:
        """Cut every link of this node."""
        if self.world.is_calm:
            return
        others = [each for each in self.world.nodes if each != self.number]
        self.world.cut |= {(self.number, other) for other in others}
        self.world.cut |= {(other, self.number) for other in others}

    # What is seen of its work

    def look(self, ready: Ready | None = None) -> None:
        """Check the node as it is now, and what it is about to store."""
        try:
            self._check(ready)
        except Violation as breach:  # no matter of the driver's, which called
            self.world.breach(breach)

    def _check(self, ready: Ready | None) -> None:
        raft = self.raft
        if raft is None:
            return
        if self.driver is not None and self.driver.refused_messages:
            raise Violation(f"node {self.number} got a message that no node sends")
        is_installing = self.storing is not None and self.storing.snapshot is not None
        if raft.state.log.installing is None and not is_installing:
            self.snapshot_index = raft.state.log.snapshot.index
        self.world.checks.check_node(self)
        if ready is not None:
            self.world.checks.check_ready(self, ready)

    def begin_work(self, work: Work) -> None:
        what = work.args[0] if isinstance(work, partial) and work.args else None
        if isinstance(what, Ready):
            # When one that found no room is tried again, the log may have gone on without it.
            is_new, self.storing = what is not self.storing, what
            self.look(what if is_new else None)
            self.world.checks.retries += not is_new
        elif isinstance(what, Snapshot) and self.random.random() < 0.1:
            self.world.after(self.sync_ms / 2, self.lose_power)

    def end_work(self, work: Work) -> None:
        if isinstance(work, partial) and work.args and work.args[0] is self.storing:
            self.storing = None
        self.look()

    # What others ask for

    async def propose(self, value: bytes) -> None:
        if self.driver is None:
            return
        try:
            index = await self.driver.propose(value)
        except (ProposalLost, DiskFull) as error:
            self.world.checks.refusals += isinstance(error, DiskFull)
            self.world.checks.note_lost(self, value)
        except RaftError:
            return
        else:
            self.world.checks.check_confirmed(self, index, value)

    async def read(self) -> None:
        if self.driver is None:
            return
        floor = self.world.checks.read_floor()
        try:
            index = await self.driver.read_index()
        except RaftError:
            return
        self.world.checks.check_read(self, index, floor)

    def transfer(self, target: BrokerId) -> None:
        assert self.driver is not None
        with suppress(RaftError):
            self.driver.transfer(target)


class Link:
    """The way from one life of a node to the others."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._life = node.life

    def send(self, messages: list[Message]) -> None:
        if self._life == self._node.life:
            self._node.look()
            self._node.world.send(messages)


class WatchedHost(VirtualHost):
    """The clock and the disk threads of one life of a node."""

    def __init__(self, node: Node) -> None:
        super().__init__(
            lambda: node.sync_ms * node.random.uniform(0.5, 2.0) / 1000,
            clock_rate=node.clock_rate,
            clock_offset_ms=node.clock_offset_ms,
        )
        self.node = node
        self.life = node.life

    def make_worker(self, name: str) -> VirtualWorker:
        worker = WatchedWorker(self)
        self.workers.append(worker)
        return worker


class WatchedWorker(VirtualWorker):
    """Lets the world see what begins and what has ended."""

    def __init__(self, host: WatchedHost) -> None:
        super().__init__(host)
        self._watched = host

    def run(self, work: Work, then: Then) -> None:
        host = self._watched

        def then_look(error: BaseException | None) -> None:
            then(error)
            if error is None and host.life == host.node.life:
                host.node.end_work(work)

        if host.life == host.node.life:
            host.node.begin_work(work)
        super().run(work, then_look)
