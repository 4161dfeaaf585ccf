"""What tests of leaving nodes share: the commands, and a cluster whose nodes stop when told."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.testing.cluster import TestCluster

PAUSE_SECONDS = 0.02


def node_ports(cluster: TestCluster) -> str:
    return ",".join(node.node.cluster.address for _, node in cluster.running())


def command(cluster: TestCluster, *arguments: str) -> Result:
    """Run a command that needs both ports of the nodes."""
    options = ["--bootstrap", cluster.bootstrap, "--node", node_ports(cluster)]
    return CliRunner().invoke(headrace, [*arguments, *options])


def image_of(cluster: TestCluster) -> Image:
    return cluster.nodes[cluster.controller].node.broker.image


def replicas_on(cluster: TestCluster, node: int) -> int:
    return image_of(cluster).replica_count(BrokerId(node))


@contextmanager
def stopping_when_told(cluster: TestCluster) -> Iterator[None]:
    """Stop nodes that are decommissioned, as `headrace up` does."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(PAUSE_SECONDS):
            for node_id, broker in list(cluster.running()):
                if broker.node.decommissioned.is_set():
                    cluster.stop(node_id)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()


class Load:
    """A producer and a consumer that go on all the time, and note what fails."""

    def __init__(self, cluster: TestCluster, topic: str) -> None:
        self._bootstrap = cluster.bootstrap
        self._topic = topic
        self._is_over = threading.Event()
        self.sent = 0
        self.seen: set[bytes] = set()
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=each) for each in (self._send, self._read)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5})

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                self.errors.append(f"produce: {error}")

        while not self._is_over.is_set():
            value = b"%d" % self.sent
            producer.produce(self._topic, value, on_delivery=on_delivery)
            self.sent += 1
            producer.poll(0)
            time.sleep(0.005)
        producer.flush(60)

    def _read(self) -> None:
        from confluent_kafka import Consumer  # noqa: PLC0415

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "load",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([self._topic])
        deadline = None
        while deadline is None or (len(self.seen) < self.sent and time.monotonic() < deadline):
            if deadline is None and self._is_over.is_set():
                deadline = time.monotonic() + 60
            message = consumer.poll(0.05)
            if message is None:
                continue
            if message.error():
                self.errors.append(f"consume: {message.error()}")
            else:
                self.seen.add(message.value() or b"")
        consumer.close()
