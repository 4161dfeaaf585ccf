"""`headrace` itself: finding commands, and how they end."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli import COMMANDS
from headrace.cli.program import headrace

PROGRAM = "from headrace.cli import main; main()"
DEADLINE_SECONDS = 60


@contextmanager
def printing_without_end(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that has printed its first line, and prints more than a pipe holds."""
    file = folder / "leader-epoch-checkpoint"
    file.write_text("0\n0\n")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "log", "dump", *[str(file)] * 10_000],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Where tests run in the background, Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(str(file).encode())
        yield process
    finally:
        process.kill()
        process.communicate()


def test_help_lists_every_command_in_the_order_of_the_table() -> None:
    done = CliRunner().invoke(headrace, ["--help"])
    assert done.exit_code == 0
    commands = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in commands.splitlines()] == list(COMMANDS)


def test_a_command_that_does_not_exist_is_wrong_usage_and_the_nearest_one_is_named() -> None:
    done = CliRunner().invoke(headrace, ["topcs", "list"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "topcs" in done.stderr
    assert "'topics'" in done.stderr


def modules_after(program: str, *words: str) -> set[str]:
    """Run a program; give the modules that it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("command", ["up", "topics", "produce", "log", "version"])
@pytest.mark.slow
def test_a_command_waits_for_no_module_that_only_another_one_needs(command: str) -> None:
    program = "from headrace.cli import main\ntry: main()\nexcept SystemExit: pass"
    modules = modules_after(program, command, "--help")
    others = {place.partition(":")[0] for name, place in COMMANDS.items() if name != command}
    assert not modules.intersection(f"headrace.cli.{name}" for name in others)
    assert not modules.intersection({"rich", "starlette", "uvicorn", "prometheus_client"})


@pytest.mark.slow
def test_a_node_starts_without_what_groups_and_pages_need() -> None:
    modules = modules_after("import headrace.node.node")
    heavy = {"headrace.groups.machine", "headrace.web", "starlette", "uvicorn", "rich", "re2"}
    assert not modules.intersection(heavy)


def test_ctrl_c_ends_a_command_quietly_with_130(tmp_path: Path) -> None:
    with printing_without_end(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, errors) == (130, b"")


@pytest.mark.slow
def test_a_reader_that_had_enough_is_no_error(tmp_path: Path) -> None:
    with printing_without_end(tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(DEADLINE_SECONDS) == 0
        assert process.stderr.read() == b""
        process.stdout = None
