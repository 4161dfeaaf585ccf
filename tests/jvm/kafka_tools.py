"""Apache Kafka's command-line tools, run one after the other in JVMs that stay."""

import atexit
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.jvm.harness import HERE, JVM_OPTIONS, Program, compile_java, jars

TOOL_SECONDS_MAX = 60
TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ALONE = frozenset({f"{TOOLS}.VerifiableProducer"})
"""Tools that do their last work while the JVM ends: each call has a JVM of its own."""


class Output(NamedTuple):
    """What a tool printed, and its exit status."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.stdout.splitlines()]


_idle: list[Program] = []
"""JVMs that run no tool now. Each runs one at a time."""


def run_tool(main: str, *arguments: str, text: str = "") -> Output:
    """Run a tool by its class with `text` as its standard input."""
    if main in ALONE:
        return _run_alone(main, *arguments, text=text)
    program = _idle.pop() if _idle else _new_program()
    words = (text, *arguments)
    hexes = [word.encode().hex() for word in words]
    request = "\t".join((main, hexes[0], str(TOOL_SECONDS_MAX), *hexes[1:]))
    status, *printed = program.ask(request).split("\t")
    output, errors = (bytes.fromhex(each).decode() for each in printed)
    assert status, f"{main} did not end in {TOOL_SECONDS_MAX} s: {output} {errors}"
    _idle.append(program)
    return Output(int(status), output, errors)


def _run_alone(main: str, *arguments: str, text: str) -> Output:
    done = subprocess.run(
        ["java", *JVM_OPTIONS, "-cp", f"{jars()}/*", main, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    return Output(done.returncode, done.stdout, done.stderr)


def _new_program() -> Program:
    program = Program(compile_java(HERE / "ToolServer.java"), "ToolServer")
    program.__enter__()
    atexit.register(program.__exit__)
    return program


def run_well(main: str, *arguments: str, text: str = "") -> Output:
    """Run a tool that must succeed."""
    output = run_tool(main, *arguments, text=text)
    assert output.status == 0, output.stdout + output.stderr
    return output


class Running:
    """A tool that goes on while a test does something else, in a JVM of its own."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, errors: Path) -> None:
        self._process, self._output, self._errors = process, output, errors
        self._lines: list[str] = []
        self._position = 0

    @property
    def lines(self) -> list[str]:
        """Whole lines that it has printed so far."""
        with self._output.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        self._lines += whole.decode().splitlines()
        return self._lines

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def wait_for(self, is_so: Callable[[], bool], what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            has_ended = self._process.poll() is not None
            assert not has_ended or is_so(), f"it ended before {what}: {self._end()}"
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}: {self._end()}"
            time.sleep(0.02)  # polls, up to the deadline

    def wait(self, seconds: float = 120) -> None:
        """Return when it has ended, and well."""
        status = self._process.wait(seconds)
        assert status == 0, f"it ended with {status}: {self._end()}"

    def stop(self) -> None:
        """End it as a user does; return when it has done its last work."""
        self._process.terminate()
        self._process.wait(TOOL_SECONDS_MAX)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _end(self) -> str:
        return self._output.read_text()[-2000:] + self._errors.read_text()[-2000:]


@contextmanager
def running_tool(main: str, *arguments: str) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "stdout"), Path(folder, "stderr")
        with output.open("wb") as out, errors.open("wb") as err:
            command = ["java", *JVM_OPTIONS, "-cp", f"{jars()}/*", main, *arguments]
            tool = Running(subprocess.Popen(command, stdout=out, stderr=err), output, errors)
        try:
            yield tool
        finally:
            tool.kill()
