"""The command line: one file a command; a command prints, it never decides.

A command's module is imported when the command is called, so that none waits for what only another
one needs; help and completion load them all. Exit codes are in `running`.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import typer

COMMANDS: Final = {
    "up": "up:up",
    "topics": "topics:topics",
    "configs": "configs:configs",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "groups": "groups:groups",
    "txn": "txn:txn",
    "cluster": "cluster:cluster",
    "log": "log_dump:log",
    "version": "version:version",
}
"""Where each command is: its module here, and its function or group there."""

_COMPLETION_VARIABLE: Final = "_HEADRACE_COMPLETE"


def main() -> None:
    """Run the command that the process was called with."""
    from headrace.cli.running import run_command  # noqa: PLC0415  a package's own module

    run_command(build(_wanted(sys.argv[1:])))


def build(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Give the program with these commands of it."""
    app = typer.Typer(
        name="headrace",
        help="A Kafka-compatible distributed log in Python.",
        epilog="Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_commands)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(f"{__name__}.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _commands() -> None:
    """Keep `headrace` a group of commands, however few are loaded."""


def _wanted(words: list[str]) -> Iterable[str]:
    """Give the one command that is called, or all where they must be known."""
    if words and words[0] in COMMANDS and _COMPLETION_VARIABLE not in os.environ:
        return words[:1]
    return COMMANDS
