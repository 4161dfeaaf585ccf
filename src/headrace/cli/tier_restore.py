"""`headrace tier restore`: topics from a store into a cluster that does not have them."""

import click
from click.exceptions import Exit

from headrace.cli.client_config import client_settings
from headrace.cli.durations import Duration
from headrace.cli.options import bootstrap_beside_config, dry_run_option, json_option, parse_pairs
from headrace.cli.output import print_json, print_table
from headrace.cli.running import EXIT_REFUSED, complete, usage_error
from headrace.cli.streams import tell
from headrace.cli.tier_store import open_cluster_store, open_place, store_option
from headrace.client.admin import Admin
from headrace.client.remote_restore import (
    PartitionOutcome,
    Restoration,
    SourceTopic,
    check_gaps,
    choose,
    find_topics,
)
from headrace.ids import topic_id_text
from headrace.remote import marker
from headrace.surroundings import clocks

RETENTION = "retention.ms"
RETENTION_MS_DEFAULT = 7 * 86_400_000


@click.command()
@click.option(
    "--from",
    "source_url",
    metavar="URL",
    required=True,
    help="The store with the segments; it is only read.",
)
@click.option("--topic", "-t", "topics", multiple=True, help="Repeatable. Default: all.")
@click.option("--topic-id", help="Which one, if the store has several of a name.")
@click.option("--as", "new_name", metavar="TOPIC", help="Another name for the one topic.")
@click.option(
    "--config", "-c", "pairs", metavar="KEY=VALUE", multiple=True, help="Repeatable; overrides."
)
@click.option("--replication-factor", "-r", type=int, default=0, help="Default: the broker's.")
@click.option("--skip-gaps", is_flag=True, help="Restore what follows missing offsets.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(),
    metavar="DURATION",
    default=120_000,
    show_default="2m",
    help="How long to wait for leaders after the copy.",
)
@dry_run_option
@store_option
@json_option
@bootstrap_beside_config
def restore(  # noqa: PLR0913  an option each
    *,
    source_url: str,
    topics: tuple[str, ...],
    topic_id: str | None,
    new_name: str | None,
    pairs: tuple[str, ...],
    replication_factor: int,
    skip_gaps: bool,
    timeout_ms: int,
    dry_run: bool,
    store: str | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Restore topics, offsets included, from the tier alone.

    Topics are created with the partitions and configs that the store remembers, and their segments
    copied from the old store to the cluster's own. They must not exist yet, or never have been
    written.
    """
    configs = parse_pairs(pairs, "--config")
    if new_name and len(topics) != 1:
        usage_error("--as is for one --topic")

    async def work() -> dict[str, list[PartitionOutcome]]:
        source = open_place(source_url)
        try:
            chosen = choose(await find_topics(source, topics, topic_id), topics, topic_id)
            checked = [check_gaps(each, skips=skip_gaps) for each in chosen]
            async with Admin(bootstrap, client_settings()) as admin:
                target = await open_cluster_store(admin, store)
                try:
                    await marker.check(target, (await admin.describe_cluster()).cluster_id)
                    outcomes: dict[str, list[PartitionOutcome]] = {}
                    for topic in checked:
                        name = new_name or topic.name
                        _warn(topic, configs)
                        restoration = Restoration(admin, source, target, topic, name)
                        if dry_run:
                            outcomes[name] = _planned(topic)
                            continue
                        await restoration.create(configs, replication_factor)
                        await restoration.copy()
                        outcomes[name] = await restoration.wait(timeout_ms / 1000)
                    return outcomes
                finally:
                    await target.close()
        finally:
            await source.close()

    _print(complete(work()), as_json=as_json, dry_run=dry_run)


def _print(outcomes: dict[str, list[PartitionOutcome]], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json(outcomes)
    else:
        print_table(
            ("topic", "partition", "start", "end", "segments", "bytes", "restored"),
            [
                (
                    name,
                    each.partition,
                    each.start,
                    each.stop,
                    each.segments,
                    each.size_bytes,
                    "dry run" if dry_run else each.is_adopted,
                )
                for name, rows in outcomes.items()
                for each in rows
            ],
        )
    waiting = [
        f"{name}-{each.partition}"
        for name, rows in outcomes.items()
        for each in rows
        if not each.is_adopted
    ]
    if waiting and not dry_run:
        tell(
            f"headrace: {waiting[0]}"
            + (f" and {len(waiting) - 1} others" if len(waiting) > 1 else "")
            + ": copied and announced, but not adopted by the leader yet; run the command again"
        )
        raise Exit(EXIT_REFUSED)


def _planned(topic: SourceTopic) -> list[PartitionOutcome]:
    return [
        PartitionOutcome(
            index,
            coverage.extents[0].start if coverage.extents else 0,
            coverage.extents[-1].stop if coverage.extents else 0,
            len(coverage.extents),
            sum(each.segment.size_bytes for each in coverage.extents),
            is_adopted=False,
        )
        for index, coverage in sorted(topic.partitions.items())
    ]


def _warn(topic: SourceTopic, configs: dict[str, str]) -> None:
    """Print what needs an operator's decision."""
    if topic.manifest is None:
        tell(
            f"headrace: the store does not remember topic {topic.name!r} "
            f"({topic_id_text(topic.topic_id)}): it gets {topic.partition_count} partitions and "
            "default configs"
        )
    try:
        retention_ms = int({**topic.configs, **configs}.get(RETENTION, RETENTION_MS_DEFAULT))
    except ValueError:
        return  # the broker refuses it
    latest_ms = max(
        (
            each.segment.max_timestamp_ms
            for coverage in topic.partitions.values()
            for each in coverage.extents
        ),
        default=-1,
    )
    now_ms = clocks().time_ns() // 1_000_000
    if retention_ms >= 0 and 0 <= latest_ms < now_ms - retention_ms:
        tell(
            f"headrace: all records of topic {topic.name!r} are older than its {RETENTION} "
            f"({retention_ms}), so they are deleted soon: --config {RETENTION}=-1 keeps them"
        )
