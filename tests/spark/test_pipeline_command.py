"""`headrace pipeline run` as a process: stopped, refused, killed, started again."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.broker import TestBroker

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]
DEADLINE_SECONDS = 180
KILLS = 4
TOML = """
name = "shop"
[parameters]
bootstrap = "127.0.0.1:9092"
[options]
kafka.bootstrap.servers = "${bootstrap}"
[sources.numbers]
format = "headrace"
subscribe = "numbers"
maxOffsetsPerTrigger = 200
[sinks.doubled]
format = "headrace"
topic = "doubled"
[sinks.stored]
format = "json"
path = "out/stored"
"""
DOUBLED = """
-- reads: numbers
-- writes: doubled
select cast(cast(cast(value as string) as int) * 2 as string) as value from numbers
"""
STORED = """
-- reads: doubled
-- writes: stored
select cast(cast(value as string) as int) as number from doubled
"""


class Command:
    """Runs of one pipeline."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self._set = f"bootstrap={bootstrap}"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "headrace", "pipeline", "run", str(self.folder)]
        command += ["--master", "local[2]", "--set", self._set, *words]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "headrace", "pipeline", "status", str(self.folder)]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def stored(self) -> list[int]:
        """Return what the sink of files has committed, in order."""
        log = sorted((self.folder / "out/stored/_spark_metadata").glob("[0-9]*"))
        names = {
            Path(json.loads(line)["path"]).name
            for each in log
            for line in each.read_text().splitlines()[1:]
        }
        return sorted(
            json.loads(line)["number"]
            for name in names
            for line in (self.folder / "out/stored" / name).read_text().splitlines()
        )


@pytest.fixture
def command(headrace: TestBroker, tmp_path: Path, java: None) -> Command:
    folder = tmp_path / "shop"
    (folder / "steps").mkdir(parents=True)
    (folder / "pipeline.toml").write_text(TOML)
    (folder / "steps/doubled.sql").write_text(DOUBLED)
    (folder / "steps/stored.sql").write_text(STORED)
    headrace.create_topic("numbers")
    headrace.create_topic("doubled")
    return Command(folder, headrace.bootstrap)


def wait_for(is_so: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "too late"
        time.sleep(0.2)  # polls, up to the deadline


def test_a_run_refuses_a_second_one_stops_cleanly_and_goes_on(
    headrace: TestBroker, command: Command
) -> None:
    headrace.produce("numbers", *map(str, range(100)))
    process = command.start()
    try:
        wait_for(lambda: len(command.stored()) == 100, process)
        assert command.status()["state"] == "running"
        second = command.start("--once")
        said = second.communicate(timeout=DEADLINE_SECONDS)[0]
        assert second.returncode == 1
        assert f"is running already: process {process.pid}" in said
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=DEADLINE_SECONDS)[0]
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "pipeline shop stopped" in said
    assert command.status()["state"] == "stopped"
    headrace.produce("numbers", *map(str, range(100, 150)))
    last = command.start("--once")
    said = last.communicate(timeout=DEADLINE_SECONDS)[0]
    assert last.returncode == 0, said
    assert command.stored() == [2 * each for each in range(150)]
    assert command.status()["state"] == "done"


def test_nothing_is_lost_or_doubled_by_kills(headrace: TestBroker, command: Command) -> None:
    sent = 0
    for turn in range(KILLS):
        headrace.produce("numbers", *map(str, range(sent, sent + 1000)))
        sent += 1000
        before = len(command.stored()) if turn else 0
        process = command.start()
        try:
            wait_for(lambda before=before: len(command.stored()) > before, process)  # type: ignore[misc]
            time.sleep(0.3 * turn)  # another moment of a batch each time
        finally:
            process.kill()
            process.communicate()
        assert command.status()["state"] == "killed"
    last = command.start("--once")
    said = last.communicate(timeout=DEADLINE_SECONDS)[0]
    assert last.returncode == 0, said
    assert command.stored() == [2 * each for each in range(sent)]


def test_a_new_pipeline_passes_its_own_test(tmp_path: Path, java: None) -> None:
    folder = str(tmp_path / "orders")
    program = [sys.executable, "-m", "headrace", "pipeline"]
    subprocess.run([*program, "init", folder], check=True, capture_output=True)
    done = subprocess.run(
        [*program, "test", folder, "-q"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
