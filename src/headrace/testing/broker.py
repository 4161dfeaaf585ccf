"""A real broker in a test's own process.

    with TestBroker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "one", "two")
        assert [record.value for record in broker.consume("orders")] == [b"one", b"two"]

It runs in a thread with its own loop, so that clients of any kind may block the test's
thread, or run on the test's loop. `headrace.testing.plugin` offers it as pytest fixtures.
"""

import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from headrace.config import load_settings
from headrace.loop.clock import Clock
from headrace.node.node import Node
from headrace.remote.store import ObjectStore
from headrace.testing.conveniences import Conveniences
from headrace.testing.faults import Faults
from headrace.testing.held_ports import HeldPorts
from headrace.testing.life import Life, crash

DEFAULTS: Final = {
    "http.listen": "",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "headrace.node.listen": "127.0.0.1:0",
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
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # A test that connects a hundred times in a row holds the interpreter meanwhile; what does not
    # fit into the backlog waits a second to be sent again.
    "socket.listen.backlog.size": "1024",
    # The test's own work would count as a stall of the broker's loop.
    "headrace.loop.stall.warn.ms": "0",
}
"""Settings that make tests fast. docs/testing.md lists them with Kafka's defaults."""

TIER: Final = {
    "remote.log.storage.system.enable": "true",
    "headrace.tier.store": "memory:///",
    # Segments move at once.
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
}
"""Settings of a broker that is given a store."""

T = TypeVar("T")


class TestBroker(Conveniences):
    """One node on 127.0.0.1 with its own directory. Methods may be called from any thread."""

    __test__ = False  # not a test class, despite its name

    def __init__(
        self,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        store: ObjectStore | None = None,
    ) -> None:
        """Use `folder` for the data, else a temporary one that is removed with the broker.

        `settings` use Kafka's names, as in server.properties, and override `DEFAULTS`. With a
        `store`, such as a `SimulatedStore`, the broker has a tier, and that is where it is.
        """
        self._store = store
        self.faults = Faults()
        self.clock = TestClock(self)
        self._is_temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="headrace-"))
        tier = {} if store is None else TIER
        self._settings = {
            **_with_defaults({**tier, **(settings or {})}),
            "log.dirs": str(self.folder),
        }
        self._life: Life | None = None
        self._addresses: list[tuple[str, int]] = []
        """Where it listens, or did before it went down."""
        self._held = HeldPorts()

    # Life

    def start(self) -> None:
        """Start serving; after a stop or crash, at the same address."""
        if self._life is not None:
            raise RuntimeError("this broker runs already")
        settings = load_settings(None, {}, self._settings)
        life = Life(Node(settings, clock=self.clock.of_node, store=self._store))
        try:
            life.run(life.node.start())
        except BaseException:
            life.end()
            raise
        self._life = life
        self.faults.attach(life.node.dispatcher)
        listeners = life.node.listeners
        self._settings["listeners"] = ",".join(
            f"{each.name}://{each.host}:{each.port}" for each in listeners
        )
        host = self._settings["headrace.node.listen"].rpartition(":")[0]
        self._settings["headrace.node.listen"] = f"{host}:{life.node.node_port}"
        self._held.release()
        self._addresses = [
            *((each.host, each.port) for each in listeners),
            (host.strip("[]"), life.node.node_port),
        ]

    def stop(self) -> None:
        """Shut down cleanly: drain, flush, mark as clean. Do nothing if not running."""
        if self.is_running:
            self._end(Node.stop)
            self._held.hold(self._addresses)

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
        life.resume()
        life.run(crash(life.node))
        life.end()
        self._held.hold(self._addresses)

    def pause(self) -> None:
        """Stop the broker until `resume`, as if by SIGSTOP."""
        self._running.pause()

    def resume(self) -> None:
        self._running.resume()

    def close(self) -> None:
        """Stop, and remove the data if the folder is temporary."""
        try:
            self._end(_drain_and_crash if self._is_temporary else Node.stop)
        finally:
            self._held.release()
            if self._is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, end: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.resume()
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

    @property
    def is_running(self) -> bool:
        return self._life is not None

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the next start."""
        return dict(self._settings)

    def set(self, name: str, text: str) -> None:
        """Change a setting from the next start on."""
        self._settings[name] = text

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the broker's loop."""
        self._running.call(function)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and return its result."""
        if self._life is None:
            work.close()
        return self._running.run(work)

    @property
    def _running(self) -> "Life":
        if self._life is None:
            raise RuntimeError("this broker does not run")
        return self._life


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


async def _drain_and_crash(node: Node) -> None:
    """Stop cleanly for clients, without a flush: the data is not needed any more."""
    await node.drain()
    await crash(node)


async def _advance(node: Node, milliseconds: int) -> None:
    node.clock.advance(milliseconds)
    upkeep = node.upkeep
    await upkeep.run_retention()
    await upkeep.run_compaction()
    await upkeep.run_producer_expiry()
    await upkeep.run_flushes()
    await upkeep.run_removal()
