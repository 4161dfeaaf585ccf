"""A machine of the simulated quorum: a disk, a clock that drifts, and while it is on a driver."""

import errno
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from headrace.ids import BrokerId
from headrace.raft.core import Raft
from headrace.raft.disk_thread import Then, Work
from headrace.raft.driver import RaftDriver
from headrace.raft.entries import Snapshot
from headrace.raft.errors import CorruptRaftLog, DiskFull, ProposalLost, RaftError
from headrace.raft.membership import Membership
from headrace.raft.messages import Message
from headrace.raft.ready import Ready
from headrace.raft.storage import file_name
from headrace.testing.disk import Operation, PowerLost, SimulatedDisk
from tests.sim.raft_checks import Violation
from tests.sim.virtual_host import VirtualHost, VirtualWorker

if TYPE_CHECKING:
    from tests.sim.raft_world import World


class Node:
    """One machine through all of its lives."""

    def __init__(self, world: "World", number: BrokerId, bootstrap: Membership) -> None:
        self.world = world
        self.number = number
        self.bootstrap = bootstrap
        self.disk = SimulatedDisk(world.seed * 100 + number)
        if world.is_lying:
            self.disk.lose_sync("*.raft")
        self.random = Random(f"{world.seed} {number}")
        self.clock_rate = world.drift ** self.random.uniform(-1, 1)
        self.clock_offset_ms = self.random.uniform(0, 100_000)
        self.sync_ms = 0.3
        self.life = 0
        """Counts starts and ends, so that what an earlier life does is void."""
        self.machine = world.make_machine(self)
        self.host: WatchedHost
        self.driver: RaftDriver | None = None
        self.storing: Ready | None = None
        self.snapshot_index = 0
        """Of the last snapshot that is durable."""
        self.is_burned = False
        """Whether it never comes back."""
        self.may_fail = False
        """Whether its disk was made to fail in a way that ends a node."""

    @property
    def raft(self) -> Raft | None:
        return self.driver._raft if self.driver is not None else None

    @property
    def term(self) -> int:
        return self.raft.state.term if self.raft is not None else -1

    # Life and death

    def start(self) -> None:
        if self.driver is None and not self.is_burned:
            self.life += 1
            self.world.spawn(self._live(self.life))

    async def _live(self, life: int) -> None:
        """Start, and see to what follows when the driver stops by itself."""
        self.machine = self.world.make_machine(self)
        self.host = WatchedHost(self)
        driver = RaftDriver(
            self.number,
            self.disk,
            "raft",
            machine=self.machine,
            transport=Link(self),
            settings=self.world.settings_of(self),
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
            if not (reason.startswith("OSError") and self.may_fail):
                raise Violation(f"node {self.number} stopped: {reason}")
            self.may_fail = False
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

    def lose_power(self, changes_max: int = 6) -> None:
        """Crash the machine, perhaps in the middle of what it is storing."""
        if self.driver is None or self.world.is_calm:
            return
        self.world.say(f"{self.number} loses power")
        self.world.checks.remember(self)
        self.disk.lose_power_after(self.random.randrange(changes_max))
        self.host.kill(finishing=True)
        self.disk.crash()
        self.go_down()

    def go_down(self) -> None:
        assert self.driver is not None
        self.life += 1
        self.world.spawn(self.driver.stop())
        self.driver = self.storing = None
        self.world.after(self.world.downtime_ms(), self.start)

    def burn(self) -> None:
        """Never come back."""
        self.kill()
        self.world.say(f"{self.number} burns")
        self.is_burned = True

    async def end(self) -> None:
        if self.driver is not None:
            self.life += 1
            if self.driver.failure is None:  # else it is about to end, and needs its workers
                self.host.kill(finishing=False)
            await self.driver.stop()

    def fail(self, operation: Operation, error: int, *, times: int = 1) -> None:
        """Let the disk fail, in this way only: what failed to sync has to be cut off, at least."""
        is_wanted = operation != "sync" or self.world.has_failing_syncs
        if is_wanted and not self.world.is_lying:
            self.may_fail |= operation == "sync"
            self.disk.heal()
            self.disk.fail(operation, "*.raft", error=error, times=times)

    def fail_roll(self, removals: int) -> None:
        """Leave no room for the first frame of the next file, nor to remove that so many times."""
        if self.driver is not None:
            path = f"*{file_name(self.driver._storage._number + 1)}"
            self.disk.heal()
            self.disk.fail("append", path, error=errno.ENOSPC)
            if removals:
                self.disk.fail("remove", path, error=errno.ENOSPC, times=removals)

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
        storing = raft._storing  # which may be postponed, and so not on its way to the disk yet
        is_installing = storing is not None and storing.snapshot is not None
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
            if what.snapshot is not None:
                self.world.checks.installs += 1
                self.world.note_install(self)
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
