"""Which processes of a Spark job there are to kill, from /proc."""

from pathlib import Path
from typing import NamedTuple

EXECUTOR = "CoarseGrainedExecutorBackend"
DAEMON = "pyspark.daemon"
READER = "python_streaming_source_runner"


class Process(NamedTuple):
    """One process, and which it came from."""

    pid: int
    parent: int
    command: str


def executors(job: int) -> list[int]:
    """The JVMs of a job's executors, which are not its own."""
    return [each.pid for each in _family(job) if EXECUTOR in each.command]


def python_workers(job: int) -> list[int]:
    """The Python processes of a job that run tasks, plan, commit, or read a stream's offsets."""
    family = _family(job)
    daemons = {each.pid for each in family if DAEMON in each.command}
    return [each.pid for each in family if each.parent in daemons or READER in each.command]


def _family(ancestor: int) -> list[Process]:
    """Everything that came from a process, children before theirs."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text()
            command = (folder / "cmdline").read_text()
        except OSError:
            continue  # it ended meanwhile
        state, parent = state.rpartition(")")[2].split()[:2]
        if state != "Z":
            process = Process(int(folder.name), int(parent), command)
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [ancestor]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += [each.pid for each in born]
    return found
