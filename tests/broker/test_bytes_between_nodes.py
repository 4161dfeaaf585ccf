"""What somebody on the network between nodes can read: the bytes that pass, seen by a proxy.

Nodes listen on 127.0.0.2 and tell each other 127.0.0.1, where a proxy passes on every byte.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.program import headrace
from headrace.client import Admin, Producer
from tests.broker.peers import wait_until
from tests.headrace_process import HeadraceProcess
from tools.ports import free_ports

SECRET = "canary-of-the-secret" * 2
RECORD = b"canary-of-a-record"
TOPIC = "canary-of-a-topic"


class Wiretap:
    """A TCP proxy that keeps what passes, in both directions."""

    def __init__(self, port: int) -> None:
        self.seen = bytearray()
        self._target = ("127.0.0.2", port)
        self._server = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._server, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(self._target, 10)
            except OSError:
                here.close()
                continue
            self._open += [here, there]
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            source.settimeout(None)
            while data := source.recv(65536):
                self.seen += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@contextmanager
def two_nodes(folder: Path, *, tls: bool) -> Iterator[tuple[list[HeadraceProcess], list[Wiretap]]]:
    """Run two nodes that reach each other through proxies; they are each other's seeds."""
    ports = free_ports(4)
    secret = folder / "secret"
    secret.write_text(SECRET)
    seeds = ",".join(f"127.0.0.1:{port}" for port in ports[:2])
    with ExitStack() as stack:
        taps = [Wiretap(port) for port in ports]
        for tap in taps:
            stack.callback(tap.close)
        nodes = []
        for place in (0, 1):
            settings = {
                "node.id": str(place + 1),
                "headrace.node.listen": f"127.0.0.2:{ports[place]}",
                "headrace.node.advertised": f"127.0.0.1:{ports[place]}",
                "headrace.node.tls": str(tls).lower(),
                "headrace.cluster.secret.file": str(secret),
                "headrace.seeds": seeds,
            }
            if tls:
                settings["headrace.node.fetch.port"] = str(ports[2 + place])
            nodes.append(HeadraceProcess(folder / f"node-{place + 1}", settings, is_awaited=False))
            stack.callback(nodes[-1].kill)
        for node in nodes:
            node.wait()
        yield nodes, taps


async def use(nodes: list[HeadraceProcess]) -> None:
    bootstrap = ",".join(node.bootstrap for node in nodes)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=2, replication_factor=2)
    async with Producer(bootstrap) as producer:
        for number in range(20):
            await producer.send(TOPIC, RECORD, partition=number % 2)  # acks=all: both have it


@pytest.mark.slow
def test_nothing_that_nodes_say_to_each_other_can_be_read(tmp_path: Path) -> None:
    with two_nodes(tmp_path, tls=True) as (nodes, taps):
        asyncio.run(use(nodes))
        wait_until(lambda: all(tap.seen for tap in taps), "bytes have passed everywhere")
        shown = CliRunner().invoke(
            headrace,
            [
                *("cluster", "ca", "show", "--node", nodes_address(taps)),
                *("--secret-file", str(tmp_path / "secret")),
            ],
        )
        assert shown.exit_code == 0, shown.output
        assert all(node.stop() == 0 for node in nodes)
    copied = [len(RECORD) * 10 for _ in taps[2:]]
    assert all(len(tap.seen) > size for tap, size in zip(taps[2:], copied, strict=True))
    for tap in taps:
        for canary in (b"canary", b"HEADRACE-NODES", b"PRIVATE KEY", b"Register"):
            assert canary not in tap.seen


@pytest.mark.slow
def test_in_plain_text_it_can_be_read_so_the_proxy_would_see_it(tmp_path: Path) -> None:
    with two_nodes(tmp_path, tls=False) as (nodes, taps):
        asyncio.run(use(nodes))
        assert any(TOPIC.encode() in tap.seen for tap in taps[:2])
        assert not any(SECRET.encode() in tap.seen for tap in taps)


def nodes_address(taps: list[Wiretap]) -> str:
    """Return where a node port is reached, through a proxy as well."""
    return f"127.0.0.1:{taps[0]._target[1]}"
