"""Nodes on hosts of a simulation."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from headrace.client import Admin, ClientSettings, Consumer, NotReachable, Producer, Start
from headrace.server.listeners import CannotListen
from headrace.testing.disk import UNLIMITED_BYTES
from headrace.testing.hosts import Host
from headrace.testing.simulated_node import start_node
from headrace.testing.simulation import Simulation

T = TypeVar("T")
SETTINGS = {"log.flush.interval.messages": "1"}
IMPATIENT = ClientSettings(connect_timeout_ms=500, api_timeout_ms=2_000)


class World:
    """Some nodes, each a cluster of its own, and a host for clients."""

    def __init__(self, nodes: int = 1, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.brokers = [self.simulation.host(f"10.0.0.{number + 1}") for number in range(nodes)]
        self.client = self.simulation.host("10.0.1.1")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.simulation.run(self._run(main))

    async def _run(self, main: Coroutine[Any, Any, T]) -> T:
        for broker in self.brokers:
            await broker.run(start_node(broker, SETTINGS))
        return await main

    async def produce(self, broker: Host, *values: str) -> None:
        async def send() -> None:
            async with Producer(f"{broker}:9092", IMPATIENT) as producer:
                for value in values:
                    await producer.deliver("orders", value)

        await self.client.run(send())

    async def consume(self, broker: Host) -> list[bytes | None]:
        async def read() -> list[bytes | None]:
            async with Consumer(f"{broker}:9092", IMPATIENT) as consumer:
                await consumer.assign("orders", Start.BEGINNING, until_end=True)
                return [record.value async for record in consumer]

        return await self.client.run(read())


def test_what_was_acknowledged_is_there_after_a_loss_of_power() -> None:
    world = World()
    (broker,) = world.brokers

    async def main() -> list[bytes | None]:
        await world.produce(broker, "one", "two")
        broker.crash(power=True)
        broker.boot()
        await broker.run(start_node(broker, SETTINGS))
        return await world.consume(broker)

    assert world.run(main()) == [b"one", b"two"]


def test_nodes_of_several_hosts_run_beside_each_other_and_crash_alone() -> None:
    world = World(nodes=3)
    first, second, third = world.brokers

    async def main() -> None:
        for broker in world.brokers:
            await world.produce(broker, broker.name)
        second.crash()
        with pytest.raises(NotReachable):
            await world.produce(second, "nobody is there")
        await world.produce(third, "more")
        assert await world.consume(first) == [first.name.encode()]
        assert await world.consume(third) == [third.name.encode(), b"more"]
        second.boot()
        await second.run(start_node(second, SETTINGS))
        assert await world.consume(second) == [second.name.encode()]

    world.run(main())


def test_a_node_that_stops_leaves_no_task_and_frees_its_address() -> None:
    simulation = Simulation(1)
    broker = simulation.host("10.0.0.1")

    async def main() -> None:
        node = await broker.run(start_node(broker))
        await broker.run(node.stop())
        assert broker.tasks() == []
        node = await broker.run(start_node(broker))
        await broker.run(node.stop())

    simulation.run(main())


def test_an_address_in_use_is_refused() -> None:
    simulation = Simulation(1)
    broker = simulation.host("10.0.0.1")

    async def main() -> None:
        loop = broker.loop
        assert loop is not None
        await broker.run(loop.create_server(asyncio.Protocol, "10.0.0.1", 9092))
        with pytest.raises(CannotListen, match="9092"):
            await broker.run(start_node(broker))

    simulation.run(main())


def test_the_size_of_a_disk_is_that_of_the_simulated_one() -> None:
    world = World()
    (broker,) = world.brokers

    async def ask() -> int:
        async with Admin(f"{broker}:9092") as admin:
            ((log_dir,),) = (await admin.describe_log_dirs()).values()
            return log_dir.total_bytes

    async def main() -> int:
        return await world.client.run(ask())

    assert world.run(main()) == UNLIMITED_BYTES
