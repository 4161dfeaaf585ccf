"""A standalone cluster of Spark's, as processes on loopback, and what clusters leave behind."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from headrace.spark.java import java_home

WORKERS = 2
START_SECONDS_MAX = 180
STOP_SECONDS_MAX = 30
POLL_SECONDS = 0.1
SPARK_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Run a master with two workers of one core each; give the master's address.

    The workers know nothing of this project: neither its folder nor its Python.
    """
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as processes:
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        output = processes.enter_context(_spark_class(folder, "master", "master.Master", *where))
        address = _wait_for(output, _MASTER)
        shape = ["--cores", "1", "--memory", "1g"]
        outputs = [
            processes.enter_context(
                _spark_class(
                    folder,
                    name,
                    "worker.Worker",
                    *(*where, *shape, "--work-dir", str(folder / name), address),
                )
            )
            for name in (f"worker-{number}" for number in range(WORKERS))
        ]
        for output in outputs:
            _wait_for(output, re.compile(f"({_REGISTERED})"))
        yield address


def end(spark: SparkSession) -> None:
    """Stop a session; a cluster in one machine leaves its executors' output in Spark's folder."""
    left = SPARK_HOME / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _spark_class(folder: Path, name: str, main: str, *arguments: str) -> Iterator[Path]:
    """Run a class of Spark's; give the file that it prints to. It is stopped at the end."""
    output = folder / f"{name}.out"
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYSPARK", "PYTHON", "SPARK"))
    }
    environment |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    if (home := java_home()) is not None:
        environment["JAVA_HOME"] = str(home)
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, *arguments], stdout=file, stderr=file, cwd=folder, env=environment
        )
    try:
        yield output
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)


def _wait_for(output: Path, wanted: re.Pattern[str]) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if found := wanted.search(output.read_text(errors="replace")):
            return found[1]
        time.sleep(POLL_SECONDS)  # polls, up to the deadline
    raise AssertionError(f"{wanted.pattern!r} is not in {output}:\n{output.read_text()[-4000:]}")
