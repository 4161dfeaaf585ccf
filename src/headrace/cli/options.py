"""Options that several commands have."""

from typing import Annotated, Final

import typer

from headrace.cli.running import usage_error

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A node of the cluster; several with commas between.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """Read `key=value` words; usage error for anything else."""
    values = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            usage_error(f"{option} {pair!r}: write it as key=value")
        values[name.strip()] = value
    return values
