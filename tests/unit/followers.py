"""A follower of a running node: it fetches as another broker would, and tests say what it has."""

import asyncio
from typing import Any

from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import Assignment, ChangeBroker, CreateTopic, RegisterBroker
from headrace.metadata.state import Endpoint
from headrace.records.builder import BatchBuilder
from headrace.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.unit.harness import FakePeer, Harness

NOW_MS = 1_700_000_000_000
LATEST = 18
MAX_WAIT_MS = 60_000


def register_broker(harness: Harness, node: int, *, rack: str | None = None, life: int = 1) -> int:
    """Register a broker that is in the metadata only; return its epoch."""
    endpoint = Endpoint("PLAINTEXT", f"host{node}", 9000 + node, 0)
    incarnation_id = bytes([node, life]) * 8
    entry = RegisterBroker(BrokerId(node), incarnation_id, (endpoint,), rack, is_fenced=False)
    former = harness.broker.image.broker(BrokerId(node))
    if former is not None:
        fencing = ChangeBroker(BrokerId(node), former.broker_epoch, is_fenced=True)
        harness.run(harness.broker.quorum.propose(fencing))
    harness.run(harness.broker.quorum.propose(entry))
    broker = harness.broker.image.broker(BrokerId(node))
    assert broker is not None
    return broker.broker_epoch


def create_replicated(
    harness: Harness,
    name: str,
    replicas: tuple[int, ...],
    *,
    partitions: int = 1,
    isr: tuple[int, ...] | None = None,
    leader: int = 1,
    configs: dict[str, str] | None = None,
) -> TopicId:
    """Create a topic of which each partition has the same replicas."""
    topic_id = TopicId(name.encode().ljust(16, b".")[:16])
    nodes = tuple(map(BrokerId, replicas))
    in_sync = nodes if isr is None else tuple(map(BrokerId, isr))
    assignment = Assignment(nodes, in_sync, BrokerId(leader))

    async def create() -> None:
        entry = CreateTopic(TopicName(name), topic_id, (assignment,) * partitions, configs or {})
        await harness.broker.quorum.propose(entry)
        await harness.broker.replicas.settle()

    harness.run(create())
    return topic_id


def a_batch(*values: bytes, **identity: Any) -> memoryview:
    builder = BatchBuilder()
    for value in values:
        builder.append(NOW_MS, b"key", value)
    return memoryview(builder.build(**identity))


def append(harness: Harness, topic: str, *values: bytes, index: int = 0) -> None:
    async def run() -> None:
        harness.partition(topic, index).append(a_batch(*values), NOW_MS, needs_replicas=False)

    harness.run(run())


class Follower:
    """A broker that fetches in a session, on a connection of its own."""

    def __init__(self, harness: Harness, node: int, broker_epoch: int, topic_id: bytes) -> None:
        self.harness = harness
        self.node = node
        self.broker_epoch = broker_epoch
        self.topic_id = topic_id
        self.session_id = 0
        self.session_epoch = 0
        self.peer = FakePeer(harness.node.dispatcher)

    def request(
        self, offsets: dict[int, int] | None = None, forgotten: tuple[int, ...] = (), **fields: Any
    ) -> FetchRequest:
        """Return a request that names partitions at offsets."""
        asked = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=fields.get("partition_max_bytes", 1_000_000),
                current_leader_epoch=fields.get("epoch", 0),
                last_fetched_epoch=fields.get("last_epoch", -1),
                log_start_offset=fields.get("start", 0),
            )
            for index, offset in (offsets or {}).items()
        ]
        topic_id = fields.get("topic_id", self.topic_id)
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=fields.get("node", self.node),
                replica_epoch=fields.get("broker_epoch", self.broker_epoch),
            ),
            max_wait_ms=fields.get("max_wait_ms", 0),
            min_bytes=fields.get("min_bytes", 1),
            max_bytes=fields.get("max_bytes", 10_000_000),
            session_id=fields.get("session_id", self.session_id),
            session_epoch=fields.get("session_epoch", self.session_epoch),
            topics=[FetchTopic(topic_id=topic_id, partitions=asked)] if asked else [],
            forgotten_topics_data=(
                [ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))] if forgotten else []
            ),
        )

    async def ask(self, offsets: dict[int, int] | None = None, **fields: Any) -> Any:
        """Return the response, and go on with the session."""
        version = fields.pop("version", LATEST)
        request = self.request(offsets, **fields)
        response = await self.harness.ask_async(request, version, self.peer)
        if not response.error_code and request.session_epoch != -1:
            self.session_id = response.session_id
            self.session_epoch = request.session_epoch + 1
        return response

    def fetch(self, offsets: dict[int, int] | None = None, **fields: Any) -> dict[int, Any]:
        """Return the rows of the response."""
        return rows(self.harness.run(self.ask(offsets, **fields)))

    async def wait(self, offsets: dict[int, int] | None = None, **fields: Any) -> Any:
        """Return a fetch that waits for what is not there."""
        fields = {"max_wait_ms": MAX_WAIT_MS, **fields}
        waiting = asyncio.ensure_future(self.ask(offsets, **fields))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        return waiting


def rows(response: Any) -> dict[int, Any]:
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}
