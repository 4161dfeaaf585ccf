"""`headrace configs`: describe, set, unset; of topics, brokers, groups and client metrics."""

from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.client.admin import Admin
from headrace.client.configs import Config, Resource, ResourceType
from headrace.client.outcomes import values_of

configs = typer.Typer(
    help="Read and change configs of topics, brokers, groups and client metrics.",
    no_args_is_help=True,
)

EVERY_BROKER = "default"


class Kind(StrEnum):
    """What has configs."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


KindArgument = Annotated[
    Kind, typer.Argument(metavar="KIND", help="topic, broker, group or client-metrics.")
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name; a broker's id, or `default` for all brokers."),
]


@configs.command()
def describe(
    kind: KindArgument,
    name: Name,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Only this config; repeatable.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also what nobody has set.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="What each is for.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show configs with where their values come from."""
    resource = _resource(kind, name)

    async def work() -> list[Config]:
        async with Admin(bootstrap) as admin:
            outcomes = await admin.describe_configs(
                [resource], names=key or None, with_documentation=docs
            )
        return values_of(outcomes)[resource]

    found = complete(work())
    shown = [row for row in found if everything or key or not row.is_default]
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
def set_(
    kind: KindArgument,
    name: Name,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", show_default=False)],
    *,
    append: Annotated[
        bool, typer.Option("--append", help="Add to lists instead of replacing them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set configs; the others stay as they are."""
    resource = _resource(kind, name)
    values = parse_pairs(pairs, "KEY=VALUE")

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.alter_configs(
                resource,
                set=None if append else values,
                append=values if append else None,
                validate_only=dry_run,
            )

    complete(work())
    _confirm(resource, sorted(values), as_json=as_json, verb="could set" if dry_run else "set")


@configs.command()
def unset(
    kind: KindArgument,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", show_default=False)],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let configs be what they are when nobody sets them."""
    resource = _resource(kind, name)

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.alter_configs(resource, unset=keys, validate_only=dry_run)

    complete(work())
    _confirm(resource, sorted(keys), as_json=as_json, verb="could unset" if dry_run else "unset")


def _resource(kind: Kind, name: str) -> Resource:
    if kind is Kind.BROKER:
        if name == EVERY_BROKER:
            return Resource(ResourceType.BROKER, "")
        if not name.isdigit():
            usage_error(f"broker {name!r}: give the number of a node, or `{EVERY_BROKER}`")
    return Resource(ResourceType[kind.name], name)


def _confirm(resource: Resource, keys: list[str], *, as_json: bool, verb: str) -> None:
    if as_json:
        kind = resource.resource_type.name.lower().replace("_", "-")
        print_json({"kind": kind, "name": resource.name, "keys": keys, "done": verb})
    else:
        print(f"{verb} {', '.join(keys)} of {resource}")


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
