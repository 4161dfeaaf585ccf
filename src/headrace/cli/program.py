"""`headrace` itself: finding the command, and its exit."""

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from headrace import __version__
from headrace.cli import COMMANDS
from headrace.cli.options import CommandGroup
from headrace.cli.running import as_exit_codes
from headrace.cli.streams import (
    EXIT_OUTPUT_LOST,
    explain_lost_output,
    finish_streams,
    say,
    tell,
)


class Program(CommandGroup):
    """A group that imports its commands when they are called; its help needs them all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"headrace.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise click.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with as_exit_codes():
            return super().invoke(ctx)


def run() -> NoReturn:
    """Run the command of this process; exit with its code."""
    code: object
    try:
        code = headrace(prog_name="headrace")
    except SystemExit as end:
        code = end.code
    except OSError as error:  # click's own: help, or an error that cannot be printed
        tell(f"headrace: {explain_lost_output(error)}")
        code = EXIT_OUTPUT_LOST
    sys.exit(finish_streams(code if isinstance(code, int) else int(code is not None)))


def _show_completion(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        from headrace.cli.completion import completion_script, current_shell  # noqa: PLC0415  rare

        say(completion_script(ctx.command, current_shell()))
        ctx.exit()


def _install_completion(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        from headrace.cli.completion import current_shell, install_completion  # noqa: PLC0415  rare

        shell = current_shell()
        say(f"{shell} completion installed in {install_completion(ctx.command, shell)}")
        say("Completion will take effect once you restart the terminal")
        ctx.exit()


@click.group(
    cls=Program,
    epilog="Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable.",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(
    __version__, message="%(prog)s %(version)s", help="Print the version; `version` says more."
)
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Install completion for the current shell.",
)
@click.option(
    "--show-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_completion,
    help="Show completion for the current shell, to copy it or customize the installation.",
)
def headrace() -> None:
    """A Kafka-compatible distributed log in Python."""
