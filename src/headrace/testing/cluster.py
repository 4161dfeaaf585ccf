"""A real cluster in a test's own process.

    with TestCluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.kill(cluster.controller)
        cluster.produce("orders", "one")        # as soon as the others have a new controller

Every node is a `TestBroker` with its own thread, loop, folder and sockets; its number is its
`node.id`, counted from 1. `headrace.testing.plugin` offers it as a pytest fixture.
"""

import concurrent.futures
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from headrace import config
from headrace.cluster.tokens import create_token
from headrace.ids import BrokerId
from headrace.remote.store import ObjectStore
from headrace.testing.broker import TestBroker
from headrace.testing.conveniences import Conveniences
from headrace.testing.life import WAIT_SECONDS_MAX, LoopThread

DEFAULTS: Final = {
    # A node that is gone is noticed within half a second.
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1000",
    "headrace.raft.heartbeat.ms": "20",
    "headrace.raft.election.timeout.ms": "200",
    "headrace.raft.clock.drift.ms.max": "50",
}
"""Settings that make a cluster quick, beside those of `TestBroker`."""

TOKEN_SECONDS: Final = 3600
"""How long the tokens are valid with which nodes join that speak TLS."""

T = TypeVar("T")


class TestCluster(Conveniences):
    """Several nodes on 127.0.0.1. Methods may be called from any thread."""

    __test__ = False  # not a test class, despite its name

    def __init__(
        self,
        nodes: int = 3,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        store: ObjectStore | None = None,
    ) -> None:
        """Use a folder in `folder` for each node's data, else temporary ones.

        `settings` use Kafka's names, and override `DEFAULTS` and those of `TestBroker`. With a
        `store` the nodes have a tier, and share it. With headrace.node.tls=true and a file with a
        secret they speak TLS to each other, and join with tokens.
        """
        self._store = store
        if nodes < 1:
            raise ValueError(f"a cluster of {nodes} nodes: must have at least 1")
        self._is_temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="headrace-"))
        self._settings = {**DEFAULTS, **(settings or {})}
        text = self._settings.get(config.VOTERS_MAX.name)
        self._voters_max = config.VOTERS_MAX.parse(text) if text else config.VOTERS_MAX.default
        self.clock = ClusterClock(self)
        self.nodes: dict[int, TestBroker] = {}
        """The nodes by id, running or not."""
        self._cuts: set[tuple[int, int]] = set()
        self._paused: set[int] = set()
        self._loop: LoopThread | None = None
        for node_id in range(1, nodes + 1):
            self._make(node_id)

    # Life

    def start(self) -> None:
        """Start every node; return when all vote or follow, and serve."""
        first, *others = self.nodes.values()
        first.start()
        # Those that vote come first: whoever is caught up first would.
        for some in (others[: self._voters_max - 1], others[self._voters_max - 1 :]):
            self._give_seeds()
            with concurrent.futures.ThreadPoolExecutor(max(1, len(some))) as pool:
                for starting in [pool.submit(node.start) for node in some]:
                    starting.result()
            self.wait_for(self._is_settled, "every node to have its seat in the quorum")

    def close(self) -> None:
        """Stop everything, and remove the data if the folder is temporary."""
        try:
            self.heal()
            with concurrent.futures.ThreadPoolExecutor(len(self.nodes)) as pool:
                for stopping in [pool.submit(node.close) for node in self.nodes.values()]:
                    stopping.result()
        finally:
            if self._loop is not None:
                self._loop.end()
                self._loop = None
            if self._is_temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Nodes

    def add(self) -> int:
        """Start one more node, with an empty folder; return its id."""
        node_id = max(self.nodes) + 1
        node = self._make(node_id)
        self._give_seeds()
        node.start()
        return node_id

    def kill(self, node_id: int) -> None:
        """End a node as if by kill -9."""
        self._paused.discard(node_id)
        self.nodes[node_id].crash()

    def stop(self, node_id: int) -> None:
        """Shut a node down cleanly."""
        self.nodes[node_id].stop()

    def restart(self, node_id: int) -> None:
        """Start a node again on its data and its ports; stop it cleanly first if it runs."""
        self._paused.discard(node_id)
        self.nodes[node_id].restart()
        self._apply_cuts()

    def pause(self, node_id: int) -> None:
        """Stop a node until `resume` or `heal`, as if by SIGSTOP."""
        self._paused.add(node_id)
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self._paused.discard(node_id)
        self.nodes[node_id].resume()

    def cut(self, a: int, b: int) -> None:
        """Cut the network between two nodes; clients reach both."""
        self._cuts |= {(a, b), (b, a)}
        self._apply_cuts()

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others."""
        for other in self.nodes:
            if other != node_id:
                self._cuts |= {(node_id, other), (other, node_id)}
        self._apply_cuts()

    def heal(self) -> None:
        """Mend every cut, and resume every paused node."""
        for node_id in tuple(self._paused):
            self.resume(node_id)
        self._cuts.clear()
        self._apply_cuts()

    # What it knows

    @property
    def bootstrap(self) -> str:
        """The addresses of the running nodes, as `host:port,host:port`."""
        return ",".join(node.bootstrap for _, node in self.running())

    @property
    def controller(self) -> int:
        """The node that leads the metadata log; waits until there is one."""
        found: list[int] = []

        def is_found() -> bool:
            found[:] = [
                node_id
                for node_id, node in self.running()
                if node_id not in self._paused and node.node.cluster.is_controller
            ]
            return len(found) == 1

        self.wait_for(is_found, "a controller")
        return found[0]

    def running(self) -> Iterator[tuple[int, TestBroker]]:
        """Yield the nodes that run, with their ids; paused ones run."""
        return ((node_id, node) for node_id, node in self.nodes.items() if node.is_running)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Return when a condition is true; TimeoutError with `what` if it takes too long."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {WAIT_SECONDS_MAX} s for {what}")
            time.sleep(0.005)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop that is none of the nodes', and return its result."""
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop.run(work)

    # Inside

    def _make(self, node_id: int) -> TestBroker:
        settings = {**self._settings, "node.id": str(node_id)}
        folder = self.folder / f"node-{node_id}"
        node = self.nodes[node_id] = TestBroker(folder, settings, store=self._store)
        return node

    def _give_seeds(self) -> None:
        """Add the running nodes to the seeds of nodes that have not run yet."""
        seeds = ",".join(node.node.cluster.address for _, node in self.running())
        for node_id, node in self.nodes.items():
            if not node.is_running:
                node.set(config.SEEDS.name, seeds)
                self._give_token(node_id)

    def _give_token(self, node_id: int) -> None:
        """Create the token of a node that is new to the cluster, if it takes one."""
        path = self.folder / f"node-{node_id}.token"
        secret_file = self._settings.get(config.CLUSTER_SECRET_FILE.name)
        _, first = next(self.running())
        certificates = first.node.cluster.certificates
        if certificates is None or not secret_file or path.exists():
            return
        secret = Path(secret_file).read_bytes().strip()
        token = create_token(secret, node_id, int(time.time()) + TOKEN_SECONDS)
        path.write_text("\n".join((token, *certificates.pins())))
        self.nodes[node_id].set(config.JOIN_TOKEN_FILE.name, str(path))

    def _is_settled(self) -> bool:
        running = dict(self.running())
        for node in running.values():
            broker = node.node.broker
            registered = broker.image.state.brokers.values()
            members = broker.quorum.driver.state.membership
            is_complete = len(members.members) == len(running) == len(registered)
            if not is_complete or len(members.voters) < min(len(running), self._voters_max):
                return False
            if any(each.is_fenced for each in registered):
                return False
        return True

    def _apply_cuts(self) -> None:
        for node_id, node in self.running():
            if node_id not in self._paused:
                others = [BrokerId(b) for a, b in self._cuts if a == node_id]
                node.call(partial(node.node.cut, others))


class ClusterClock:
    """The wall clocks of all nodes, used by records, retention and sessions of groups."""

    def __init__(self, cluster: TestCluster) -> None:
        self._cluster = cluster

    def now_ms(self) -> int:
        """Return the time of the first node in ms since 1970."""
        return next(iter(self._cluster.nodes.values())).clock.now_ms()

    def advance(self, milliseconds: int) -> None:
        """Move every clock forward; work that becomes due is done on return."""
        for _, node in self._cluster.running():
            node.clock.advance(milliseconds)
