"""Options shared by commands, and command groups in source order."""

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any, Final

import click

from headrace.cli.client_config import bootstrap_options
from headrace.cli.running import usage_error

bootstrap_option: Final = bootstrap_options("--config", "--command-config")
bootstrap_beside_config: Final = bootstrap_options("--command-config")
"""The same for commands whose `--config` is that of a topic."""
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only check.")
yes_option: Final = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


class FilePath(click.Path):
    """A non-empty path: an empty one would mean the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """A number in a range, and neither infinite nor `nan`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not a number to count with.", param, ctx)
        return number


class CommandGroup(click.Group):
    """A group whose help lists commands in source order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Parse `key=value` words; usage error for anything else."""
    values = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            usage_error(f"{option} {pair!r}: write it as key=value")
        values[name.strip()] = value
    return values
