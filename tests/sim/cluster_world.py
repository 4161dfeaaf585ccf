"""Three to five nodes that form a cluster, their clients, and what happens to them by seed.

The nodes are those that users run. They start when they like, and a fourth and fifth come later.
Then there is a storm: nodes lose power, are killed, stopped and paused, links are cut, slow and
lossy, disks are full or slow, clocks jump, a folder is lost. Then it is calm, and the cluster must
be whole again within a bound, with everything that was promised: see `cluster_checks`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from headrace.cluster.joining import CannotJoin
from headrace.cluster.tokens import EXPIRES_AT_S_MAX, create_token
from headrace.ids import TopicName
from headrace.metadata.snapshot import take_snapshot
from headrace.metadata.state import ResourceType
from headrace.node.node import Node
from headrace.testing.disk import SimulatedDisk
from headrace.testing.hosts import Crashed, Host
from headrace.testing.simulated_node import NODE_PORT, PORT, SECRET, make_node
from headrace.testing.simulation import Simulation
from tests.sim import cluster_clients
from tests.sim.cluster_checks import ClusterChecks, watching
from tests.sim.cluster_clients import CONFIG, RECORDS, REQUEST_TIMEOUT_MS, SHARED
from tests.sim.linearizability import Operation
from tests.sim.node_checks import Violation, expect

STORM_SECONDS: Final = 7.0
RECOVERY_SECONDS_MAX: Final = 40.0
"""How long it may take until a cluster to which nothing happens any more is whole."""
VOTERS_MAX: Final = 3
ROOM_BYTES: Final = 20_000
"""With less than this on its disk a node that starts may end, and say that there is no room."""

Trouble = Callable[["Machine", float], None]


@cache
def _token_file(node_id: int) -> str:
    """Return the name of a file with a token for a node."""
    file = Path(_tokens.name) / str(node_id)
    file.write_text(create_token(SECRET, node_id, EXPIRES_AT_S_MAX))
    return str(file)


_tokens: Final = TemporaryDirectory(prefix="headrace-tokens-")


class Machine:
    """A host with a node, which somebody starts again whenever it is down."""

    def __init__(self, host: Host, node_id: int, seeds: str) -> None:
        self.host = host
        self.node_id = node_id
        self.seeds = seeds
        self.node: Node | None = None
        """The node of this life, started or starting."""
        self.is_ready = False
        self.is_kept_down = False
        self.is_wiped = False
        self.stopping: asyncio.Task[None] | None = None
        self.lost_disk: SimulatedDisk | None = None
        self.troubled_until = 0.0
        """Until when it was down, paused, cut off or slow, as far as is known."""

    def __repr__(self) -> str:
        return f"node {self.node_id}"


class World:
    """A cluster, its clients, and the weather."""

    TROUBLES_A_SECOND = 0.9
    REQUESTS_A_SECOND = 4.0

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.simulation = Simulation(seed)
        self.random = Random(f"cluster/{seed}")
        self.checks = ClusterChecks(self.simulation)
        self.is_storming = True
        self.machines: list[Machine] = []
        self.started: list[Machine] = []
        """Those that have been started at all."""
        self.clients = [self.simulation.host(f"10.0.1.{number}") for number in (1, 2)]
        self._numbers = count(1)
        self._keepers: dict[Machine, asyncio.Task[None]] = {}
        self._settings = self._choose_settings()
        self._make_machines()
        self.checks.applied_by = self._applied_by

    def _make_machines(self) -> None:
        for number in range(1, self.random.choice((3, 3, 3, 4, 5)) + 1):
            self._add_machine(number, self._seeds(3))

    def _seeds(self, count: int) -> str:
        addresses = [f"10.0.0.{number}:{NODE_PORT}" for number in range(1, count + 1)]
        return ",".join(self.random.sample(addresses, count))

    def _add_machine(self, number: int, seeds: str) -> Machine:
        host = self.simulation.host(f"10.0.0.{number}")
        host.clock_rate = self.random.uniform(0.999, 1.001)
        host.wall_offset_ns = int(self.random.uniform(-2e9, 2e9))
        machine = Machine(host, number, seeds)
        self.machines.append(machine)
        return machine

    def _choose_settings(self) -> dict[str, str]:
        luck = self.random
        return {
            "auto.create.topics.enable": "false",
            "broker.heartbeat.interval.ms": "400",
            "broker.session.timeout.ms": "1800",
            "headrace.voters.max": str(VOTERS_MAX),
            "headrace.raft.election.timeout.ms": "800",
            "headrace.raft.heartbeat.ms": "150",
            "headrace.raft.proposal.timeout.ms": "3000",
            "headrace.raft.snapshot.trigger.bytes": luck.choice(("1024", "4096", "1000000")),
            "headrace.raft.kept.entries": luck.choice(("0", "3", "1000")),
            "log.flush.interval.messages": "1",
        }

    # What tests read

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{each.host.name}:{PORT}" for each in self.started)

    @property
    def trace(self) -> list[str]:
        return list(self.simulation.trace.lines)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that serve."""
        return [each.node for each in self.started if each.is_ready and each.node is not None]

    def _applied_by(self, node_id: int, life: bytes) -> int | None:
        node = self.machines[node_id - 1].node
        quorum = None if node is None or node._incarnation_id != life else node._quorum
        return None if quorum is None else quorum.driver.applied_index

    def new_number(self) -> int:
        return next(self._numbers)

    def note(self, what: str) -> None:
        self.simulation.note("world", what)

    def was_well(self, machine: Machine, client: str, *, since: float) -> bool:
        """Return whether nothing kept a node from responding to a client since a time."""
        return (
            machine.troubled_until < since
            and not self.simulation.network.link(client, machine.host.name).is_cut
        )

    # The play

    def run(self) -> None:
        with watching(self.simulation, self.checks):
            self.simulation.run(self._play())

    async def _play(self) -> None:
        await self._begin()
        running = self._start_clients()
        await self._storm()
        await self._calm()
        for each in running:
            with suppress(Crashed):
                await each
        await self._check()
        await self._end()

    async def _begin(self) -> None:
        """Start the nodes, and make the topic that all clients use."""
        for machine in self.machines:
            late = self.random.choice((0.0, 0.0, 0.3, 1.5))
            if machine.node_id > VOTERS_MAX:
                late = self.random.uniform(2.0, STORM_SECONDS)
            self.simulation.call_later(late, self._start_machine, machine)
        while not self.nodes:
            await asyncio.sleep(0.05)
            expect(self.simulation.now < RECOVERY_SECONDS_MAX, "no cluster is formed")
        await self._prepare()

    async def _prepare(self) -> None:
        host = self.clients[0]
        for _ in range(10):
            client = cluster_clients.Client(self, "setup", host.name)
            if await host.run(cluster_clients.create_records(client)):
                return
            await asyncio.sleep(0.2)
        raise Violation("the first topic cannot be created")

    def _start_clients(self) -> "list[asyncio.Future[None]]":
        running = []
        for number, host in enumerate((self.clients[0], self.clients[0], self.clients[1]), 1):
            client = cluster_clients.Client(self, f"client-{number}", host.name)
            running.append(host.start(client.run()))
        running.append(self.clients[1].start(cluster_clients.produce(self, "producer")))
        for each in running:
            each.add_done_callback(self._on_ended)
        return running

    def _on_ended(self, running: "asyncio.Future[Any]") -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None and not isinstance(error, Crashed):
            self.simulation.fail(error)

    # Nodes

    def _start_machine(self, machine: Machine) -> None:
        self.note(f"{machine} is started")
        self.started.append(machine)
        self._watch(machine)
        self._spawn(machine, self._keep_up(machine))

    def _spawn(self, machine: Machine, work: Coroutine[Any, Any, None]) -> None:
        task = self.simulation.observer.spawn(work)
        task.add_done_callback(self._on_ended)
        self._keepers[machine] = task

    async def _keep_up(self, machine: Machine) -> None:
        """Start the node of a machine, and start it again when it is down."""
        while True:
            if machine.host.is_up and machine.node is None:
                await self._start_node(machine)
            await asyncio.sleep(0.05)

    async def _start_node(self, machine: Machine) -> None:
        host = machine.host
        try:
            machine.node = host.call(self._make_node, machine)
            await host.run(machine.node.start())
        except Crashed:
            return
        except CannotJoin as error:
            expect(machine.is_wiped, f"{machine} is refused: {error}")
            self.checks.seen["refused"] += 1
            self.note(f"{machine} gets its folder back: {error}")
            self._give_back(machine)
        except Exception as error:
            if not self._may_lack_room(machine):
                raise Violation(f"{machine} does not start: {error!r}") from error
            self.checks.seen["starts without room"] += 1
            host.crash(power=False)  # the process ends, and another one is started
        else:
            expect(not machine.is_wiped, f"{machine} joined with an empty folder in place of its")
            self.checks.seen["starts"] += 1
            machine.is_ready = True
            self._trouble(machine, 0)

    def _make_node(self, machine: Machine) -> Node:
        return make_node(machine.host, self._settings_of(machine))

    def _may_lack_room(self, machine: Machine) -> bool:
        return machine.host.disk.free_bytes() <= ROOM_BYTES

    def _settings_of(self, machine: Machine) -> dict[str, str]:
        is_seed = f"{machine.host.name}:{NODE_PORT}" in machine.seeds.split(",")
        return {
            **self._settings,
            "headrace.join.token.file": "" if is_seed else _token_file(machine.node_id),
            "headrace.seeds": machine.seeds,
            "node.id": str(machine.node_id),
        }

    def _on_crash(self, machine: Machine) -> None:
        machine.node, machine.is_ready = None, False
        seconds = self.random.choice((0.02, 0.3, 1.0, 3.0)) if self.is_storming else 0.1
        self._trouble(machine, seconds)
        self.checks.seen["kills" if machine.host.is_powered else "power losses"] += 1
        self.simulation.call_later(seconds, self._boot, machine)

    def _boot(self, machine: Machine) -> None:
        if not machine.host.is_up and not machine.is_kept_down:
            machine.host.boot()
            self._watch(machine)

    def _watch(self, machine: Machine) -> None:
        machine.host.on_crash.append(lambda: self._on_crash(machine))

    # The weather

    async def _storm(self) -> None:
        until = self.simulation.now + STORM_SECONDS
        while self.simulation.now < until:
            await asyncio.sleep(self.random.expovariate(self.TROUBLES_A_SECOND))
            self._act()

    def _act(self) -> None:
        luck, troubles = self.random, self._troubles()
        (trouble,) = luck.choices(tuple(troubles), tuple(troubles.values()))
        seconds = luck.choice((0.1, 0.6, 1.5, 3.0)) * luck.uniform(0.5, 1.5)
        trouble(self._target(), seconds)

    def _target(self) -> Machine:
        """Choose who is hit: often the leader, where most can go wrong."""
        luck = self.random
        if luck.random() < 0.4:
            for machine in self.started:
                if machine.is_ready and machine.node is not None:
                    controller = machine.node.cluster.controller
                    if controller is not None and controller.is_active:
                        return machine
        return luck.choice(self.started)

    def _troubles(self) -> dict[Trouble, int]:
        """Return what may happen, and how often, compared with the others."""
        return {
            self._lose_power: 10,
            self._kill: 6,
            self._lose_power_soon: 8,
            self._pause: 10,
            self._cut: 16,
            self._isolate: 8,
            self._worsen_link: 8,
            self._reset: 6,
            self._fill_disk: 6,
            self._slow_disk: 6,
            self._move_clock: 5,
            self._stop: 8,
            self._wipe: 3,
            self._lose_all_power: 2,
        }

    def _trouble(self, machine: Machine, seconds: float) -> None:
        machine.troubled_until = max(machine.troubled_until, self.simulation.now + seconds)

    def _lose_power(self, machine: Machine, seconds: float) -> None:
        machine.host.crash(power=True)

    def _kill(self, machine: Machine, seconds: float) -> None:
        machine.host.crash(power=False)

    def _lose_power_soon(self, machine: Machine, seconds: float) -> None:
        if machine.host.is_up:
            machine.host.lose_power_after(self.random.randint(0, 20))

    def _lose_all_power(self, machine: Machine, seconds: float) -> None:
        for each in self.started:
            each.host.crash(power=True)

    def _pause(self, machine: Machine, seconds: float) -> None:
        machine.host.pause(seconds)
        self._trouble(machine, seconds)
        self.checks.seen["pauses"] += 1

    def _cut(self, machine: Machine, seconds: float) -> None:
        """Cut the way to another node or to a client, one way or both."""
        others = [each.host.name for each in self.started if each is not machine]
        other = self.random.choice([*others, self.clients[0].name])
        there, back = (machine.host.name, other), (other, machine.host.name)
        for source, target in self.random.choice(((there,), (back,), (there, back))):
            self._cut_link(source, target, seconds)
        self._trouble(machine, seconds)
        self.checks.seen["cuts"] += 1

    def _isolate(self, machine: Machine, seconds: float) -> None:
        for each in self.started:
            if each is not machine:
                self._cut_link(machine.host.name, each.host.name, seconds)
                self._cut_link(each.host.name, machine.host.name, seconds)
        self.checks.seen["isolations"] += 1

    def _cut_link(self, source: str, target: str, seconds: float) -> None:
        network = self.simulation.network
        network.cut(source, target)
        self.simulation.call_later(seconds, network.heal, source, target)

    def _worsen_link(self, machine: Machine, seconds: float) -> None:
        """Make everything between two nodes slow, and datagrams lost, doubled and out of order."""
        other = self.random.choice(self.started)
        for ends in ((machine, other), (other, machine)):
            link = self.simulation.network.link(ends[0].host.name, ends[1].host.name)
            link.seconds_max = self.random.choice((0.002, 0.05, 0.3))
            link.late_chance = self.random.choice((0.01, 0.2))
            link.loss, link.duplication = self.random.choice((0.0, 0.5)), 0.3
        self.checks.seen["bad links"] += 1

    def _reset(self, machine: Machine, seconds: float) -> None:
        other = self.random.choice([*(each.host for each in self.started), *self.clients])
        self.simulation.network.reset(machine.host.name, other.name)

    def _fill_disk(self, machine: Machine, seconds: float) -> None:
        self.note(f"the disk of {machine} is full")
        disk = machine.host.disk
        disk.fill_up(self.random.choice((0, 500, 20_000)))
        self.simulation.call_later(seconds, disk.make_room)
        self._trouble(machine, seconds)
        self.checks.seen["full disks"] += 1

    def _slow_disk(self, machine: Machine, seconds: float) -> None:
        self.note(f"the disk of {machine} is slow")
        host = machine.host
        host.thread_seconds = lambda: host.random.uniform(0, 0.25)
        self.simulation.call_later(seconds, self._hurry, machine)
        self._trouble(machine, seconds)

    def _hurry(self, machine: Machine) -> None:
        machine.host.thread_seconds = machine.host.default_thread_seconds

    def _move_clock(self, machine: Machine, seconds: float) -> None:
        machine.host.wall_offset_ns += int(self.random.choice((-1, 1)) * 1e9 * 10 ** (seconds * 2))

    def _stop(self, machine: Machine, seconds: float) -> None:
        """Stop a node as an operator does, and start it again."""
        if machine.is_ready and machine.stopping is None:
            self.checks.seen["stops"] += 1
            machine.is_ready = False
            machine.stopping = self.simulation.observer.spawn(self._stop_node(machine))
            machine.stopping.add_done_callback(self._on_ended)

    async def _stop_node(self, machine: Machine) -> None:
        host, node = machine.host, machine.node
        assert node is not None
        self._trouble(machine, RECOVERY_SECONDS_MAX)  # until it is back
        with suppress(Crashed):
            await host.run(node.stop())
            self._expect_no_tasks(machine)
            self._end_process(machine)
        machine.troubled_until = self.simulation.now
        machine.stopping = None

    def _expect_no_tasks(self, machine: Machine) -> None:
        """Expect that a node which has stopped left nothing behind, but what is about to end."""
        left = [task for task in machine.host.tasks() if not task.cancelling()]
        expect(not left, f"tasks of {machine} are left: {left}")

    def _end_process(self, machine: Machine) -> None:
        """End the process of a node that has stopped."""
        machine.host.crash(power=False)

    def _wipe(self, machine: Machine, seconds: float) -> None:
        """Lose the folder of a node that has been a member."""
        if not machine.is_ready or self._count_members() < VOTERS_MAX or self._has_wiped():
            return  # else nobody would know it
        host = machine.host
        machine.is_wiped = True
        host.crash(power=True)
        machine.lost_disk, host.disk = host.disk, SimulatedDisk(self.random.getrandbits(32))
        self.note(f"{machine} has lost its folder")

    def _count_members(self) -> int:
        """Return how many nodes serve that know enough voters."""
        return sum(
            len(node.broker.quorum.driver.state.membership.voters) >= VOTERS_MAX
            for node in self.nodes
        )

    def _has_wiped(self) -> bool:
        return any(machine.is_wiped for machine in self.machines)

    def _give_back(self, machine: Machine) -> None:
        """Put the folder of a node back in its place, and start it."""
        host = machine.host
        host.crash(power=True)
        if machine.lost_disk is not None:
            host.disk, machine.lost_disk = machine.lost_disk, None
        machine.is_wiped = False

    # The end

    async def _calm(self) -> None:
        """Let everything be well, and the cluster be whole."""
        self.note("calm")
        self.is_storming = False
        network = self.simulation.network
        network.heal()
        for link in network.links.values():
            link.seconds_max, link.late_chance, link.loss, link.duplication = 0.002, 0.01, 0, 0
        for machine in self.started:
            machine.host.disk.spare_power()
            machine.host.disk.make_room()
            self._hurry(machine)
        until = self.simulation.now + RECOVERY_SECONDS_MAX
        while problem := self._find_problem():
            expect(self.simulation.now < until, f"the cluster does not recover: {problem}")
            await asyncio.sleep(0.1)
        self.note("the cluster is whole")

    def _find_problem(self) -> str:
        """Return what keeps the cluster from being whole, empty if nothing does."""
        if len(self.started) < len(self.machines):
            return "not all nodes have been started"
        for machine in self.started:
            if not machine.is_ready or machine.node is None:
                return f"{machine} does not serve"
        expected = {machine.node_id for machine in self.started}
        voters = min(int(self._settings["headrace.voters.max"]), len(expected))
        for node in self.nodes:
            quorum = node.broker.quorum
            failure, members = quorum.driver.failure, quorum.driver.state.membership
            if failure is not None:
                raise Violation(f"node {node.node_id} has stopped: {failure}")
            unfenced = {each.broker_id for each in quorum.image.brokers() if not each.is_fenced}
            if unfenced != expected:
                return f"node {node.node_id} knows {unfenced} to be unfenced, not {expected}"
            if set(members.members) != expected or len(members.voters) != voters:
                return f"node {node.node_id} knows the members {members}"
            for slot in quorum.image.partitions_of(node.node_id):
                if node.broker.replicas.find(slot.topic.name, slot.partition) is None:
                    return f"node {node.node_id} lacks {slot.topic.name}-{slot.partition}"
        return ""

    async def _check(self) -> None:
        """Look for everything that was promised, on every node."""
        await self._wait_for_equal_images()
        checks = self.checks
        now = self.simulation.now
        for node in self.nodes:
            image = node.broker.image
            for topic_id, (name, _, _) in checks.created.items():
                topic = image.topic(TopicName(name))
                is_same = topic is not None and topic.topic_id == topic_id
                expect(is_same, f"node {node.node_id} does not know {name}, which was created")
            for name in SHARED:
                is_there = image.topic(TopicName(name)) is not None
                checks.topics[name].append(Operation("read", now, now, is_there))
            value = image.configs(ResourceType.TOPIC, RECORDS).get(CONFIG)
            checks.registers[CONFIG].append(Operation("read", now, now, value))
        checks.check_histories()
        records = await self.clients[0].run(cluster_clients.read_all(self))
        for place, record in checks.acknowledged.items():
            found = records.get(place)
            expect(found == record, f"{record!r} was acknowledged at {place}, there is {found!r}")
        expect(set(records.values()) <= checks.sent, "there are records that nobody sent")
        expect(len(set(records.values())) == len(records), "there are records twice")

    async def _wait_for_equal_images(self) -> None:
        until = self.simulation.now + REQUEST_TIMEOUT_MS / 1000
        while True:
            appliers = [node.broker.quorum._machine.applier for node in self.nodes]
            if len({each.image.applied_index for each in appliers}) == 1:
                break
            expect(self.simulation.now < until, "nodes do not come to the same index")
            await asyncio.sleep(0.05)
        images = {take_snapshot(each) for each in appliers}
        expect(len(images) == 1, "nodes have different images at the same index")

    async def _end(self) -> None:
        """Stop every node, one after the other."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.sleep(0)
        for host in self.clients:
            expect(not host.tasks(), f"tasks of clients are left: {host.tasks()}")
        for machine in self.started:
            node = machine.node
            assert node is not None
            await machine.host.run(node.stop())
            self._expect_no_tasks(machine)
            machine.is_kept_down = True
            machine.host.crash(power=False)
