"""One node and its clients, and what happens to them by seed: see `node_checks` for what must hold.

The node is the one that users run, with every crash on the same disk. First there is a storm:
machines lose power, at any instant or between two writes, processes are killed and stopped, the
network is cut and resets connections, the disk is full or slow, clocks jump. Then it is calm, and
everything that was promised is looked for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any, Final

from headrace.client import Admin, Resource, ResourceType
from headrace.node.node import Node
from headrace.testing.hosts import Crashed, Host
from headrace.testing.simulated_node import start_node
from headrace.testing.simulation import Simulation
from tests.sim import node_clients
from tests.sim.node_checks import Checks, Violation, expect
from tests.sim.node_clients import BOOTSTRAP, JOBS, ORDERS, QUEUE, SETTINGS

STORM_SECONDS: Final = 14.0
CALM_SECONDS_MAX: Final = 120.0
UNTIL_QUIET_SECONDS: Final = 5.0
"""How long it takes, after a trouble, until every request must be answered in time again."""
BROKER: Final = "10.0.0.1"
TOPICS: Final = {ORDERS: 3, JOBS: 2}
LOCK_SECONDS: Final = 4.0
TROUBLE_SECONDS_MAX: Final = 15.0
NEVER: Final = float("-inf")
ROOM_BYTES: Final = 20_000
"""With less than this on its disk a node that starts may end, and say that there is no room."""

Trouble = Callable[[Host, float], None]
Client = Callable[[], Coroutine[Any, Any, None]]


class World:
    """A node, its clients, and the weather."""

    TROUBLES_A_SECOND = 0.5

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.simulation = Simulation(seed)
        self.random = Random(f"world/{seed}")
        self.checks = Checks()
        self.is_synced = self.random.random() < 0.7
        """Whether every record is on disk before it is acknowledged (flush.messages=1)."""
        self.broker = self.simulation.host(BROKER)
        self.machines = [self.simulation.host(f"10.0.1.{number}") for number in (1, 2, 3)]
        for host in (self.broker, *self.machines):
            host.clock_rate = self.random.uniform(0.999, 1.001)
            host.wall_offset_ns = int(self.random.uniform(-2e9, 2e9))
        self.node: Node | None = None
        self.losses = 0
        """How often power went and what was not synced with it."""
        self.is_storming = True
        self.is_over = False
        self.quiet_at = 0.0
        """From when on nothing may be late, as far as is known now."""
        self._numbers = count(1)
        self._troubled_at: dict[Host, float] = {}
        """When a machine of clients was last slow or hard to reach."""
        self._clients: dict[str, tuple[Host, Client]] = {}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._is_rebooting = True

    @property
    def is_calm(self) -> bool:
        return not self.is_storming

    @property
    def trace(self) -> list[str]:
        return list(self.simulation.trace.lines)

    def run(self) -> None:
        self.simulation.run(self._play())

    def luck(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}/{self.simulation.now}")

    def fetched_at(self, name: str) -> float:
        """Return when records that a client gets now were fetched, at the earliest.

        They may lie in its memory for as long as they are locked, or as it was held up.
        """
        now, troubled_at = self.simulation.now, self._troubled_at.get(self._clients[name][0], NEVER)
        return now - LOCK_SECONDS if troubled_at < now - TROUBLE_SECONDS_MAX else NEVER

    def note(self, what: str) -> None:
        self.simulation.note("world", what)

    async def _play(self) -> None:
        self._watch_broker()
        await self._start_node()
        await self.machines[0].run(self._prepare())
        self._add("p1", 0, lambda: node_clients.produce(self, self._new_name("p1")))
        self._add("p2", 1, lambda: node_clients.produce(self, self._new_name("p2")))
        self._add("c1", 1, lambda: node_clients.consume(self, "c1", "consumer"))
        protocol = self.random.choice(("consumer", "classic"))
        self._add("c2", 2, lambda: node_clients.consume(self, "c2", protocol))
        self._add("s1", 0, lambda: node_clients.work(self, "s1"))
        self._add("s2", 2, lambda: node_clients.work(self, "s2"))
        self._add("admin", 0, lambda: node_clients.administrate(self, "admin"))
        self._add("probe", 2, lambda: node_clients.probe(self, "probe"))
        await self._storm()
        await self._calm()
        await self._end()

    async def _prepare(self) -> None:
        async with Admin(BOOTSTRAP, SETTINGS) as admin:
            for topic, partitions in TOPICS.items():
                await admin.create_topic(topic, partitions)
            self.checks.topics.update(TOPICS)
            group = Resource(ResourceType.GROUP, QUEUE)
            await admin.alter_configs(group, set={"share.auto.offset.reset": "earliest"})

    # The node

    def _settings(self) -> dict[str, str]:
        settings = {
            "auto.create.topics.enable": "false",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "6000",
            "group.share.heartbeat.interval.ms": "500",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.session.timeout.ms": "6000",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": "3000",
            "group.share.delivery.count.limit": "10",
            "log.flush.offset.checkpoint.interval.ms": "2000",
        }
        if self.is_synced:
            settings["log.flush.interval.messages"] = "1"
        return settings

    async def _start_node(self) -> None:
        """Start the node, as often as it takes while machines crash; nothing else keeps it down."""
        try:
            self.node = await self.broker.run(start_node(self.broker, self._settings()))
            self.checks.seen["starts"] += 1
        except Crashed:
            return
        except Exception as error:
            if self.broker.disk.free_bytes() > ROOM_BYTES:
                raise Violation(f"the node does not start: {error!r}") from error
            self.note(f"no room to start: {error}")
            self.checks.seen["starts without room"] += 1
            self.broker.crash(power=False)  # the process ends, and another one is started

    def _watch_broker(self) -> None:
        self.broker.on_crash.append(self._on_crash)

    def _on_crash(self) -> None:
        self.node = None
        if not self.broker.is_powered:
            self.checks.seen["power losses"] += 1
            if not self.is_synced:
                self.losses += 1
                self.checks.forget_unsynced()
        else:
            self.checks.seen["kills"] += 1
        seconds = self.random.uniform(0.01, 2)
        self._disturb(seconds)
        if self._is_rebooting:
            self.simulation.call_later(seconds, self._reboot)

    def _reboot(self) -> None:
        self.broker.boot()
        self._watch_broker()
        self._starting = self.simulation.observer.spawn(self._restart())
        self._starting.add_done_callback(self._on_ended)

    async def _restart(self) -> None:
        await self._start_node()
        self._disturb(0)

    # The clients

    def _new_name(self, name: str) -> str:
        """Name a producer, also one that begins anew: another is to begin at number 1."""
        return f"{name}.{next(self._numbers)}"

    def _add(self, name: str, machine: int, client: Client) -> None:
        self._clients[name] = self.machines[machine], client
        self._launch(name)

    def _launch(self, name: str) -> None:
        host, client = self._clients[name]
        running = self._running[name] = host.start(client())
        running.add_done_callback(self._on_ended)

    def _on_ended(self, running: "asyncio.Future[None]") -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None and not isinstance(error, Crashed):
            self.simulation.fail(error)

    def _revive(self, host: Host) -> None:
        host.boot()
        for name, (each, _) in self._clients.items():
            if each is host:
                self.simulation.observer.call(self._launch, name)

    # The weather

    async def _storm(self) -> None:
        while self.simulation.now < STORM_SECONDS:
            await asyncio.sleep(self.random.expovariate(self.TROUBLES_A_SECOND))
            self._act()

    def _act(self) -> None:
        """Let one trouble come."""
        luck, troubles = self.random, self._troubles()
        (trouble,) = luck.choices(tuple(troubles), tuple(troubles.values()))
        seconds = luck.choice((0.05, 0.5, 2.0, 6.0)) * luck.uniform(0.5, 1.5)
        trouble(luck.choice(self.machines), seconds)

    def _troubles(self) -> dict[Trouble, int]:
        """Return what may happen, and how often, compared with the others."""
        return {
            self._lose_power: 10,
            self._kill: 10,
            self._lose_power_soon: 12,
            self._pause_broker: 10,
            self._pause_machine: 5,
            self._crash_machine: 8,
            self._cut: 16,
            self._reset: 8,
            self._fill_disk: 8,
            self._slow_disk: 8,
            self._move_clock: 4,
        }

    def _lose_power(self, machine: Host, seconds: float) -> None:
        self.broker.crash(power=True)

    def _kill(self, machine: Host, seconds: float) -> None:
        self.broker.crash(power=False)

    def _lose_power_soon(self, machine: Host, seconds: float) -> None:
        if self.broker.is_up:
            self.broker.lose_power_after(self.random.randint(0, 30))

    def _pause_broker(self, machine: Host, seconds: float) -> None:
        self.broker.pause(seconds)
        self._disturb(seconds)

    def _pause_machine(self, machine: Host, seconds: float) -> None:
        machine.pause(seconds)
        self._troubled_at[machine] = self.simulation.now
        self._disturb(seconds)

    def _crash_machine(self, machine: Host, seconds: float) -> None:
        if machine.is_up:
            machine.crash(power=self.random.random() < 0.5)
            self.simulation.call_later(seconds, self._revive, machine)
            self._disturb(seconds)

    def _reset(self, machine: Host, seconds: float) -> None:
        self.simulation.network.reset(machine.name, BROKER)
        self._disturb(0)

    def _fill_disk(self, machine: Host, seconds: float) -> None:
        self.note("the disk is full")
        self.broker.disk.fill_up(self.random.choice((0, 500, 20_000)))
        self.simulation.call_later(seconds, self.broker.disk.make_room)
        self._disturb(seconds)

    def _slow_disk(self, machine: Host, seconds: float) -> None:
        self.note("the disk is slow")
        luck = self.broker.random
        self.broker.thread_seconds = lambda: luck.uniform(0, 0.3)
        self.simulation.call_later(seconds, self._hurry)
        self._disturb(seconds)

    def _move_clock(self, machine: Host, seconds: float) -> None:
        self.broker.wall_offset_ns += int(self.random.uniform(-2e9, 3e9))

    def _cut(self, machine: Host, seconds: float) -> None:
        network = self.simulation.network
        there, back = (machine.name, BROKER), (BROKER, machine.name)
        for source, target in self.random.choice(((there,), (back,), (there, back))):
            network.cut(source, target)
            self.simulation.call_later(seconds, network.heal, source, target)
        self._troubled_at[machine] = self.simulation.now
        self._disturb(seconds)

    def _hurry(self) -> None:
        self.broker.thread_seconds = self.broker.default_thread_seconds

    def _disturb(self, seconds: float) -> None:
        self.quiet_at = max(self.quiet_at, self.simulation.now + seconds + UNTIL_QUIET_SECONDS)

    # The end

    async def _calm(self) -> None:
        """Let everything be well, and everything that was promised come true."""
        self.note("calm")
        self.broker.disk.spare_power()
        self.is_storming = False
        self.broker.disk.make_room()
        self._hurry()
        self.simulation.network.heal()
        while self.node is None or self.simulation.now < self.quiet_at:
            await asyncio.sleep(0.1)
        while not all(host.is_up for host in self.machines):
            await asyncio.sleep(0.1)
        for name in ("p1", "p2", "admin"):
            await self._running[name]
        machine = self.machines[0]
        records = await machine.run(node_clients.read_all(TOPICS))
        self.checks.check_whole(records)
        until = self.simulation.now + CALM_SECONDS_MAX
        checks = self.checks
        while not checks.has_lost:
            orders = checks.undelivered(ORDERS, checks.delivered)
            jobs = checks.undelivered(JOBS, checks.queued)
            if not orders and not jobs:
                break
            expect(self.simulation.now < until, f"never delivered: {orders[:3]} and {jobs[:3]}")
            await asyncio.sleep(0.5)
        self._records = records

    async def _end(self) -> None:
        """Have everybody leave, and look at what is left."""
        self.is_over = True
        for running in self._running.values():
            await running
        await asyncio.sleep(10)  # until the last connection has been closed on both sides
        node = self.node
        assert node is not None
        traffic = node.traffic
        # Of a client that lost its power the node hears nothing, as long as it says nothing.
        streams = [each for each in self.simulation.network.streams if each.local[0] == BROKER]
        unheard = sum(each.is_orphaned for each in streams)
        count = len(traffic.connections)
        expect(count <= unheard, f"{count} connections are left, {unheard} of those unheard")
        left = traffic.in_flight_bytes
        expect(left == 0, f"{left} bytes of requests are not answered")
        for host in self.machines:
            expect(not host.tasks(), f"tasks of clients are left: {host.tasks()}")
        await self.broker.run(node.stop())
        expect(not self.broker.tasks(), f"tasks of the node are left: {self.broker.tasks()}")
        self._is_rebooting = False
        self.broker.crash(power=True)
        self.broker.boot()
        await self._start_node()
        again = await self.machines[0].run(node_clients.read_all(TOPICS))
        expect(again == self._records, "a clean stop has changed what there is")
        node = self.node
        assert node is not None
        await self.broker.run(node.stop())


class Retries(World):
    """Clients ask again, as connections are lost while the disk takes its time; then power goes."""

    TROUBLES_A_SECOND = 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.is_synced = True
        luck = self.broker.random
        self.broker.thread_seconds = lambda: luck.choice((0.002, 0.002, 0.4))

    def _troubles(self) -> dict[Trouble, int]:
        return {self._interrupt: 1}

    def _interrupt(self, machine: Host, seconds: float) -> None:
        for each in self.machines:
            self._reset(each, 0)
        if self.random.random() < 0.7:
            delay = self.random.uniform(0.05, 0.3)
            self.simulation.call_later(delay, self._lose_power, machine, 0)
