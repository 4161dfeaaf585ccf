"""Apache Kafka's command-line tools, run as their scripts run them: one JVM a call."""

import subprocess
from typing import NamedTuple

from tools.jvm.harness import JVM_OPTIONS, jars

TOOL_SECONDS_MAX = 60
TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"


class Output(NamedTuple):
    """What a tool printed, and its exit status."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.stdout.splitlines()]


def run_tool(main: str, *arguments: str, text: str = "") -> Output:
    """Run a tool by its class with `text` as its standard input."""
    done = subprocess.run(
        ["java", *JVM_OPTIONS, "-cp", f"{jars()}/*", main, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    return Output(done.returncode, done.stdout, done.stderr)


def run_well(main: str, *arguments: str, text: str = "") -> Output:
    """Run a tool that must succeed."""
    output = run_tool(main, *arguments, text=text)
    assert output.status == 0, output.stdout + output.stderr
    return output
