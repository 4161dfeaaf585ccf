"""The command line: one file a command; a command prints, it never decides."""

import typer

from headrace.cli import version

app = typer.Typer(
    name="headrace",
    help="A Kafka-compatible distributed log in Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Keep `headrace` a group of commands, however few there are."""


app.command("version")(version.version)


def main() -> None:
    app()
