"""`headrace up` as an operator uses it: starting, refusing to, and stopping."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.checkpoints import CLEAN_SHUTDOWN
from headrace.testing.broker import TestBroker
from tests.headrace_process import HeadraceProcess

SECONDS_MAX = 30


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceProcess]:
    process = HeadraceProcess(tmp_path / "data")
    yield process
    process.kill()


def refused(*arguments: str, status: int = 1) -> str:
    """Give what a start that fails says, in one line, and with this status."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "up", "--set", "http.listen=", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == status, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_a_stop_leaves_the_mark_of_a_clean_shutdown(node: HeadraceProcess, tmp_path: Path) -> None:
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
    assert node.stop() == 0
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_a_used_folder_names_its_holder(node: HeadraceProcess, tmp_path: Path) -> None:
    line = refused("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert f"process {node.pid}" in line


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = refused("--data", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0")
    assert line == f"headrace: {tmp_path}/file/data: Not a directory"


def test_a_used_port_names_its_holder(node: HeadraceProcess, tmp_path: Path) -> None:
    line = refused("--data", str(tmp_path / "other"), "--listen", f"127.0.0.1:{node.port}")
    assert f"port {node.port} is in use by process {node.pid}" in line


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("num.partition=3", "num.partitions"),
        ("num.partitions=none", "not a whole number"),
        ("num.partitions=0", "between 1 and"),
        ("num.partitions", "key=value"),
        ("listeners=nonsense", "listeners"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_can(
    tmp_path: Path, pair: str, said: str
) -> None:
    line = refused("--data", str(tmp_path / "data"), "--set", pair, status=2)
    assert said in line
    assert pair.partition("=")[0] in line


def test_settings_that_would_protect_are_refused_all_in_one_line(tmp_path: Path) -> None:
    names = ("inter.broker.listener.name=SASL_SSL", "principal.builder.class", "ssl.provider")
    values = ("", "=hunter2", "=SunJSSE")
    pairs = [
        each for name, value in zip(names, values, strict=True) for each in ("--set", name + value)
    ]
    line = refused("--data", str(tmp_path / "data"), *pairs, status=2)
    assert all(name in line for name in names)
    assert not (tmp_path / "data").exists()


def test_a_folder_of_another_node_is_refused(node: HeadraceProcess, tmp_path: Path) -> None:
    node.stop()
    line = refused(
        "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--set", "node.id=7"
    )
    assert "node 1" in line


def test_a_properties_file_of_kafka_is_taken_with_a_line_on_what_has_no_effect(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=5\nnum.network.threads=3\nprocess.roles=broker,controller\n")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "headrace", "up", "--config", str(file)),
            *("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
            *("--set", "http.listen="),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "listening on" in process.stdout.readline()
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert "num.network.threads" in errors


def test_log_lines_are_json_on_request(tmp_path: Path) -> None:
    process = HeadraceProcess(tmp_path / "data", {"headrace.log.format": "json"})
    try:
        process.stop()
    finally:
        process.kill()
    lines = [
        json.loads(line) for line in process.output.read_text().splitlines() if line.startswith("{")
    ]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert any("ready" in line["message"] for line in lines)


def test_a_client_that_waits_is_answered_before_the_node_is_gone() -> None:
    with TestBroker() as broker:
        broker.create_topic("orders")
        host, _, port = broker.bootstrap.partition(":")
        with socket.create_connection((host, int(port)), SECONDS_MAX) as client:
            # ApiVersions v0, then nothing more: the answer comes, and then the end.
            client.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
            assert int.from_bytes(client.recv(4)) > 0
            broker.stop()
            while client.recv(65536):
                pass
