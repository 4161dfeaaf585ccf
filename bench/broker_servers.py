"""Headrace and Apache Kafka as processes to measure: each with the settings that it comes with."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker_requests import ask
from headrace.wire import ApiKey, request_parts
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.request_header import RequestHeader
from tools.jvm.harness import jars
from tools.ports import free_port

START_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 60
POLL_SECONDS: Final = 0.002

# What kafka-server-start and kafka-run-class give a JVM.
PERFORMANCE_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
SERVER_HEAP: Final = ("-Xmx1G", "-Xms1G")
CLIENT_HEAP: Final = ("-Xmx512M",)
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
ENVIRONMENT: Final = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
"""Modules may be kept compiled, as pip keeps what it installs."""


class Server:
    """A broker that answers, and what the kernel knows of its process."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, start_seconds: float) -> None:
        self.port = port
        self.start_seconds = start_seconds
        """From the start of the process to its first answer."""
        self._process = process

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """What all of its threads have used, in user and kernel mode."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


class Certified(NamedTuple):
    """A broker's key and certificate, and who signed it, in PEM files."""

    store: Path
    authority: Path


@contextmanager
def run_headrace(
    folder: Path,
    profile: Path | None = None,
    settings: Mapping[str, str] | None = None,
    certified: Certified | None = None,
) -> Iterator[Server]:
    """`headrace up` on a folder; `profile` is where cProfile writes at the end.

    With a certificate its listener is SSL.
    """
    port = free_port()
    profiler = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
    command = [sys.executable, *profiler, "-m", "headrace", "up", "--data", str(folder / "data")]
    command += ["--node-listen", "127.0.0.1:0"]
    given = {"http.listen": "", "listeners": f"PLAINTEXT://127.0.0.1:{port}", **(settings or {})}
    if certified is not None:
        given |= {"listeners": f"SSL://127.0.0.1:{port}", **_store(certified)}
    for name, value in given.items():
        command += ["--set", f"{name}={value}"]
    with _running(command, port, folder / "headrace.out", certified) as server:
        yield server


@contextmanager
def run_kafka(folder: Path, certified: Certified | None = None) -> Iterator[Server]:
    """Apache Kafka as its start script runs it, on a folder that is formatted first."""
    port, controller_port = free_port(), free_port()
    protocol, tls = "PLAINTEXT", ""
    if certified is not None:
        trusting = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certified.authority),
        }
        protocol = "SSL"
        tls = "\n".join(f"{name}={value}" for name, value in (_store(certified) | trusting).items())
    settings = folder / "server.properties"
    settings.write_text(
        f"""
process.roles=broker,controller
node.id=1
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={protocol}://127.0.0.1:{port}
security.inter.broker.protocol={protocol}
{tls}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
    )
    arguments = ("format", "--standalone", "-t", CLUSTER_ID, "-c", str(settings))
    subprocess.run(
        java(CLIENT_HEAP, "kafka.tools.StorageTool", *arguments), capture_output=True, check=True
    )
    command = java(SERVER_HEAP, "kafka.Kafka", str(settings))
    with _running(command, port, folder / "kafka.out", certified) as server:
        yield server


def java(
    heap: tuple[str, ...], main: str, *arguments: str, classes: Path | None = None
) -> list[str]:
    """The command that runs a class of Kafka's jars, or of `classes`, as Kafka's scripts do."""
    path = f"{jars()}/*" if classes is None else f"{classes}{os.pathsep}{jars()}/*"
    return ["java", *heap, *PERFORMANCE_OPTIONS, "-cp", path, main, *arguments]


def _store(certified: Certified) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certified.store)}


@contextmanager
def _running(
    command: list[str], port: int, output: Path, certified: Certified | None
) -> Iterator[Server]:
    with output.open("wb") as file:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=file, stderr=file, env=ENVIRONMENT)
    try:
        wait_for_answer(process, port, output, certified)
        yield Server(process, port, time.perf_counter() - begin)
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS_MAX)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for_answer(
    process: "subprocess.Popen[bytes]", port: int, output: Path, certified: Certified | None = None
) -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 0, 1, "bench")
    request = b"".join(request_parts(header, ApiVersionsRequest()))
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with connect(port, certified) as connection:
                ask(connection, request)
                return
        except ConnectionError:
            time.sleep(POLL_SECONDS)
    sys.exit(f"{output.stem} did not answer on port {port}:\n{output.read_text()[-4000:]}")


def connect(port: int, certified: Certified | None = None) -> socket.socket:
    """Connect to a broker on this machine, with TLS if it has a certificate."""
    connection = socket.create_connection(("127.0.0.1", port), START_SECONDS_MAX)
    if certified is None:
        return connection
    context = ssl.create_default_context(cafile=str(certified.authority))
    return context.wrap_socket(connection, server_hostname="127.0.0.1")
