"""Options that the commands of `headrace mirror` share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgspec

from headrace.cli.client_config import read_client_config
from headrace.cli.running import usage_error
from headrace.cli.whole_numbers import whole_number
from headrace.client.mirror.choice import Choice
from headrace.client.mirror.mirror import CLIENT_ID
from headrace.client.settings import ClientSettings
from headrace.config.properties import read_file
from headrace.errors import HeadraceError

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = {"": 1, "K": 1000, "M": 1000_000, "G": 1000_000_000}


class ByteRate(click.ParamType[int]):
    """A number of bytes per second, with K, M or G for thousands, millions and billions."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = value.upper()
        unit = text[-1:] if text[-1:] in "KMG" else ""
        number = whole_number(text.removesuffix(unit))
        if not number:
            self.fail(f"{value!r} is not a number of bytes, such as 500K, 20M or 1G", param, ctx)
        return number * _UNITS[unit]


class Place(NamedTuple):
    """A cluster, and how to connect to it."""

    bootstrap: str
    settings: ClientSettings


def _read_config(
    ctx: click.Context, param: click.Parameter, path: Path | None
) -> tuple[ClientSettings, str | None]:
    """Return what a file of properties says: settings, and bootstrap servers if it has them."""
    if path is None:
        return ClientSettings(client_id=CLIENT_ID), None
    try:
        settings, bootstrap = read_client_config(read_file(path))
    except HeadraceError as error:
        usage_error(f"{param.opts[0]} {path}: {str(error).removeprefix(f'{path}: ')}")
    if settings.client_id == ClientSettings().client_id:
        settings = msgspec.structs.replace(settings, client_id=CLIENT_ID)
    return settings, bootstrap


def cluster_options(command: F) -> F:
    """Add --from, --to and the files that say how to connect."""
    for name in ("--to-config", "--from-config"):
        command = click.option(
            name,
            metavar="FILE",
            type=click.Path(path_type=Path),
            callback=_read_config,
            help="How to connect there: properties by Kafka's names, such as security.protocol.",
        )(command)
    command = click.option(
        "--to", "target", metavar="HOST:PORT", help="A node of the Headrace cluster to copy to."
    )(command)
    return click.option(
        "--from", "source", metavar="HOST:PORT", help="A node of any Kafka cluster; only read."
    )(command)


Config = tuple[ClientSettings, str | None]
"""What a command gets for --from-config and --to-config."""


def place_of(bootstrap: str | None, config: Config) -> Place | None:
    """Return a cluster, None if neither an option nor a file names it."""
    settings, servers = config
    address = bootstrap or servers
    return Place(address, settings) if address else None


def choice_options(command: F) -> F:
    """Add --topics and --exclude."""
    command = click.option(
        "--exclude", "excluded", metavar="REGEX", multiple=True, help="Topics to leave out."
    )(command)
    return click.option(
        "--topics",
        "wanted",
        metavar="REGEX",
        multiple=True,
        help="Topics, by their whole name; repeatable. Default: all but internal ones.",
    )(command)


groups_option: Final = click.option(
    "--groups",
    "groups",
    metavar="REGEX",
    multiple=True,
    help="Groups whose positions are copied; repeatable. Default: all.",
)


def need_clusters(
    source: str | None, from_config: Config, target: str | None, to_config: Config
) -> tuple[Place, Place]:
    """Return both clusters; usage error if one is missing or both are the same."""
    here, there = place_of(source, from_config), place_of(target, to_config)
    if here is None or there is None:
        usage_error("--from and --to are needed: the clusters to copy from and to")
    if here.bootstrap == there.bootstrap:
        usage_error("--from and --to are the same cluster")
    return here, there


def topic_choice(wanted: tuple[str, ...], excluded: tuple[str, ...]) -> Choice:
    return Choice(wanted or (".*",), excluded)


def group_choice(groups: tuple[str, ...]) -> Choice:
    return Choice(groups or (".*",))
