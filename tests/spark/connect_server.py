"""A server of Spark Connect, as a process on loopback."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from headrace.spark.java import java_home
from headrace.spark.python import worker_python

START_SECONDS_MAX = 240
STOP_SECONDS_MAX = 30
POLL_SECONDS = 0.1
SPARK_HOME = Path(pyspark.__file__).parent
_STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a server with two cores; give its address, as `sc://...`.

    Its Python is this one, which has the package, as the Python of a server must.
    """
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
    }
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": worker_python(),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if (home := java_home()) is not None:
        environment["JAVA_HOME"] = str(home)
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--master", "local[2]"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    output = folder / "server.out"
    with output.open("wb") as file:
        # A group of processes, as what is started is a script that starts Java.
        server = subprocess.Popen(
            command, stdout=file, stderr=file, cwd=folder, env=environment, process_group=0
        )
    try:
        yield f"sc://127.0.0.1:{_port(server, output)}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(STOP_SECONDS_MAX)


def _port(server: "subprocess.Popen[bytes]", output: Path) -> int:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        printed = output.read_text(errors="replace")
        if found := _STARTED.search(printed):
            return int(found[1])
        assert server.poll() is None, printed[-4000:]
        time.sleep(POLL_SECONDS)  # polls, up to the deadline
    raise AssertionError(f"the server does not start:\n{printed[-4000:]}")
