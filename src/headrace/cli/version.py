"""`headrace version`: what is installed and how it runs."""

import json
import platform

import click

from headrace import __version__
from headrace._mode import active_mode
from headrace.cli.streams import say
from headrace.wire.messages import KAFKA_VERSION


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(as_json: bool) -> None:
    """Print the version, the Kafka protocol that it speaks, and whether hot code is compiled."""
    facts = {
        "headrace": __version__,
        "kafka_protocol": KAFKA_VERSION,
        "hot_code": active_mode(),
        "python": platform.python_version(),
    }
    if as_json:
        say(json.dumps(facts))
        return
    for name, value in facts.items():
        say(f"{name.replace('_', ' '):15} {value}")
