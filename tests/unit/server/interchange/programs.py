"""A program that speaks seed 002 to a node."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

from headrace.cluster.protocol import (
    Acks,
    ClusterRequest,
    FrameReader,
    MetadataCommand,
    PartitionName,
    RequestHeader,
    decode_response,
    encode_request,
    requests,
)
from headrace.ids import PartitionIndex, TopicName
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.server.interchange import Interchange
from headrace.testing.broker import TestBroker
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000
SECONDS_MAX = 20
T = TypeVar("T")


class Program:
    """One connection; requests may be sent before earlier ones have a response."""

    def __init__(self, port: int, source: str = "1") -> None:
        self._port = port
        self._ids = count(1)
        self._frames = FrameReader()
        self._received: list[Any] = []
        self.source = source

    async def __aenter__(self) -> "Program":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()

    def header(self, timeout_ms: int = 10_000, version: int = 1) -> RequestHeader:
        return RequestHeader(
            version=version,
            correlation_id=next(self._ids),
            source=self.source,
            timeout_ms=timeout_ms,
        )

    def send(self, *asked: ClusterRequest) -> None:
        for each in asked:
            self.send_bytes(encode_request(each))

    def send_bytes(self, message: bytes) -> None:
        self.writer.write(len(message).to_bytes(4, "big") + message)

    async def receive(self) -> Any:
        """Return the next response; ConnectionError if there is none."""
        async with asyncio.timeout(SECONDS_MAX):
            while not self._received:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise ConnectionError("the node has closed the connection")
                self._received += map(decode_response, self._frames.feed(data))
        return self._received.pop(0)

    async def ask(self, asked: ClusterRequest) -> Any:
        self.send(asked)
        response = await self.receive()
        assert response.header.correlation_id == asked.header.correlation_id
        return response

    async def is_closed(self) -> bool:
        """Return whether the node closes the connection without another response."""
        try:
            await self.receive()
        except ConnectionError:
            return True
        return False

    # The seven requests

    def append(
        self,
        records: bytes,
        acks: Acks = Acks.ALL,
        *,
        topic: str = "orders",
        index: int = 0,
        timeout_ms: int = 10_000,
    ) -> requests.Append:
        return requests.Append(self.header(timeout_ms), partition(topic, index), records, acks)

    def fetch(
        self, offset: int = 0, max_bytes: int = 1 << 20, *, topic: str = "orders", index: int = 0
    ) -> requests.Fetch:
        return requests.Fetch(self.header(), partition(topic, index), offset, max_bytes)

    def propose(self, command: MetadataCommand, timeout_ms: int = 10_000) -> Any:
        return requests.ProposeMetadata(self.header(timeout_ms), command)

    def metadata(self, *topics: str) -> requests.FetchMetadata:
        return requests.FetchMetadata(self.header(), topics or None)

    def replica_state(self, end: int, high_watermark: int = 0, topic: str = "orders") -> Any:
        return requests.ReplicaState(self.header(), partition(topic), end, high_watermark)

    def elect(self, leader: str | None = None, topic: str = "orders", index: int = 0) -> Any:
        return requests.ElectLeader(self.header(), partition(topic, index), leader)

    def heartbeat(self, *led: tuple[str, int], epoch: int = 0) -> requests.Heartbeat:
        return requests.Heartbeat(
            self.header(),
            tuple(requests.HeartbeatPartition(partition(*each), epoch, 0) for each in led),
        )


def partition(topic: str = "orders", index: int = 0) -> PartitionName:
    return PartitionName(TopicName(topic), PartitionIndex(index))


def batch(
    *values: bytes,
    compression: Compression = Compression.NONE,
    key: bytes | None = b"k",
    **header: Any,
) -> bytes:
    builder = BatchBuilder(compression)
    for value in values or (b"v",):
        builder.append(NOW_MS, key, value)
    return bytes(builder.build(**header))


Served = Harness | TestBroker


def interchange_of(harness: Served) -> Interchange:
    node = harness.node
    return Interchange(node.broker, node.dispatcher, node.traffic, node.listeners[0].name)


def talk(harness: Served, work: Callable[[Program], Awaitable[T]], source: str | None = None) -> T:
    """Return what a conversation of one program with the node comes to."""

    async def run() -> T:
        interchange = interchange_of(harness)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(interchange.make_connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with Program(port, source or str(harness.node.node_id)) as program:
                return await work(program)
        finally:
            server.close()
            await interchange.close(drain_ms=5000)
            assert interchange.connection_count == 0

    return harness.run(run())


def ask(harness: Served, make: Callable[[Program], ClusterRequest], **options: Any) -> Any:
    """Return the response to one request."""

    async def work(program: Program) -> Any:
        return await program.ask(make(program))

    return talk(harness, work, **options)
