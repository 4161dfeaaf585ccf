"""`headrace version`: what is installed and how it runs."""

import json
import platform
from typing import Annotated

import typer

from headrace import __version__
from headrace._mode import active_mode
from headrace.wire.messages import KAFKA_VERSION


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the version, the Kafka protocol that it speaks, and whether hot code is compiled."""
    facts = {
        "headrace": __version__,
        "kafka_protocol": KAFKA_VERSION,
        "hot_code": active_mode(),
        "python": platform.python_version(),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):15} {value}")
