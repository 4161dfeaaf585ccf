"""`headrace tier fsck`: is every byte of the tier accounted for?"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import click
from click.exceptions import Exit
from msgspec import Struct

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option, yes_option
from headrace.cli.running import EXIT_REFUSED, complete, make_sure
from headrace.cli.streams import say
from headrace.cli.tier_findings import print_report, print_report_json
from headrace.cli.tier_store import grace_ms_of, grace_option, open_cluster_store, store_option
from headrace.client.admin import Admin
from headrace.client.remote_log import RemoteLogTopic
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError
from headrace.remote.audit import Ages, Report
from headrace.remote.inventory import Inventory, Known, LeaderFacts, judge, take_inventory
from headrace.remote.leases import Leases, read_leases
from headrace.remote.repair import (
    Plan,
    Skipped,
    carry_out,
    plan_repairs,
    take_over,
    why_moot,
)
from headrace.remote.segments import PartitionKey, TierError
from headrace.remote.store import ObjectStore
from headrace.surroundings import clocks

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
"""Kafka's timestamps for the log's start, and for what the leader has on its disk (KIP-405)."""


Starts: TypeAlias = dict[PartitionKey, int]
"""Where logs or disks begin."""


class Outcome(Struct):
    """What a run found and did."""

    report: Report
    inventory: Inventory
    repaired: list[str]
    skipped: list[Skipped]


@click.command()
@click.option("--repair", is_flag=True, help="Delete what was left behind.")
@click.option("--checksums", is_flag=True, help="Read every object and compare checksums.")
@grace_option
@store_option
@yes_option
@json_option
@bootstrap_option
def fsck(
    *,
    repair: bool,
    checksums: bool,
    grace_ms: int | None,
    store: str | None,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Compare the events of the tier with the objects in its store.

    Every segment and every object is in one class, and the bytes of all classes add up to the
    store's listing. Exit code 0 if nothing needs attention, else 1. --repair finishes copies and
    deletions that were left half done, by the steps that brokers use, and deletes objects that no
    event names. It never touches what is lost, damaged, foreign, or being read.
    """
    outcome = complete(
        _run(bootstrap, store, grace_ms, checksums=checksums, repairs=repair, is_sure=yes)
    )
    if as_json:
        print_report_json(outcome.report, outcome.inventory, outcome.repaired, outcome.skipped)
    else:
        print_report(outcome.report, outcome.inventory)
        for what in outcome.repaired:
            say(f"repaired: {what}")
        for left in outcome.skipped:
            say(f"left: {left.what}: {left.why}")
    if not outcome.report.is_clean:
        raise Exit(EXIT_REFUSED)


async def _run(
    bootstrap: str,
    url: str | None,
    grace_ms: int | None,
    *,
    checksums: bool,
    repairs: bool,
    is_sure: bool,
) -> Outcome:
    async with Admin(bootstrap, client_settings()) as admin:
        store = await open_cluster_store(admin, url)
        try:
            events = RemoteLogTopic(admin.cluster)
            inventory = await inventory_of(admin, store, events)
            ages = Ages(_now_ms(), await grace_ms_of(admin, grace_ms))
            report = await judge(store, inventory, ages, checks_checksums=checksums)
            outcome = Outcome(report, inventory, [], [])
            if repairs:
                plan = plan_repairs(report, await leases_of(store), ages)
                outcome.skipped = plan.skipped
                if plan.repairs:
                    _confirm(plan, is_sure=is_sure)
                    await _repair(plan, store, events, outcome)
                    outcome.inventory = await inventory_of(admin, store, events)
                    outcome.report = await judge(
                        store, outcome.inventory, ages, checks_checksums=checksums
                    )
            return outcome
        finally:
            await store.close()


async def inventory_of(admin: Admin, store: ObjectStore, events: RemoteLogTopic) -> Inventory:
    """Return everything that there is to judge, what leaders say included.

    What has left a disk was copied before, and what has left the tier is below the log's start: so
    leaders are asked for their disks before the events are read, and for their logs after that.
    """
    local: Starts = {}

    async def ask_for_disks(before: Known) -> None:
        local.update(await _ask_leaders(admin, before.partitions(), EARLIEST_LOCAL))

    inventory = await take_inventory(store, events, ask_for_disks)
    inventory.topic_ids = {topic.topic_id for topic in await admin.list_topics(with_internal=True)}
    known = inventory.after.partitions().keys()
    forgotten = inventory.stored_partitions() - known
    starts = await _ask_leaders(admin, known | forgotten, EARLIEST)
    local.update(await _ask_leaders(admin, forgotten, EARLIEST_LOCAL))
    inventory.leaders = {
        key: LeaderFacts(log_start_offset=start, local_start_offset=local.get(key))
        for key, start in starts.items()
    }
    return inventory


async def _ask_leaders(admin: Admin, keys: Iterable[PartitionKey], which: int) -> Starts:
    """Return where logs begin; nothing of leaders that cannot say."""
    names = {topic.topic_id: topic for topic in await admin.list_topics(with_internal=True)}
    partitions: dict[TopicPartition, PartitionKey] = {}
    for key in keys:
        topic = names.get(key[0])
        if topic is not None and key[1] < len(topic.partitions):
            partitions[TopicPartition(topic.name, key[1])] = key
    found = await admin.list_offsets(dict.fromkeys(partitions, which)) if partitions else {}
    return {
        partitions[each]: row.offset
        for each, row in found.items()
        if not isinstance(row, KafkaError) and row.offset >= 0
    }


async def leases_of(store: ObjectStore) -> Leases:
    """Return the leases of readers; without them nothing may be deleted."""
    try:
        return await read_leases(store, _now_ms())
    except ValueError as error:
        raise TierError(f"nothing is repaired: {error}") from None


def _confirm(plan: Plan, *, is_sure: bool) -> None:
    freed = sum(each.freed_bytes for each in plan.repairs)
    make_sure(f"{len(plan.repairs)} repairs would free {freed} bytes; go on?", is_sure=is_sure)


async def _repair(plan: Plan, store: ObjectStore, events: RemoteLogTopic, outcome: Outcome) -> None:
    known = await take_over(plan.repairs, events.read, events.publish)
    for repair in plan.repairs:
        if why := why_moot(repair, known):
            outcome.skipped.append(Skipped(repair.what, why))
            continue
        lease = await carry_out(repair, store, events.publish, _now_ms())
        if lease is None:
            outcome.repaired.append(repair.what)
        else:
            why = f"{lease.holder} reads it (lease {lease.id})"
            outcome.skipped.append(Skipped(repair.what, why))


def _now_ms() -> int:
    return clocks().time_ns() // 1_000_000
