"""`headrace up --nodes 3`, as an operator uses it, and a node that waits for its cluster."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Admin, NewTopic
from tests.broker.peers import wait_until

SECONDS_MAX = 60
SERVING = re.compile(r"^3 nodes serve: (\S+)$", re.MULTILINE)


class Several:
    """A process with its output in a file."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.output = folder.with_name(f"{folder.name}.out")
        command = [sys.executable, "-m", "headrace", "up", "--data", str(folder)]
        command += ["--listen", "127.0.0.1:0", *options]
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)

    def find(self, pattern: "re.Pattern[str]") -> "re.Match[str]":
        """Wait until the output has a line."""
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [pattern.search(self.output.read_text(errors="replace"))]
            assert found[0] or self.process.poll() is None, self.output.read_text()[-4000:]
            return found[0] is not None

        wait_until(is_there, pattern.pattern)
        match: re.Match[str] = found[0]
        return match

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


@pytest.fixture
def several(tmp_path: Path) -> Iterator[list[Several]]:
    """The processes of a test, which are ended with their nodes."""
    processes: list[Several] = []
    yield processes
    for each in processes:
        if each.process.poll() is None:
            each.stop(signal.SIGTERM)


def topics(bootstrap: str, *created: str) -> set[str]:
    async def work() -> set[str]:
        async with Admin(bootstrap) as admin:
            if created:
                await admin.create_topics([NewTopic(name, partitions=6) for name in created])
            return {topic.name for topic in await admin.list_topics()}

    return asyncio.run(work())


def test_three_nodes_under_one_ctrl_c_find_their_data_again(
    tmp_path: Path, several: list[Several]
) -> None:
    for run in range(2):
        up = Several(tmp_path / "data", "--nodes", "3", "--set", "http.listen=")
        several.append(up)
        bootstrap = up.find(SERVING)[1]
        assert len(bootstrap.split(",")) == 3
        if run == 0:
            topics(bootstrap, "orders")
        wait_until(lambda: "orders" in topics(bootstrap), "the topic")  # noqa: B023  done here
        assert up.stop() == 0, up.output.read_text()[-4000:]
    assert {each.name for each in (tmp_path / "data").iterdir()} == {"node-1", "node-2", "node-3"}
    assert "node-2 | " in up.output.read_text()


def test_a_node_that_dies_is_reported_and_the_others_go_on(
    tmp_path: Path, several: list[Several]
) -> None:
    up = Several(tmp_path / "data", "--nodes", "3", "--set", "http.listen=")
    several.append(up)
    bootstrap = up.find(SERVING)[1]
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    for pid in children.read_text().split():
        if b"node-3" in Path(f"/proc/{pid}/cmdline").read_bytes():
            subprocess.run(["kill", "-9", pid], check=True)
    up.find(re.compile("node 3 has ended with signal SIGKILL; the others go on"))
    wait_until(lambda: "later" in topics(bootstrap.split(",")[0], "later"), "a new topic")
    assert up.stop(signal.SIGTERM) == 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--seeds", "127.0.0.1:9093"), "headrace.node.listen"),
        (("--node-listen", "127.0.0.1:0"), "headrace.node.listen"),
        (("--node-listen", "127.0.0.1:65400"), "headrace.node.listen"),
        (("--set", "headrace.node.advertised=127.0.0.1:9093"), "headrace.node.advertised"),
        (("--set", "http.listen=127.0.0.1:0"), "http.listen"),
    ],
)
def test_what_cannot_hold_for_several_nodes_is_refused_by_name(
    tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    up = Several(tmp_path / "data", "--nodes", "3", *options)
    assert up.process.wait(SECONDS_MAX) == 2
    assert name in up.output.read_text()


def test_a_node_that_waits_for_its_cluster_says_so_over_http(
    tmp_path: Path, several: list[Several]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        seed = f"127.0.0.1:{nobody.getsockname()[1]}"
        up = Several(tmp_path / "data", "--seeds", seed, "--set", "http.listen=127.0.0.1:0")
        several.append(up)
        port = up.find(re.compile(r"http on port (\d+)"))[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as page:
            assert page.status == 200
        for path in ("readyz", "metrics", "share/g/t"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60)
            with refused.value as error:
                assert error.code == 503
                assert "waiting for the cluster" in error.read().decode()
        assert up.stop(signal.SIGTERM) == 0


def test_nodes_of_two_machines_form_one_cluster_whose_replicas_are_on_both(
    tmp_path: Path, several: list[Several]
) -> None:
    """Loopback addresses stand for the machines."""
    ports = [_free_ports() for _ in range(2)]
    seeds = ",".join(f"127.0.0.{place + 1}:{port}" for place, port in enumerate(ports))
    for place, port in enumerate(ports):
        host = f"127.0.0.{place + 1}"
        options = ["--nodes", "2", "--seeds", seeds, "--node-listen", f"{host}:{port}"]
        options += ["--set", f"node.id={1 + 10 * place}", "--set", "http.listen="]
        several.append(Several(tmp_path / f"machine-{place}", *options))
    serving = re.compile(r"^2 nodes serve: (\S+)$", re.MULTILINE)
    bootstrap, _ = (each.find(serving)[1] for each in several)

    async def place_replicas() -> list[set[int]]:
        async with Admin(bootstrap) as admin:
            await admin.create_topic("orders", 8, replication_factor=2)
            described = await admin.describe_topic("orders")
            return [{each // 10 for each in row.replicas} for row in described.partitions]

    assert asyncio.run(place_replicas()) == [{0, 1}] * 8
    assert (tmp_path / "machine-1" / "node-12").is_dir()


def _free_ports() -> int:
    """Return a port that is free, as is the one 100 behind it, on every loopback address.

    They are below those of `tools.ports`, which are taken by processes side by side.
    """
    for port in range(10_001, 11_800, 211):
        try:
            for each in (port, port + 100):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    with socket.socket(type=kind) as tried:
                        tried.bind(("0.0.0.0", each))
        except OSError:
            continue
        if port not in _taken:
            _taken.add(port)
            return port
    raise AssertionError("no free ports")


_taken: set[int] = set()
