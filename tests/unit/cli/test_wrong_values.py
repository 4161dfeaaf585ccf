"""Every command with values that mean nothing: it ends with a message, not with a traceback."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace

pytestmark = pytest.mark.slow
NOWHERE: Final = "127.0.0.1:1"
ELSEWHERE: Final = ("up", "pipeline", "table")
"""Those that start nodes, or Spark."""
HOST_NAMES: Final = ("9" * 30, "=")
NUMBERS: Final = ("²", "²h", "x:²", "9" * 5000, f"{'9' * 5000}h", f"x:{'9' * 5000}")
"""What `str.isdigit` takes for digits, and more of them than `int` takes."""
VALUES: Final = ("", "..", "bytes \udcff", *HOST_NAMES, *NUMBERS)


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif not {name, *path}.intersection(ELSEWHERE):
            yield (*path, name), command


def words_of(command: click.Command) -> Iterator[list[str]]:
    """Yield a command line for each argument and option that takes a value, with each value."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    filled = ["x"] * len(arguments)
    for value in VALUES:
        for at in range(len(arguments)):
            yield ["--", *filled[:at], value, *filled[at + 1 :]]
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag:
                if option.metavar == "HOST:PORT" and value in (*HOST_NAMES, *NUMBERS):
                    continue  # a resolver may take its time for it
                yield [option.opts[0], value, *filled]


def assert_in_order(words: list[str], done: Result) -> None:
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
    assert done.exit_code in range(4), (words, done)
    assert done.exit_code == 0 or done.stderr.strip(), words


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=" ".join(path)) for path, _ in commands(headrace)]
)
def test_it_ends_with_a_message(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"HEADRACE_BOOTSTRAP": NOWHERE, "HEADRACE_NODE": NOWHERE})
    for words in words_of(dict(commands(headrace))[path]):
        assert_in_order([*path, *words], runner.invoke(headrace, [*path, *words], input=""))


@pytest.mark.parametrize("option", ["--interval", "--sample"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400"])
def test_a_time_without_an_end_is_wrong_usage(option: str, value: str) -> None:
    done = CliRunner().invoke(headrace, ["cluster", "rebalance", f"{option}={value}"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert option in done.stderr


@pytest.mark.parametrize("words", [["--no-such-option"], ["x"] * 30])
def test_what_no_command_knows_is_wrong_usage(words: list[str]) -> None:
    for path, command in commands(headrace):
        takes_many = any(each.nargs < 0 for each in command.params)
        if words[0].startswith("--") or not takes_many:
            done = CliRunner().invoke(headrace, [*path, *words])
            assert (done.exit_code, done.stdout) == (2, ""), path
            assert "Usage:" in done.stderr
