"""`headrace quotas`: list, set and remove what users, client ids and addresses may use."""

from collections.abc import Callable
from typing import Any, Final

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
from headrace.client.admin import Admin
from headrace.client.quotas import QUOTA_TYPES, QuotaEntity

DEFAULT: Final = "(default)"
"""How the default of a type is shown."""
_NAMES: Final = {"user": "--user", "client-id": "--client-id", "ip": "--ip"}


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say whose quotas they are."""
    for kind, option in reversed(_NAMES.items()):
        word = kind.replace("-", " ") if kind != "ip" else "address"
        command = click.option(
            f"{option}-default", is_flag=True, help=f"Every {word} without a quota of its own."
        )(command)
        command = click.option(option, metavar="NAME", help=f"This {word}.")(command)
    return command


@click.group(cls=CommandGroup)
def quotas() -> None:
    """Read and change what users, client ids and addresses may use.

    producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate are for
    a --user, a --client-id or both; connection_creation_rate is for an --ip.
    """


@quotas.command("list")
@_entity_options
@json_option
@bootstrap_option
def list_(*, as_json: bool, bootstrap: str, **named: str | bool | None) -> None:
    """List quotas, all of them or those that these names are in."""
    names = _names(named)

    async def work() -> dict[QuotaEntity, dict[str, float]]:
        async with Admin(bootstrap, client_settings()) as admin:
            return await admin.describe_quotas(names)

    found = complete(work())
    rows = [
        (entity, key, value)
        for entity, limits in sorted(found.items(), key=lambda row: str(row[0]))
        for key, value in sorted(limits.items())
    ]
    if as_json:
        print_json(
            [{"entity": dict(entity.names), "quota": key, "value": v} for entity, key, v in rows]
        )
        return
    print_table(
        (*QUOTA_TYPES, "quota", "value"),
        [(*_cells(entity), key, f"{value:.15g}") for entity, key, value in rows],
    )


@quotas.command("set")
@click.argument("pairs", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@_entity_options
@dry_run_option
@json_option
@bootstrap_option
def set_(
    pairs: tuple[str, ...],
    *,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
    **named: str | bool | None,
) -> None:
    """Set quotas of a user, a client id, a user's client id or an address; others stay."""
    entity = _entity(named)
    values = {key: _number(key, text) for key, text in parse_pairs(pairs, "QUOTA=VALUE").items()}

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.alter_quotas(entity, set=values, validate_only=dry_run)

    complete(work())
    _confirm(entity, sorted(values), as_json=as_json, verb="could set" if dry_run else "set")


@quotas.command()
@click.argument("keys", metavar="QUOTA...", nargs=-1, required=True)
@_entity_options
@dry_run_option
@json_option
@bootstrap_option
def remove(
    keys: tuple[str, ...],
    *,
    dry_run: bool,
    as_json: bool,
    bootstrap: str,
    **named: str | bool | None,
) -> None:
    """Remove quotas; less specific ones hold then, if there are any."""
    entity = _entity(named)
    unset = list(dict.fromkeys(keys))

    async def work() -> None:
        async with Admin(bootstrap, client_settings()) as admin:
            await admin.alter_quotas(entity, remove=unset, validate_only=dry_run)

    complete(work())
    _confirm(entity, unset, as_json=as_json, verb="could remove" if dry_run else "removed")


def _names(named: dict[str, Any]) -> dict[str, str | None]:
    """Return the names that the options give, None for the default of a type."""
    names: dict[str, str | None] = {}
    for kind, option in _NAMES.items():
        key = option[2:].replace("-", "_")
        name, is_default = named[key], named[f"{key}_default"]
        if name is not None and is_default:
            usage_error(f"{option} {name} and {option}-default: give one of them")
        if name is not None or is_default:
            names[kind] = name
    return names


def _entity(named: dict[str, Any]) -> QuotaEntity:
    names = _names(named)
    if not names:
        usage_error("say whose quota it is: --user, --client-id, both, or --ip")
    return QuotaEntity.of(names)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        usage_error(f"{key}={text}: must be a number")


def _cells(entity: QuotaEntity) -> list[str]:
    names = dict(entity.names)
    return [(names[kind] or DEFAULT) if kind in names else "" for kind in QUOTA_TYPES]


def _confirm(entity: QuotaEntity, keys: list[str], *, as_json: bool, verb: str) -> None:
    if as_json:
        print_json({"entity": dict(entity.names), "quotas": keys, "done": verb})
    else:
        say(f"{verb} {', '.join(keys)} of {entity}")
