"""Headrace as its users run it: `headrace up` in a process of its own, on loopback."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.ports import free_port

START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60
POLL_SECONDS = 0.01
_LISTENING = re.compile(rb"listening on (\S+?:\d+)")


class HeadraceProcess:
    """A node on `folder`. It serves when the constructor returns, unless it `is_awaited` later.

    `port` 0 takes a free one, which nobody else gets while the node is down. `within` is a command
    that runs others, in a network of its own for example; `program` is the module, and its first
    arguments, that takes the place of `headrace`.
    """

    bootstrap: str
    """Where it serves clients, once it does."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        within: Sequence[str] = (),
        program: Sequence[str] = ("headrace",),
        is_awaited: bool = True,
    ) -> None:
        self.output = folder.with_name(f"{folder.name}.out")
        sets = {"http.listen": "", "headrace.node.listen": "127.0.0.1:0", **(settings or {})}
        command = [*within, sys.executable, "-m", *program, "up", "--data", str(folder)]
        command += ["--listen", f"{host}:{port or free_port()}"]
        for name, value in sets.items():
            command += ["--set", f"{name}={value}"]
        with self.output.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file)
        if is_awaited:
            self.wait()

    def wait(self) -> None:
        """Return when it serves; it is gone if it does not in time."""
        try:
            self.bootstrap = self._wait_for_address()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def status(self) -> int | None:
        """Its exit status, None if it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """End it with SIGTERM, as an operator does; give its exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it with SIGKILL, if it runs. Nothing is flushed."""
        self._process.kill()  # ends one that is paused, too
        self._process.wait(STOP_SECONDS_MAX)

    def pause(self) -> None:
        """Let it do nothing until `resume`, with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            status = self._process.poll()
            if found := _LISTENING.search(self.output.read_bytes()):
                return found[1].decode()
            assert status is None, f"it ended with {status}:\n{self._end_of_output()}"
            time.sleep(POLL_SECONDS)  # polls, up to the deadline
        raise AssertionError(f"it did not listen in time:\n{self._end_of_output()}")

    def _end_of_output(self) -> str:
        return self.output.read_text(errors="replace")[-4000:]


@contextmanager
def headrace(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a node on the folder; give its address. At the end it is stopped cleanly."""
    node = HeadraceProcess(folder, settings)
    try:
        yield node.bootstrap
        status = node.stop()
        assert status == 0, f"it ended with {status}:\n{node.output.read_text()[-4000:]}"
    finally:
        node.kill()
