"""`headrace tier audit`: fsck with every byte read, on Spark."""

from typing import TypeAlias

import click
from click.exceptions import Exit

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.running import EXIT_REFUSED, complete, usage_error
from headrace.cli.tier_findings import print_report, print_report_json
from headrace.cli.tier_fsck import inventory_of
from headrace.cli.tier_store import find_store, grace_ms_of, grace_option, open_place, store_option
from headrace.client.admin import Admin
from headrace.client.remote_log import RemoteLogTopic
from headrace.remote.audit import Ages, Report
from headrace.remote.inventory import Inventory, finished_segments, judge
from headrace.remote.segments import SegmentId
from headrace.remote.store_options import StoreOptions
from headrace.surroundings import clocks


@click.command()
@click.option(
    "--master",
    metavar="MASTER",
    default="local[*]",
    help="Where Spark runs: local[4], spark://HOST:PORT, sc://HOST:PORT.",
)
@grace_option
@store_option
@json_option
@bootstrap_option
def audit(
    *, master: str, grace_ms: int | None, store: str | None, as_json: bool, bootstrap: str
) -> None:
    """Check the tier as fsck does, and the checksums of all objects as a Spark job.

    Events and the listing are read here, objects by Spark's tasks. Needs headrace[spark]. Exit
    code 0 if nothing needs attention, else 1.
    """
    place, ages, inventory = complete(_gather(bootstrap, store, grace_ms))
    try:
        from headrace.spark.tier.audit import check_all  # noqa: PLC0415  Spark may not be there
    except ImportError:
        usage_error("audit needs Spark: pip install 'headrace[spark]'")
    damaged = check_all(master, *place, finished_segments(inventory))
    report = complete(_judge(place, inventory, ages, damaged))
    if as_json:
        print_report_json(report, inventory, [], [])
    else:
        print_report(report, inventory)
    if not report.is_clean:
        raise Exit(EXIT_REFUSED)


Place: TypeAlias = tuple[str, StoreOptions]


async def _gather(
    bootstrap: str, url: str | None, grace_ms: int | None
) -> tuple[Place, Ages, Inventory]:
    async with Admin(bootstrap, client_settings()) as admin:
        place = await find_store(admin, url)
        store = open_place(*place)
        try:
            ages = Ages(clocks().time_ns() // 1_000_000, await grace_ms_of(admin, grace_ms))
            return place, ages, await inventory_of(admin, store, RemoteLogTopic(admin.cluster))
        finally:
            await store.close()


async def _judge(
    place: Place, inventory: Inventory, ages: Ages, damaged: dict[SegmentId, str]
) -> Report:
    store = open_place(*place)
    try:
        return await judge(store, inventory, ages, damaged=damaged)
    finally:
        await store.close()
