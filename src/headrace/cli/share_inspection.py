"""`headrace share inspect`: the states of a queue's records, from their nodes."""

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete
from headrace.cli.streams import say
from headrace.client.cluster import Cluster
from headrace.client.node_pages import Pages, pages_at
from headrace.client.share.inspection import (
    InspectedPartition,
    Inspection,
    find_pages,
    inspect_queue,
    merge,
)


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--http",
    metavar="HOST:PORT",
    envvar="HEADRACE_HTTP",
    show_envvar=True,
    help="The HTTP port of one node; https://HOST:PORT with TLS.  "
    "[default: those of the nodes that lead the topic]",
)
@json_option
@bootstrap_option
def inspect(group: str, topic: str, *, http: str | None, as_json: bool, bootstrap: str) -> None:
    """Show every record in flight: holder, attempts, lock; and why records were given up.

    Only Headrace nodes provide this, each for the partitions that it leads.
    """
    if http is not None:
        found = inspect_queue(pages_at(http, client_settings().security), group, topic)
    else:

        async def work() -> list[Pages]:
            async with Cluster(bootstrap, client_settings()) as cluster:
                return await find_pages(cluster, topic)

        found = merge([inspect_queue(page, group, topic) for page in complete(work())])
    if as_json:
        print_json(found)
    else:
        _print_inspection(found)


def _print_inspection(found: Inspection) -> None:
    for partition in found.partitions:
        name = f"{found.topic}-{partition.partition}"
        if partition.is_loaded:
            _print_partition(name, partition)
        else:
            say(_unloaded(name, partition, found.node))
    if (breaker := found.breaker) is not None:
        pause = "" if breaker.pause_left_ms is None else f" for {breaker.pause_left_ms} ms more"
        rejected = f"{breaker.rejected} of {breaker.records} records rejected"
        say(f"circuit breaker {breaker.state}{pause}: {rejected}")


def _print_partition(name: str, partition: InspectedPartition) -> None:
    where = f"start {partition.start_offset}  end {partition.high_watermark}"
    columns = ("offsets", "state", "attempts", "lock ms", "rest ms", "client", "host", "member")
    print_table(
        (*columns, "cause"),
        [
            (
                _offsets(run.first_offset, run.last_offset),
                run.state,
                run.delivery_count,
                run.lock_left_ms,
                run.resting_ms,
                run.client_id,
                None if run.client_host is None else run.client_host.removeprefix("/"),
                run.member_id,
                run.cause,
            )
            for run in partition.in_flight
        ],
        title=f"{name}  {where}  state epoch {partition.state_epoch}",
    )
    if partition.archived:
        print_table(
            ("offsets", "attempts", "cause"),
            [
                (_offsets(run.first_offset, run.last_offset), run.delivery_count, run.cause)
                for run in partition.archived
            ],
            title=f"{name}  given up",
        )
    if (letters := partition.dead_letters) is not None and letters.waiting_records:
        why = (
            "" if letters.error is None else f", {letters.failed_attempts} failed: {letters.error}"
        )
        say(f"{name}  {letters.waiting_records} dead letters are to be sent{why}")


def _unloaded(name: str, partition: InspectedPartition, node: int) -> str:
    if partition.leader != node:
        return f"{name}  is led by node {partition.leader}: ask its HTTP port"
    if partition.start_offset is None:
        return f"{name}  not read yet"
    return f"{name}  start {partition.start_offset}  not being read"


def _offsets(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
