"""Clusters to which one kind of thing happens, by seed, where the common world has too little."""

import asyncio
from functools import partial
from typing import Final

from headrace.ids import BrokerId
from tests.sim.cluster_world import VOTERS_MAX, Machine, Trouble, World
from tests.sim.node_checks import expect

FENCED_SECONDS_MAX: Final = 6.0
"""How long a node may be gone, and its controller with it, until it is fenced."""


class Births(World):
    """Nodes lose power while they form a cluster and join it."""

    TROUBLES_A_SECOND = 10.0

    async def _begin(self) -> None:
        late = self.random.choice((0.0, 0.2))
        for machine in self.machines:
            seconds = self.random.uniform(0, late)
            self.simulation.call_later(seconds, self._start_machine, machine)
        await asyncio.sleep(late)
        for _ in range(self.random.randint(3, 12)):
            await asyncio.sleep(self.random.expovariate(self.TROUBLES_A_SECOND))
            # The one with the lowest id forms the cluster, and is alone with it at first.
            machine = self.random.choice((self.machines[0], *self.started))
            if self.random.random() < 0.7:
                self._lose_power_soon(machine, 0)
            else:
                self._lose_power(machine, 0)

    async def _play(self) -> None:
        await self._begin()
        await self._calm()
        await self._check_images()
        await self._end()

    async def _check_images(self) -> None:
        await self._wait_for_equal_images()


class Probes(World):
    """Probes are lost, heartbeats are not: nobody is fenced."""

    def _make_machines(self) -> None:
        for number in range(1, VOTERS_MAX + 1):
            self._add_machine(number, self._seeds(VOTERS_MAX))

    async def _play(self) -> None:
        for machine in self.machines:
            self._start_machine(machine)
        await self._calm()
        for each in self.machines:
            for other in self.machines:
                link = self.simulation.network.link(each.host.name, other.host.name)
                link.loss = 1.0
        await asyncio.sleep(8)
        for node in self.nodes:
            controller = node.cluster.controller
            assert controller is not None
            expect(controller.fencings == 0, f"node {node.node_id} has fenced a node that is well")
        await self._end()


class Outage(World):
    """The controller and another node go and stay away: both are fenced by the next controller."""

    def _make_machines(self) -> None:
        for number in range(1, 6):
            self._add_machine(number, self._seeds(5))
        self._settings["headrace.voters.max"] = "5"

    async def _play(self) -> None:
        for machine in self.machines:
            self._start_machine(machine)
        await self._calm()
        await asyncio.sleep(self.random.uniform(0, 2))
        for _ in range(2):
            controller = self._controller()
            other = self.random.choice([each for each in self.machines if each is not controller])
            await self._expect_fenced(controller, other)
            await self._calm()
        await self._wait_for_equal_images()
        await self._end()

    async def _expect_fenced(self, *gone: Machine) -> None:
        for machine in gone:
            machine.is_kept_down = True
            machine.host.crash(power=self.random.random() < 0.5)
        until = self.simulation.now + FENCED_SECONDS_MAX
        while any(self._is_unfenced(machine) for machine in gone):
            expect(self.simulation.now < until, f"{gone} are gone, but not fenced")
            await asyncio.sleep(0.1)
        for machine in gone:
            machine.is_kept_down = False
            self._boot(machine)

    def _is_unfenced(self, machine: Machine) -> bool:
        for node in self.nodes:
            broker = node.broker.image.broker(BrokerId(machine.node_id))
            if broker is not None and not broker.is_fenced:
                return True
        return False

    def _controller(self) -> Machine:
        return next(
            machine
            for machine in self.machines
            if machine.node is not None and machine.node.cluster.is_controller
        )


class Minority(World):
    """The controller is alone again and again while clients change things through it."""

    TROUBLES_A_SECOND = 2.0
    REQUESTS_A_SECOND = 12.0

    def _make_machines(self) -> None:
        for number in range(1, VOTERS_MAX + 1):
            self._add_machine(number, self._seeds(VOTERS_MAX))

    def _troubles(self) -> dict[Trouble, int]:
        return {self._isolate: 4, self._lose_power: 3, self._reset: 6, self._kill: 2}


class Killings(World):
    """The controller is killed in the middle of what others have sent it, again and again."""

    TROUBLES_A_SECOND = 0.6
    REQUESTS_A_SECOND = 15.0

    def _make_machines(self) -> None:
        for number in range(1, VOTERS_MAX + 1):
            machine = self._add_machine(number, self._seeds(VOTERS_MAX))
            luck = machine.host.random
            machine.host.thread_seconds = partial(luck.uniform, 0, 0.06)

    def _act(self) -> None:
        for machine in self.machines:
            if machine.node is not None and machine.is_ready and machine.node.cluster.is_controller:
                self.random.choice((self._kill, self._lose_power))(machine, 0)


class Lagging(World):
    """Nodes miss what is compacted meanwhile, and get a snapshot in its place."""

    TROUBLES_A_SECOND = 0.8
    REQUESTS_A_SECOND = 15.0

    def _make_machines(self) -> None:
        for number in range(1, VOTERS_MAX + 1):
            self._add_machine(number, self._seeds(VOTERS_MAX))
        self._settings["headrace.raft.snapshot.trigger.bytes"] = "1024"
        self._settings["headrace.raft.kept.entries"] = "0"

    def _act(self) -> None:
        ready = [each for each in self.machines if each.is_ready and each.node is not None]
        machine = self.random.choice(
            [each for each in ready if each.node and not each.node.cluster.is_controller]
            or self.machines
        )
        self._isolate(machine, self.random.uniform(0.8, 1.6))


class Distant(World):
    """Nodes are far from each other, and near to their clients: all but the leader lag."""

    REQUESTS_A_SECOND = 15.0

    def _make_machines(self) -> None:
        for number in range(1, VOTERS_MAX + 1):
            self._add_machine(number, self._seeds(VOTERS_MAX))

    async def _begin(self) -> None:
        await super()._begin()
        for each in self.machines:
            for other in self.machines:
                link = self.simulation.network.link(each.host.name, other.host.name)
                link.seconds_min, link.seconds_max = 0.02, 0.08

    def _troubles(self) -> dict[Trouble, int]:
        return {self._move_clock: 1}
