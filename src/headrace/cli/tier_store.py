"""The store of a cluster's tier, as commands reach it.

By default it is the one that the brokers use: they say where it is. Credentials come from the
environment, as the providers' own tools take them; brokers never tell theirs.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from headrace.cli.durations import Duration
from headrace.cli.running import usage_error
from headrace.client.admin import Admin
from headrace.client.configs import Resource
from headrace.client.outcomes import values_of
from headrace.config import tier
from headrace.remote.audit import GRACE_MS
from headrace.remote.store import ObjectStore
from headrace.remote.store_options import StoreOptions

F = TypeVar("F", bound=Callable[..., Any])

store_option: Final = click.option(
    "--store",
    metavar="URL",
    envvar="HEADRACE_TIER_STORE",
    show_envvar=True,
    help="The store of the tier. Default: the brokers' own.",
)


grace_option: Final = click.option(
    "--grace",
    "grace_ms",
    type=Duration(),
    metavar="DURATION",
    help="How long a copy or a deletion may take before it counts as left behind. Default: the "
    f"brokers' {tier.TIER_ORPHAN_GRACE_MS.name}.",
)


async def find_store(admin: Admin, url: str | None) -> tuple[str, StoreOptions]:
    """Return how to open the store that was named, or the one of the cluster."""
    settings = await _brokers_settings(admin)
    brokers = settings.get(tier.TIER_STORE.name)
    place = url or brokers
    if not place:
        usage_error(
            f"the brokers have no {tier.TIER_STORE.name}: name the store of the tier with --store"
        )
    if place != brokers:
        return place, StoreOptions()
    return place, StoreOptions(
        endpoint=settings.get(tier.TIER_STORE_ENDPOINT.name),
        region=settings.get(tier.TIER_STORE_REGION.name),
        allow_http=settings.get(tier.TIER_STORE_ALLOW_HTTP.name) == "true",
    )


def open_place(url: str, options: StoreOptions | None = None) -> ObjectStore:
    """Open a store."""
    from headrace.remote.object_store import open_store  # noqa: PLC0415  not for all commands

    return open_store(url, options)


async def open_cluster_store(admin: Admin, url: str | None) -> ObjectStore:
    """Open the store that was named, or the one of the cluster."""
    return open_place(*await find_store(admin, url))


async def grace_ms_of(admin: Admin, given_ms: int | None) -> int:
    """Return the grace period that was given, or the brokers'."""
    if given_ms is not None:
        return given_ms
    settings = await _brokers_settings(admin)
    return int(settings.get(tier.TIER_ORPHAN_GRACE_MS.name, GRACE_MS))


async def _brokers_settings(admin: Admin) -> dict[str, str]:
    """Return what a broker says of its store; nothing of brokers that know no tier of ours."""
    nodes = (await admin.describe_cluster()).nodes
    if not nodes:
        return {}
    resource = Resource.broker(nodes[0].node_id)
    names = [
        each.name
        for each in (
            tier.TIER_STORE,
            tier.TIER_STORE_ENDPOINT,
            tier.TIER_STORE_REGION,
            tier.TIER_STORE_ALLOW_HTTP,
            tier.TIER_ORPHAN_GRACE_MS,
        )
    ]
    found = values_of(await admin.describe_configs([resource], names=names))
    return {each.name: each.value for each in found[resource] if each.value}
