"""Two nodes in one loop that serve each other's requests, with one metadata log in two copies.

Each node is a quorum of one, and every entry is proposed to both, so that the images agree. There
is no replication: a partition has one replica, and moves with its log empty.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.client.addresses import parse_bootstrap
from headrace.client.connection import Connection, open_connection
from headrace.client.settings import ClientSettings
from headrace.config import load_settings
from headrace.ids import (
    GROUPS_TOPIC,
    SHARE_STATES_TOPIC,
    TRANSACTIONS_TOPIC,
    BrokerId,
    PartitionIndex,
    TopicId,
    TopicName,
)
from headrace.log import real_disk
from headrace.metadata.ddl import (
    Assignment,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    Ddl,
    DeleteTopic,
    RegisterBroker,
)
from headrace.metadata.entries import SurrogateAlloc
from headrace.node.node import Node
from headrace.replication.partition import Partition
from headrace.wire import APIS, ApiKey
from headrace.wire.schema import Message

A, B = BrokerId(1), BrokerId(2)
NODES = (A, B)
SECONDS_MAX = 60
INTERNAL = (GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATES_TOPIC)


class TwoNodes:
    """Nodes A and B, a connection to each, and what they agree on."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self._data = data
        self._settings = settings
        self._ports: dict[BrokerId, int] = {}
        self.nodes: dict[BrokerId, Node] = {}
        self._connections: dict[BrokerId, Connection] = {}
        self._registrations = 0
        self._topics: list[CreateTopic] = []

    async def start(self) -> None:
        for node_id in NODES:
            await self._start_node(node_id)
        # Two quorums would hand out the same producer ids.
        for _ in range(3):
            wanted = self.nodes[B].broker.image.state.surrogate_hwm + 1
            await self.nodes[B].broker.quorum.propose_for_outcome(SurrogateAlloc(wanted))
        for node_id in NODES:
            await self._introduce(node_id)

    async def _start_node(self, node_id: BrokerId) -> None:
        settings = load_settings(
            overrides={
                "log.dirs": str(self._data / str(node_id)),
                "node.id": str(node_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports.get(node_id, 0)}",
                "headrace.loop.stall.warn.ms": "0",
                **self._settings,
            }
        )
        node = self.nodes[node_id] = Node(settings)
        await node.start()

    async def _introduce(self, node_id: BrokerId) -> None:
        """Register a node at the other one."""
        other = self.other(node_id)
        found = self.nodes[node_id].broker.image.broker(node_id)
        assert found is not None
        if other not in self.nodes:
            return
        quorum = self.nodes[other].broker.quorum
        former = quorum.image.broker(node_id)
        if former is not None and not former.is_fenced:
            await quorum.propose(ChangeBroker(node_id, former.broker_epoch, is_fenced=True))
        self._registrations += 1
        await quorum.propose(
            RegisterBroker(
                node_id,
                incarnation_id=self._registrations.to_bytes(16, "big"),
                endpoints=found.endpoints,
                features=found.features,
                is_fenced=False,
                log_dirs=found.log_dirs,
            )
        )
        self.refresh()

    def refresh(self) -> None:
        """Let the nodes see that registrations changed."""
        for node in self.nodes.values():
            assert node._parts is not None
            node._parts.peers.refresh()

    @staticmethod
    def other(node_id: BrokerId) -> BrokerId:
        return B if node_id == A else A

    async def stop_node(self, node_id: BrokerId) -> None:
        """Stop a node; the other one is not told."""
        if (connection := self._connections.pop(node_id, None)) is not None:
            connection.close()
        node = self.nodes.pop(node_id)
        await node.stop()

    async def start_node(self, node_id: BrokerId) -> None:
        """Start a stopped node again, at another port, and let the other one know."""
        await self._start_node(node_id)
        for topic in self._topics:
            if self.nodes[node_id].broker.image.topic(topic.name) is None:
                await self.nodes[node_id].broker.quorum.propose(topic)
        await self._introduce(node_id)
        await self.settle()

    async def stop(self) -> None:
        for node_id in tuple(self.nodes):
            await self.stop_node(node_id)

    # What both agree on

    async def propose(self, change: Ddl) -> None:
        for node in self.nodes.values():
            await node.broker.quorum.propose(change)
        await self.settle()

    async def settle(self) -> None:
        for node in self.nodes.values():
            await node.broker.replicas.settle()
            broker = node.broker
            for coordinator in (broker.groups, broker.transactions, broker.share_states):
                for shard in coordinator:
                    await shard.loaded()

    async def create(self, name: str, *leaders: BrokerId) -> TopicId:
        """Create a topic whose partitions have these leaders."""
        topic_id = TopicId(name.encode().ljust(16, b".")[:16])
        change = CreateTopic(
            TopicName(name),
            topic_id,
            tuple(Assignment((leader,), (leader,), leader) for leader in leaders),
            {},
        )
        self._topics.append(change)
        await self.propose(change)
        return topic_id

    async def create_internal(self, **leaders: BrokerId) -> None:
        """Create the coordinators' topics; A leads what nothing else is said of."""
        names = dict(zip(("groups", "transactions", "states"), INTERNAL, strict=True))
        for word, name in names.items():
            await self.create(name, leaders.get(word, A))

    async def move(self, name: str, index: int, leader: BrokerId) -> None:
        """Give a partition with an empty log to another node."""
        topic = next(iter(self.nodes.values())).broker.image.topic(TopicName(name))
        assert topic is not None
        change = ChangePartition(
            topic.topic_id, PartitionIndex(index), leader=leader, isr=(leader,), replicas=(leader,)
        )
        await self.propose(change)

    async def delete(self, name: str) -> None:
        self._topics = [each for each in self._topics if each.name != name]
        topic = next(iter(self.nodes.values())).broker.image.topic(TopicName(name))
        assert topic is not None
        await self.propose(DeleteTopic(topic.topic_id, 0))

    # Asking

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    async def connection(self, node_id: BrokerId) -> Connection:
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_open:
            (address,) = parse_bootstrap(self.nodes[node_id].bootstrap)
            connection = await open_connection(address, ClientSettings(client_id="test"))
            self._connections[node_id] = connection
        return connection

    async def ask(self, node_id: BrokerId, request: Message, version: int | None = None) -> Any:
        """Send a request to a node, over its socket; give the response."""
        connection = await self.connection(node_id)
        answer_type = APIS[ApiKey(request.API_KEY)].response
        return await connection.request(request, answer_type, version=version)

    def partition(self, node_id: BrokerId, name: str, index: int = 0) -> Partition:
        found = self.nodes[node_id].broker.replicas.find(TopicName(name), index)
        assert found is not None, f"{name}-{index} is not on node {node_id}"
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is true; the test's own timeout ends it."""
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def two_nodes(data: Path, **settings: str) -> AsyncIterator[TwoNodes]:
    world = TwoNodes(data, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        await world.start()
        yield world
    finally:
        await world.stop()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test, and see that no task is left behind."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await work
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    asyncio.run(bounded())


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: no power is lost here."""
    monkeypatch.setattr(real_disk, "_sync_data", _leave_to_the_kernel)
    monkeypatch.setattr(os, "fsync", _leave_to_the_kernel)


def _leave_to_the_kernel(_: int) -> None:
    """Sync nothing."""
