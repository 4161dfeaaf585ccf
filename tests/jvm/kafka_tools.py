"""Apache Kafka's command-line tools, run one after the other in JVMs that stay."""

import atexit
import subprocess
from typing import NamedTuple

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
