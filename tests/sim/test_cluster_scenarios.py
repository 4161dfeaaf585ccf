"""Clusters that are set up wrong, or hit where it hurts most: what users see of it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from headrace.client import Address
from headrace.client.connection import open_connection
from headrace.cluster.joining import CannotJoin
from headrace.cluster.registrar import Admission
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.node.node import Node
from headrace.testing.disk import SimulatedDisk
from headrace.testing.hosts import Host
from headrace.testing.simulated_node import NODE_PORT, PORT, make_node
from headrace.testing.simulation import Simulation
from headrace.wire import APIS
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.schema import Message
from tests.sim.cluster_clients import SETTINGS
from tests.sim.cluster_scenarios import Births, Distant, Killings, Lagging, Minority, Outage, Probes
from tests.sim.cluster_world import World
from tests.sim.test_cluster import play

DEADLINE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Stage:
    """Hosts with nodes, to which a test does what it likes."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.nodes: dict[Host, Node] = {}
        self.client = self.simulation.host("10.0.1.1")

    def host(self, number: int) -> Host:
        name = f"10.0.0.{number}"
        return self.simulation.hosts.get(name) or self.simulation.host(name)

    def start(
        self, number: int, seeds: tuple[int, ...], *, node_id: int | None = None, voters: int = 3
    ) -> "asyncio.Future[None]":
        """Begin to start a node on a host; the future is done when it serves."""
        host = self.host(number)
        node = host.call(
            make_node,
            host,
            {
                "node.id": str(number if node_id is None else node_id),
                "headrace.seeds": ",".join(f"10.0.0.{each}:{NODE_PORT}" for each in seeds),
                "headrace.voters.max": str(voters),
                "broker.session.timeout.ms": "2000",
                "broker.heartbeat.interval.ms": "500",
            },
        )
        self.nodes[host] = node
        return host.start(node.start())

    async def start_all(self, *numbers: int, voters: int = 3) -> list[Node]:
        starting = [self.start(number, numbers, voters=voters) for number in numbers]
        for each in starting:
            await each
        await self.until(
            lambda: all(self.knows_voters(self.node(each), len(numbers)) for each in numbers)
        )
        return [self.node(number) for number in numbers]

    def node(self, number: int) -> Node:
        return self.nodes[self.host(number)]

    def knows_voters(self, node: Node, count: int) -> bool:
        return len(node.broker.quorum.driver.state.membership.voters) == count

    def knows_unfenced(self, node: Node, count: int) -> bool:
        return sum(not each.is_fenced for each in node.broker.image.brokers()) == count

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = self.simulation.now + DEADLINE_SECONDS
        while not condition():
            assert self.simulation.now < deadline, "it does not come about"
            await asyncio.sleep(0.05)

    async def ask(self, number: int, body: Message) -> Any:
        async def ask() -> Any:
            connection = await open_connection(Address(f"10.0.0.{number}", PORT), SETTINGS)
            try:
                return await connection.request(body, APIS[body.API_KEY].response)
            finally:
                connection.close()

        return await self.client.run(ask())

    def run(self, play: Callable[["Stage"], Awaitable[None]]) -> None:
        async def main() -> None:
            await play(self)

        self.simulation.run(main())


def test_two_nodes_with_crossed_seeds_form_nothing_and_wait() -> None:
    async def scene(stage: Stage) -> None:
        starting = [stage.start(1, (2,)), stage.start(2, (1,))]
        await asyncio.sleep(20)
        assert not any(each.done() for each in starting)
        assert not any(node.is_ready for node in stage.nodes.values())

    Stage().run(scene)


def test_a_node_id_that_is_taken_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        one, _ = await stage.start_all(1, 2)
        with pytest.raises(CannotJoin, match="node 2"):
            await stage.start(3, (1, 2), node_id=2)
        await asyncio.sleep(5)
        broker = one.broker.image.broker(BrokerId(2))
        assert broker is not None
        assert not broker.is_fenced
        assert broker.endpoints[0].host == "10.0.0.2"

    Stage().run(scene)


