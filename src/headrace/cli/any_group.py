"""Shared parts of the commands on groups of any type."""

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Final

import click

from headrace.cli.client_config import client_settings
from headrace.cli.offset_reset import Move, Target, parse_wanted
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, report, usage_error
from headrace.cli.streams import tell
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.group_members import GroupDescription
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError

name_argument: Final = click.argument("name", metavar="GROUP")
names_argument: Final = click.argument("names", metavar="GROUP...", nargs=-1, required=True)
if_exists_option: Final = click.option(
    "--if-exists", is_flag=True, help="Ignore groups that do not exist."
)

_RESET_OPTIONS: Final = (
    click.option(
        "--topic", "-t", "topics", metavar="TOPIC[:P,P]", multiple=True, help="Repeatable."
    ),
    click.option("--all-topics", is_flag=True, help="All partitions that the group knows."),
    click.option("--to-beginning", "--to-earliest", "to_beginning", is_flag=True),
    click.option("--to-end", "--to-latest", "to_end", is_flag=True),
    click.option("--to-offset", type=click.IntRange(min=0)),
    click.option(
        "--to-time",
        "--to-datetime",
        "to_time",
        help="ms since 1970, or like 2026-01-31T08:00:00 (UTC).",
    ),
    click.option("--shift", type=int, help="Move by N from the current offset."),
    click.option(
        "--execute/--dry-run",
        default=False,
        help="Apply the change; without it, only show what would be done.",
    ),
)


def reset_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a reset to a command, passed as `wanted`, `target` and `execute`.

    `wanted` maps topics to partitions, all if none are given; it is empty for all topics.
    """

    @wraps(command)
    def choose(*, topics: tuple[str, ...], all_topics: bool, execute: bool, **given: Any) -> None:
        if bool(topics) == all_topics:
            usage_error("say which partitions: --topic, or --all-topics")
        places = ("to_beginning", "to_end", "to_offset", "to_time", "shift")
        target = Target.chosen(**{place: given.pop(place) for place in places})
        command(wanted=parse_wanted(topics), target=target, execute=execute, **given)

    decorated: Callable[..., None] = choose
    for option in reversed(_RESET_OPTIONS):
        decorated = option(decorated)
    return decorated


def report_moves(
    moves: Sequence[Move],
    outcomes: Outcomes[TopicPartition, None],
    *,
    is_executed: bool,
    as_json: bool,
) -> None:
    """Show what a reset moves or would move; fail if a move was refused."""
    if as_json:
        print_json([move.as_json() for move in moves])
    else:
        print_table(
            ("topic", "partition", "from", "to"),
            [(*move.partition, move.old_offset, move.new_offset) for move in moves],
        )
        if not is_executed:
            tell("nothing was changed; add --execute to apply it")
    report({str(partition): outcome for partition, outcome in outcomes.items()}, "partition")


def describe_each(
    names: Sequence[str],
    bootstrap: str,
    describe: Callable[[Cluster, str], Awaitable[GroupDescription]],
) -> Outcomes[str, GroupDescription]:
    """Describe each group; an error of one does not affect the others."""

    async def work() -> Outcomes[str, GroupDescription]:
        outcomes: Outcomes[str, GroupDescription] = {}
        async with Admin(bootstrap, client_settings()) as admin:
            for name in names:
                try:
                    outcomes[name] = await describe(admin.cluster, name)
                except KafkaError as error:
                    outcomes[name] = error
        return outcomes

    return complete(work())
