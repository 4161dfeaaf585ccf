"""`headrace mirror status`, `verify` and `promote`."""

from typing import Final

import click
import msgspec
from click.exceptions import Exit

from headrace.cli.mirror_options import (
    Config,
    choice_options,
    cluster_options,
    group_choice,
    groups_option,
    need_clusters,
    place_of,
    topic_choice,
)
from headrace.cli.options import json_option, yes_option
from headrace.cli.output import print_json, print_table
from headrace.cli.printable import printable
from headrace.cli.running import EXIT_REFUSED, complete, make_sure, usage_error
from headrace.cli.streams import say, tell
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.mirror.promotion import Promoted
from headrace.client.mirror.promotion import promote as promote_topic
from headrace.client.mirror.status import Status, read_status
from headrace.client.mirror.verification import Verified
from headrace.client.mirror.verification import verify as verify_partition
from headrace.client.topics import TopicPartition

NOT_YET: Final = "not mirrored yet"


@click.command()
@cluster_options
@choice_options
@groups_option
@json_option
def status(
    *,
    source: str | None,
    target: str | None,
    from_config: Config,
    to_config: Config,
    wanted: tuple[str, ...],
    excluded: tuple[str, ...],
    groups: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show how far each partition and each group of the target is behind the source."""
    here, there = need_clusters(source, from_config, target, to_config)
    topics, chosen = topic_choice(wanted, excluded), group_choice(groups)
    topics.check()
    chosen.check()

    async def work() -> Status:
        async with Admin(*here) as theirs, Admin(*there) as ours:
            return await read_status(theirs, ours, topics, chosen)

    found = complete(work())
    if as_json:
        print_json(
            {
                "topics": found.topics,
                "partitions": found.partitions,
                "groups": [
                    {**msgspec.to_builtins(group), "positions": _positions(group.positions)}
                    for group in found.groups
                ],
            }
        )
        return
    for topic in found.topics:
        if topic.problem or topic.is_new:
            say(printable(f"{topic.name}: {topic.problem or NOT_YET}"))
    print_table(
        ("partition", "source", "target", "lag", "problem"),
        [
            (
                f"{row.topic}-{row.partition}",
                f"{row.source_start}..{row.source_end}",
                f"{row.target_start}..{row.target_end}",
                row.lag,
                row.problem,
            )
            for row in found.partitions
        ],
    )
    print_table(
        ("group", "partitions", "behind", "problem"),
        [(group.group_id, group.partitions, group.lag, group.problem) for group in found.groups],
    )


def _positions(positions: dict[TopicPartition, tuple[int, int]]) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": index, "source": there, "target": here}
        for (topic, index), (there, here) in positions.items()
    ]


@click.command()
@cluster_options
@choice_options
@json_option
def verify(
    *,
    source: str | None,
    target: str | None,
    from_config: Config,
    to_config: Config,
    wanted: tuple[str, ...],
    excluded: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the batches of mirrors with the source's, over the offsets that both have.

    Reads all of both. Exits with 1 if something differs or a topic is not mirrored; in a compacted
    topic either side may lack records that compaction removed.
    """
    here, there = need_clusters(source, from_config, target, to_config)
    topics = topic_choice(wanted, excluded)
    topics.check()

    async def work() -> tuple[Status, list[Verified]]:
        async with Admin(*here) as theirs, Admin(*there) as ours:
            found = await read_status(theirs, ours, topics, group_choice(("",)))
            topics_of = {topic.name: topic for topic in found.topics}
            return found, [
                await verify_partition(
                    theirs.cluster, ours.cluster, topics_of[row.topic], row.partition
                )
                for row in found.partitions
            ]

    found, rows = complete(work(), is_busy=True)
    left = [topic for topic in found.topics if topic.problem or topic.is_new]
    for topic in left:
        tell(f"headrace: {printable(f'{topic.name}: {topic.problem or NOT_YET}')}, not compared")
    if as_json:
        print_json([{**msgspec.to_builtins(row), "is_equal": row.is_equal} for row in rows])
    else:
        print_table(
            ("partition", "offsets", "batches", "records", "only source", "only target", "equal"),
            [
                (
                    str(row.partition),
                    f"{row.start}..{row.end}",
                    row.equal_batches,
                    row.records,
                    row.only_source,
                    row.only_target,
                    row.is_equal,
                )
                for row in rows
            ],
        )
        for row in rows:
            for what in [*row.examples, *([row.problem] if row.problem else [])]:
                tell(f"headrace: {row.partition}: {printable(what)}")
    if left or not all(row.is_equal for row in rows):
        raise Exit(EXIT_REFUSED)


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@cluster_options
@click.option("--abort-open", is_flag=True, help="Abort transactions that are open at the end.")
@click.option("--force", is_flag=True, help="Also if the source has records that are not copied.")
@yes_option
@json_option
def promote(  # noqa: PLR0913  an option each
    topics: tuple[str, ...],
    *,
    source: str | None,
    target: str | None,
    from_config: Config,
    to_config: Config,
    abort_open: bool,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make mirrors topics of their own: producers may write to them, and the mirror may not.

    With --from, a mirror that lacks records of the source is refused.
    """
    here, there = place_of(source, from_config), place_of(target, to_config)
    if there is None:
        usage_error("--to is needed: the cluster with the mirrors")
    names = ", ".join(topics)
    make_sure(f"Promote {names}? A topic cannot become a mirror again.", is_sure=yes)

    async def work() -> list[Promoted]:
        async with Admin(*there) as admin:
            theirs = Cluster(*here) if here is not None else None
            try:
                if theirs is not None:
                    await theirs.connect()
                return [
                    await promote_topic(
                        admin, topic, source=theirs, aborts_open=abort_open, is_forced=force
                    )
                    for topic in topics
                ]
            finally:
                if theirs is not None:
                    await theirs.close()

    done = complete(work())
    if as_json:
        print_json(done)
        return
    for row in done:
        aborted = f", {row.aborted} open transactions aborted" if row.aborted else ""
        say(f"promoted {printable(row.topic)}{aborted}")
