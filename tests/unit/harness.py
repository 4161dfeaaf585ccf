"""A node without clients: requests go straight to its dispatcher, answers come back decoded."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any, TypeVar

import pytest

from headrace.config import load_settings
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.log import real_disk
from headrace.loop.clock import Clock
from headrace.metadata.ddl import Assignment, CreateTopic
from headrace.metadata.state import Topic
from headrace.node.node import Node
from headrace.replication.partition import Partition
from headrace.security.authentication import Authentication
from headrace.security.principals import ANONYMOUS
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire import ApiKey, encode, read_response
from headrace.wire.codec import decode
from headrace.wire.schema import Message

ANSWER_SECONDS_MAX = 10
T = TypeVar("T")


class FakePeer:
    """A connection that remembers the answers instead of sending them."""

    def __init__(self, dispatcher: Any, listener: str = "PLAINTEXT") -> None:
        self.listener = listener
        self.address = "127.0.0.1:1"
        self.host = "127.0.0.1"
        self.principal = ANONYMOUS
        self.authentication: Authentication | None = None
        self.is_expired = False
        self.failure_delay_ms = 0
        self.client_software = ""
        self.is_closed = False
        self.closed_because = ""
        self.muted_ms: list[int] = []
        """For how long quotas have held it back, each time."""
        self.on_close: dict[Callable[[], None], None] = {}
        self._dispatcher = dispatcher
        self._answered: dict[int, asyncio.Future[None]] = {}

    def expect(self, request: Request) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        self._answered[id(request)] = future
        return future

    def on_answered(self, request: Request) -> None:
        self._answered[id(request)].set_result(None)

    def on_released(self) -> None:
        """Nothing waits behind a request of a test."""

    def on_failed(self, request: Request, error: Exception) -> None:
        self._dispatcher.fail(request, error)

    def close(self, reason: str) -> None:
        self.is_closed = True
        self.closed_because = reason
        for callback in tuple(self.on_close):
            callback()

    def mute(self, duration_ms: int, left_ms: Callable[[], int] | None = None) -> None:
        self.muted_ms.append(duration_ms)

    def finish(self, reason: str) -> None:
        self.close(reason)

    def on_authenticated(self) -> None:
        assert self.authentication is not None
        self.principal = self.authentication.principal or ""


class Harness:
    """One node on a loop of its own, driven from synchronous tests."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self._runner = asyncio.Runner()
        self._data = data
        self._settings = settings
        self.client_id = "test"
        self.clock = Clock()
        self.start()

    def start(self) -> None:
        overrides = {
            "log.dirs": str(self._data),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headrace.loop.stall.warn.ms": "0",  # the loop runs only while a test asks something
            **self._settings,
        }
        self.node = Node(load_settings(overrides=overrides), clock=self.clock)
        self.run(self.node.start())
        self.peer = FakePeer(self.node.dispatcher)

    def restart(self) -> None:
        """Stop well, and start again on the same files."""
        self.run(self.node.stop())
        self.start()

    @property
    def broker(self) -> Broker:
        return self.node.broker

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, body: Message, version: int) -> Any:
        """Send a request as its bytes would be read; give the answer as a client reads it.

        None if there is no answer to it.
        """
        return self.run(self.ask_async(body, version))

    async def ask_async(self, body: Message, version: int, peer: FakePeer | None = None) -> Any:
        peer = peer or self.peer
        # Through bytes, so that memory is writable and every field has what its version has.
        data = memoryview(bytearray(encode(body, version)))
        decoded = decode(type(body), data, version)
        request = Request(
            peer, body.API_KEY, version, 7, self.client_id, decoded, len(data), monotonic_ns()
        )
        answered = peer.expect(request)
        self.node.dispatcher.dispatch(request)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await answered
        if not request.parts:
            return None
        frame = b"".join(request.parts)[4:]
        return read_response(frame, ApiKey(body.API_KEY), version)[1]

    def create_topic(
        self, name: str, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> TopicId:
        """Create a topic that this node leads, without any handler."""
        topic_id = TopicId(name.encode().ljust(16, b".")[:16])
        me = BrokerId(self.broker.node_id)
        assignment = Assignment((me,), (me,), me)

        async def create() -> None:
            await self.broker.quorum.propose(
                CreateTopic(TopicName(name), topic_id, (assignment,) * partitions, configs or {})
            )
            await self.broker.replicas.settle()

        self.run(create())
        return topic_id

    def partition(self, topic: str, index: int = 0) -> Partition:
        """Return a partition that is on the node."""
        found = self.broker.replicas.find(TopicName(topic), index)
        assert found is not None, f"{topic}-{index} is not here"
        return found

    def topic(self, name: str) -> Topic:
        """Return a topic of the image."""
        found = self.broker.image.topic(TopicName(name))
        assert found is not None, f"there is no topic {name}"
        return found

    def has_topic(self, name: str) -> bool:
        return self.broker.image.topic(TopicName(name)) is not None

    def has_partition(self, topic: str, index: int = 0) -> bool:
        return self.broker.replicas.find(TopicName(topic), index) is not None

    def close(self) -> None:
        self.run(self.node.stop())
        self._runner.close()


@pytest.fixture
def harness(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Harness]:
    """A running node; `@pytest.mark.parametrize("harness", [{...}], indirect=True)` sets it."""
    # No power is lost here, and a node waits for the disk nine tenths of its start and its stop.
    monkeypatch.setattr(real_disk, "_sync_data", _leave_to_the_kernel)
    monkeypatch.setattr(os, "fsync", _leave_to_the_kernel)
    harness = Harness(tmp_path / "data", getattr(request, "param", {}))
    yield harness
    harness.close()


class ColdFiles:
    """Files of logs that are not in the page cache until somebody waits for the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits = 0
        """How often somebody waited."""
        self._cold: set[str] = set()
        read, read_cached = real_disk.RealFile.read, real_disk.RealFile.read_cached

        def wait(file: real_disk.RealFile, position: int, count: int) -> Any:
            self.waits += file.path in self._cold
            self._cold.discard(file.path)
            return read(file, position, count)

        def look(file: real_disk.RealFile, position: int, count: int) -> Any:
            return None if file.path in self._cold else read_cached(file, position, count)

        monkeypatch.setattr(real_disk.RealFile, "read", wait)
        monkeypatch.setattr(real_disk.RealFile, "read_cached", look)

    def drop(self, harness: Harness, topic: str, *indexes: int) -> None:
        """Have the records of some partitions dropped from the page cache."""
        for index in indexes:
            log = harness.partition(topic, index).log
            self._cold.update(segment.file.path for segment in log.segments)


@pytest.fixture
def cold_files(monkeypatch: pytest.MonkeyPatch) -> ColdFiles:
    return ColdFiles(monkeypatch)


def _leave_to_the_kernel(descriptor: int) -> None:
    """Sync nothing."""
