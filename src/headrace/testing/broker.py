"""A real broker in a test's own process.

    with TestBroker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "one", "two")
        assert [record.value for record in broker.consume("orders")] == [b"one", b"two"]

It runs in a thread with its own loop, so that clients of any kind may block the test's
thread, or run on the test's loop. `headrace.testing.plugin` offers it as pytest fixtures.
"""

import asyncio
import concurrent.futures
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import uvloop

from headrace.client import Admin, Consumer, Producer, Start
from headrace.client.configs import Resource, ResourceType
from headrace.client.fetched import ConsumedRecord
from headrace.client.producer import HeadersLike
from headrace.config import load_settings
from headrace.loop.clock import Clock
from headrace.node.node import Node
from headrace.testing.faults import Faults

WAIT_SECONDS_MAX: Final = 30
"""The timeout of every call to the broker."""
DEFAULTS: Final = {
    "http.listen": "",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # Groups start, and continue after a change, within milliseconds.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "1",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "1",
    # Small internal topics: the first group, transaction and queue create them.
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # A test that connects a hundred times in a row holds the interpreter meanwhile; what does not
    # fit into the backlog waits a second to be sent again.
    "socket.listen.backlog.size": "1024",
    # The test's own work would count as a stall of the broker's loop.
    "headrace.loop.stall.warn.ms": "0",
}
"""Settings that make tests fast. docs/testing.md lists them with Kafka's defaults."""

T = TypeVar("T")
Value = bytes | str | None
Row = Value | tuple[Value, Value]
"""A value, or a key with its value."""