def test_a_node_of_another_cluster_stays_out() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start(3, ())
        other = stage.node(3).broker.image.state.cluster_id
        stage.host(3).crash(power=False)
        stage.host(3).boot()
        one, _ = await stage.start_all(1, 2)
        await stage.start(3, (1, 2))
        await asyncio.sleep(10)
        assert stage.node(3).broker.image.state.cluster_id == other
        assert one.broker.image.state.cluster_id != other
        assert set(one.broker.image.state.nodes) == {1, 2}
        assert set(one.broker.quorum.driver.state.membership.members) == {1, 2}

    Stage().run(scene)


@pytest.mark.parametrize("wiped", [1, 3])
def test_a_voter_that_lost_its_folder_is_refused_and_told_what_to_do(wiped: int) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start_all(1, 2, 3)
        host = stage.host(wiped)
        host.crash(power=True)
        host.disk = SimulatedDisk(7)
        host.boot()
        with pytest.raises(CannotJoin, match=f"headrace cluster remove {wiped}"):
            await stage.start(wiped, (1, 2, 3))
        other = stage.node(2).broker.quorum.driver.state
        assert set(other.membership.voters) == {1, 2, 3}

    Stage().run(scene)


def test_a_clock_that_is_years_off_and_then_set_right_keeps_no_node_out() -> None:
    async def scene(stage: Stage) -> None:
        host = stage.host(2)
        host.wall_offset_ns = 10**9 * 86_400 * 365 * 10
        await stage.start_all(1, 2, 3)
        host.crash(power=False)
        host.wall_offset_ns = -(10**9) * 86_400 * 365 * 10
        host.boot()
        await stage.start(2, (1, 2, 3))
        for number in (1, 2, 3):
            await stage.until(partial(stage.knows_unfenced, stage.node(number), 3))

    Stage().run(scene)


def test_a_node_finds_a_leader_that_joined_while_it_was_away() -> None:
    async def scene(stage: Stage) -> None:
        one, two, _ = await stage.start_all(1, 2, 3, voters=5)
        stage.host(3).crash(power=False)
        for node in (one, two):
            controller = node.cluster.controller
            assert controller is not None
            controller._registrar._admission = Admission(node.clock.now_ms)  # without a token
        await stage.start(4, (1, 2, 3), voters=5)
        four = stage.node(4)
        await stage.until(lambda: stage.knows_voters(four, 4))
        while four.broker.quorum.driver.state.leader != 4:
            leader = next(each for each in (one, two) if each.cluster.is_controller)
            leader.broker.quorum.driver.transfer(BrokerId(4))
            await asyncio.sleep(0.5)
        stage.host(3).boot()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await stage.start(3, (1, 2, 3), voters=5)
        await stage.until(lambda: stage.knows_voters(stage.node(3), 4))

    Stage().run(scene)


def test_a_topic_can_be_deleted_through_another_node_as_soon_as_it_is_there() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start_all(1, 2, 3)
        for target in (1, 2):  # which hear late of what 3 changes
            stage.simulation.network.link("10.0.0.3", f"10.0.0.{target}").seconds_min = 0.05
            stage.simulation.network.link("10.0.0.3", f"10.0.0.{target}").seconds_max = 0.1
        for number in range(20):
            name = f"topic-{number}"
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            first, second = 1 + number % 3, 1 + (number + 1) % 3
            create = CreateTopicsRequest(topics=[topic], timeout_ms=4000)
            created = await stage.ask(first, create)
            assert created.topics[0].error_code == ErrorCode.NONE
            delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=4000)
            deleted = await stage.ask(second, delete)
            assert deleted.responses[0].error_code == ErrorCode.NONE, (name, first, second)

    Stage().run(scene)


@pytest.mark.parametrize("scenario", [Births, Distant, Killings, Lagging, Minority, Outage, Probes])
@pytest.mark.timeout(3600)
def test_a_cluster_keeps_its_promises(scenario: type[World], cluster_seeds: range) -> None:
    for seed in cluster_seeds[: max(1, len(cluster_seeds) // 30)]:
        play(seed, scenario)
