"""A cluster in one loop: nodes A and B have partitions, and C has only a vote.

Each partition has one replica. So a topic says where everything is, and a node that stops takes its
partitions along; the metadata log goes on with the other two.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
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
    ChangePartition,
    CreateTopic,
    Ddl,
    DeleteTopic,
)
from headrace.node.node import Node
from headrace.raft.errors import NotLeader, RaftError
from headrace.replication.partition import Partition
from headrace.wire import APIS, ApiKey
from headrace.wire.schema import Message

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
SECONDS_MAX = 100
INTERNAL = (GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATES_TOPIC)


class TwoNodes:
    """Nodes A and B, a connection to each, and what they agree on."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self._data = data
        self._settings = settings
        self._seed = ""
        self.nodes: dict[BrokerId, Node] = {}
        self._connections: dict[BrokerId, Connection] = {}

    async def start(self) -> None:
        await self._start_node(C)
        self._seed = f"127.0.0.1:{self.nodes[C].node_port}"
        await asyncio.gather(self._start_node(A), self._start_node(B))
        await self.settle()

    async def _start_node(self, node_id: BrokerId) -> None:
        settings = load_settings(
            overrides={
                "log.dirs": str(self._data / str(node_id)),
                "node.id": str(node_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                # Internal topics stay where a test puts them.
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "share.coordinator.state.topic.replication.factor": "1",
                "headrace.seeds": self._seed,
                "headrace.loop.stall.warn.ms": "0",
                **self._settings,
            }
        )
        node = self.nodes[node_id] = Node(settings)
        await node.start()

    @staticmethod
    def other(node_id: BrokerId) -> BrokerId:
        return B if node_id == A else A

    async def stop_node(self, node_id: BrokerId) -> None:
        if (connection := self._connections.pop(node_id, None)) is not None:
            connection.close()
        await self.nodes.pop(node_id).stop()

    async def start_node(self, node_id: BrokerId) -> None:
        """Start a stopped node again; it has another port then."""
        await self._start_node(node_id)
        await self.settle()

    async def stop(self) -> None:
        for node_id in tuple(self.nodes):
            await self.stop_node(node_id)

    # What both agree on

    async def propose(self, change: Ddl) -> None:
        """Propose a change, and wait until all nodes go by it."""
        for _ in range(100):
            try:
                await self.nodes[C].broker.quorum.propose(change)
                break
            except NotLeader:
                await asyncio.sleep(0.05)
        await self.settle()

    async def settle(self) -> None:
        """Wait until all nodes have applied what was committed, and serve what they lead."""
        for node in self.nodes.values():
            broker = node.broker
            while True:
                try:
                    await broker.quorum.read()
                    break
                except RaftError:  # it has no leader for a moment
                    await asyncio.sleep(0.01)
            await broker.replicas.settle()
            for coordinator in (broker.groups, broker.transactions, broker.share_states):
                for shard in coordinator:
                    await shard.loaded()

    async def create(self, name: str, *leaders: BrokerId) -> TopicId:
        """Create a topic whose partitions have these leaders."""
        topic_id = TopicId(name.encode().ljust(16, b".")[:16])
        assignments = tuple(Assignment((leader,), (leader,), leader) for leader in leaders)
        await self.propose(CreateTopic(TopicName(name), topic_id, assignments, {}))
        return topic_id

    async def create_internal(self, **leaders: BrokerId) -> None:
        """Create the coordinators' topics; A leads what nothing else is said of."""
        names = dict(zip(("groups", "transactions", "states"), INTERNAL, strict=True))
        for word, name in names.items():
            await self.create(name, leaders.get(word, A))

    async def move(self, name: str, index: int, leader: BrokerId) -> None:
        """Give a partition with an empty log to another node."""
        topic = self.nodes[C].broker.image.topic(TopicName(name))
        assert topic is not None
        change = ChangePartition(
            topic.topic_id, PartitionIndex(index), leader=leader, isr=(leader,), replicas=(leader,)
        )
        await self.propose(change)

    async def delete(self, name: str) -> None:
        topic = self.nodes[C].broker.image.topic(TopicName(name))
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
