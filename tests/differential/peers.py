"""Headrace as a process of its own, with the settings that Kafka has beside it."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

START_SECONDS_MAX: Final = 30
STOP_SECONDS_MAX: Final = 30
POLL_SECONDS: Final = 0.02

SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""What both peers are told, so that no answer depends on how fast a script is played."""

_OWN: Final = {
    "node.id": "1",
    "http.listen": "",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Scripts look at each step of a new share group.
    "headrace.group.first.assignment.wait.ms": "0",
}
"""What `kafka` tells its broker in any case, and what only Headrace has."""

_LISTENING: Final = re.compile(r"listening on (127\.0\.0\.1:\d+)")


@contextmanager
def headrace(folder: Path) -> Iterator[str]:
    """Run a node on the folder; give its address. It is stopped as an operator would."""
    output = folder.with_name(f"{folder.name}.out")
    command = [sys.executable, "-m", "headrace", "up"]
    options = ["--data", str(folder), "--listen", "127.0.0.1:0"]
    for name, value in (_OWN | SETTINGS).items():
        options += ["--set", f"{name}={value}"]
    with output.open("wb") as file:
        node = subprocess.Popen([*command, *options], stdout=file, stderr=file)
    try:
        yield _address(node, output)
        node.send_signal(signal.SIGTERM)
        node.wait(STOP_SECONDS_MAX)
    finally:
        if node.poll() is None:
            node.kill()
            node.wait(STOP_SECONDS_MAX)


def _address(node: "subprocess.Popen[bytes]", output: Path) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if found := _LISTENING.search(output.read_text(errors="replace")):
            return found[1]
        assert node.poll() is None, output.read_text(errors="replace")[-4000:]
        time.sleep(POLL_SECONDS)  # polls, up to the deadline
    raise AssertionError(f"Headrace did not listen:\n{output.read_text()[-4000:]}")
