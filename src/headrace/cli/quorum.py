"""`headrace quorum`: the nodes that agree on the metadata log, and how many they are."""

from pathlib import Path

import click
from click.exceptions import Exit

from headrace.cli.node_calls import (
    NodeCalls,
    Views,
    ask_all,
    node_option,
    parse_nodes,
    read_secret_file,
    secret_option,
)
from headrace.cli.options import CommandGroup, json_option
from headrace.cli.output import print_json
from headrace.cli.quorum_explanation import explain as explain_views
from headrace.cli.quorum_voters import replace, resize
from headrace.cli.running import EXIT_REFUSED, complete
from headrace.cli.streams import say


@click.group(cls=CommandGroup)
def quorum() -> None:
    """Inspect the metadata quorum, and change who votes."""


quorum.add_command(resize)
quorum.add_command(replace)


@quorum.command()
@json_option
@node_option
@secret_option
def explain(*, as_json: bool, node: str, secret_file: Path | None) -> None:
    """Explain who leads, who lags, what is wrong and what to do.

    The exit code is 1 if something is wrong.
    """

    async def work() -> Views:
        async with NodeCalls(read_secret_file(secret_file)) as calls:
            return await ask_all(calls, parse_nodes(node))

    views = complete(work())
    explanation = explain_views(views.seen, views.failed)
    if as_json:
        print_json(explanation)
    else:
        for line in explanation.findings:
            say(line)
        if explanation.remedies:
            say()
            say("What to do:")
        for line in explanation.remedies:
            say(f"- {line}")
        if explanation.is_healthy:
            say("All is well.")
    if not explanation.is_healthy:
        raise Exit(EXIT_REFUSED)
