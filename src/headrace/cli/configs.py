"""`headrace configs`: describe, set, unset; of topics, brokers, groups and client metrics."""

from typing import Final

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import (
    CommandGroup,
    bootstrap_option,
    dry_run_option,
    json_option,
    parse_pairs,
)
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import say
from headrace.cli.whole_numbers import whole_number
from headrace.client.admin import Admin
from headrace.client.configs import Config, Resource, ResourceType
from headrace.client.outcomes import values_of

KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}
"""Resource types with configs."""
EVERY_BROKER: Final = "default"

kind_argument: Final = click.argument(
    "kind",
    metavar="KIND",
    type=click.Choice(list(KINDS)),
    help="topic, broker, group or client-metrics.",
)
name_argument: Final = click.argument(
    "name", metavar="NAME", help="Its name; a broker's id, or `default` for all brokers."
)


@click.group(cls=CommandGroup)
def configs() -> None:
    """Read and change configs of topics, brokers, groups and client metrics."""


@configs.command()
@kind_argument
@name_argument
@click.option("--key", "-k", "keys", multiple=True, help="Only this config; repeatable.")
@click.option("--all", "-a", "everything", is_flag=True, help="Include defaults.")
@click.option("--docs", is_flag=True, help="Explain each config.")
@json_option
@bootstrap_option
def describe(
    kind: str,
    name: str,
    *,
    keys: tuple[str, ...],
    everything: bool,
    docs: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show configs and the sources of their values."""
    resource = _resource(kind, name)

    async def work() -> list[Config]:
        async with Admin(bootstrap, client_settings()) as admin:
            outcomes = await admin.describe_configs(
                [resource], names=keys or None, with_documentation=docs
            )
        return values_of(outcomes)[resource]

    found = complete(work())
    shown = [row for row in found if everything or keys or not row.is_default]
    if as_json:
        print_json([_config_json(row, with_docs=docs) for row in shown])
        return
    columns = ("config", "value", "from", "read-only")
    rows = [
        (row.name, _value(row), row.source.name.lower().replace("_", " "), row.is_read_only)
        for row in shown
    ]
    if docs:
        print_table(
            (*columns, "about"),
            [(*line, row.documentation) for line, row in zip(rows, shown, strict=True)],
        )
    else:
        print_table(columns, rows)


@configs.command("set")
@kind_argument
@name_argument
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--append", is_flag=True, help="Add to lists instead of replacing them.")
@dry_run_option
@json_option
@bootstrap_option
def set_(
    kind: str,
    name: str,
    pairs: tuple[str, ...],
    *,
    append: bool,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Set configs; others are unchanged."""
    resource = _resource(kind, name)
    values = parse_pairs(pairs, "KEY=VALUE")

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.alter_configs(
                resource,
                set=None if append else values,
                append=values if append else None,
                validate_only=dry_run,
            )

    complete(work())
    _confirm(resource, sorted(values), as_json=as_json, verb="could set" if dry_run else "set")


@configs.command()
@kind_argument
@name_argument
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@dry_run_option
@json_option
@bootstrap_option
def unset(
    kind: str,
    name: str,
    keys: tuple[str, ...],
    *,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Reset configs to their defaults."""
    resource = _resource(kind, name)

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.alter_configs(resource, unset=keys, validate_only=dry_run)

    complete(work())
    _confirm(resource, sorted(keys), as_json=as_json, verb="could unset" if dry_run else "unset")


def _resource(kind: str, name: str) -> Resource:
    if kind == "broker":
        if name == EVERY_BROKER:
            return Resource(ResourceType.BROKER, "")
        if whole_number(name) is None:
            usage_error(f"broker {name!r}: give the number of a node, or `{EVERY_BROKER}`")
    return Resource(KINDS[kind], name)


def _confirm(resource: Resource, keys: list[str], *, as_json: bool, verb: str) -> None:
    if as_json:
        kind = resource.resource_type.name.lower().replace("_", "-")
        print_json({"kind": kind, "name": resource.name, "keys": keys, "done": verb})
    else:
        say(f"{verb} {', '.join(keys)} of {resource}")


def _config_json(config: Config, *, with_docs: bool) -> dict[str, object]:
    described: dict[str, object] = {
        "config": config.name,
        "value": config.value,
        "source": config.source.name,
        "type": config.config_type.name,
        "read_only": config.is_read_only,
        "sensitive": config.is_sensitive,
        "synonyms": [
            {"config": row.name, "value": row.value, "source": row.source.name}
            for row in config.synonyms
        ],
    }
    if with_docs:
        described["documentation"] = config.documentation
    return described


def _value(config: Config) -> str:
    if config.is_sensitive:
        return "(hidden)"
    return "(none)" if config.value is None else config.value