class TestBroker:
    """One node on 127.0.0.1 with its own directory. Methods may be called from any thread."""

    __test__ = False  # not a test class, despite its name

    def __init__(
        self, folder: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Use `folder` for the data, else a temporary one that is removed with the broker.

        `settings` use Kafka's names, as in server.properties, and override `DEFAULTS`.
        """
        self.faults = Faults()
        self.clock = TestClock(self)
        self._is_temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="headrace-"))
        self._settings = {**_with_defaults(settings or {}), "log.dirs": str(self.folder)}
        self._life: _Life | None = None

    # Life

    def start(self) -> None:
        """Start serving; after a stop or crash, at the same address."""
        if self._life is not None:
            raise RuntimeError("this broker runs already")
        settings = load_settings(None, {}, self._settings)
        life = _Life(Node(settings, clock=self.clock.of_node))
        try:
            life.run(life.node.start())
        except BaseException:
            life.end()
            raise
        self._life = life
        self.faults.attach(life.node.dispatcher)
        names = (listener.name for listener in life.node.listeners)
        ports = (f"{each.host}:{each.port}" for each in life.node.listeners)
        self._settings["listeners"] = ",".join(map("{}://{}".format, names, ports))

    def stop(self) -> None:
        """Shut down cleanly: drain, flush, mark as clean. Do nothing if not running."""
        self._end(Node.stop)

    def restart(self) -> None:
        """Stop and start again on the same data, at the same address."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Stop as if by kill -9: nothing is flushed, no client is told. Call `start` afterwards.

        Data that the operating system had accepted is there at the next start, as after a kill;
        data that only this process had is lost.
        """
        life, self._life = self._life, None
        if life is None:
            raise RuntimeError("this broker does not run")
        life.run(_crash(life.node))
        life.end()

    def close(self) -> None:
        """Stop, and remove the data if the folder is temporary."""
        try:
            self._end(_drain_and_crash if self._is_temporary else Node.stop)
        finally:
            if self._is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, end: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.call(self.faults.close_held)
            try:
                life.run(end(life.node))
            finally:
                life.end()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # What it knows

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""
        return self.node.bootstrap

    @property
    def node(self) -> Node:
        """The node itself; belongs to its own thread, see `run`."""
        return self._running.node

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and return its result."""
        if self._life is None:
            work.close()
        return self._running.run(work)

    @property
    def _running(self) -> "_Life":
        if self._life is None:
            raise RuntimeError("this broker does not run")
        return self._life

    # Topics and records

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, ready to use on return; return its name."""
        self.run(self._create_topic(name, partitions, configs or {}))
        return name

    def produce(
        self,
        topic: str,
        *rows: Row,
        partition: int | None = None,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> list[int]:
        """Append records, acknowledged when this returns; return their offsets.

        A record is a value or a pair of key and value, text or bytes. All of them have the same
        headers, pairs or a mapping, and the same timestamp, which is now if it is not given.
        """
        headers = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        return self.run(self._produce(topic, rows, partition, headers, timestamp_ms))

    def consume(self, topic: str, start: int | None = None) -> list[ConsumedRecord]:
        """Return a topic's current records, partition by partition, from an offset or the start.

        Committed records only: neither those of aborted transactions, nor anything after the
        first record of an open one.
        """
        records = self.run(self._consume(topic, Start.BEGINNING if start is None else start))
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        """Set configs of a group by Kafka's names, such as `share.auto.offset.reset`.

        The group need not exist yet.
        """
        self.run(self._configure_group(group, configs))

    async def _configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.alter_configs(Resource(ResourceType.GROUP, group), set=configs)

    async def _create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(name, partitions, configs=configs)

    async def _produce(
        self,
        topic: str,
        rows: Iterable[Row],
        partition: int | None,
        headers: HeadersLike,
        timestamp_ms: int | None,
    ) -> list[int]:
        async with Producer(self.bootstrap) as producer:
            deliveries = []
            for row in rows:
                key, value = row if isinstance(row, tuple) else (None, row)
                delivery = await producer.send(
                    topic, value, key, partition, headers=headers, timestamp_ms=timestamp_ms
                )
                deliveries.append(delivery)
            return [(await delivery).offset for delivery in deliveries]

    async def _consume(self, topic: str, start: int | Start) -> list[ConsumedRecord]:
        async with Consumer(self.bootstrap, read_committed=True) as consumer:
            await consumer.assign(topic, start, until_end=True)
            return [record async for record in consumer]


def _with_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings completed with the defaults.

    If settings bound heartbeat intervals, our own intervals are not added: they may be out of
    bounds.
    """
    defaults = dict(DEFAULTS)
    for kind in ("consumer", "share", "streams"):
        bounds = (f"group.{kind}.{bound}.heartbeat.interval.ms" for bound in ("min", "max"))
        if any(name in settings for name in bounds):
            del defaults[f"group.{kind}.heartbeat.interval.ms"]
    return {**defaults, **settings}


class TestClock:
    """The broker's wall clock, used by records, retention and sessions."""

    __test__ = False

    def __init__(self, broker: TestBroker) -> None:
        self._broker = broker
        self.of_node = Clock()

    def now_ms(self) -> int:
        """Return the broker's time in ms since 1970."""
        return self.of_node.now_ms()

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward; work that becomes due is done on return."""
        self._broker.run(_advance(self._broker.node, milliseconds))


class _Life:
    """A node in a thread with a loop, from start to stop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headrace", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the broker's own loop, which cannot wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(WAIT_SECONDS_MAX)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"the broker took more than {WAIT_SECONDS_MAX} s") from None

    def call(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self.run(call())

    def end(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            asyncio.set_event_loop(None)
            self._loop.close()


async def _drain_and_crash(node: Node) -> None:
    """Stop cleanly for clients, without a flush: the data is not needed any more."""
    await node.drain()
    await _crash(node)


async def _crash(node: Node) -> None:
    node.crash()
    # Both only stop writers: a killed process has no threads left.
    await node.broker.quorum.stop()
    await _cancel_all()


async def _advance(node: Node, milliseconds: int) -> None:
    node.clock.advance(milliseconds)
    upkeep = node.upkeep
    await upkeep.run_retention()
    await upkeep.run_compaction()
    await upkeep.run_producer_expiry()
    await upkeep.run_flushes()
    await upkeep.run_removal()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
