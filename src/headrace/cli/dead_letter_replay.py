"""`headrace share replay-dead-letters`: send dead-lettered records back to their topics."""

import click

from headrace.cli.client_config import client_settings
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import tell
from headrace.client.admin import Admin
from headrace.client.share.dead_letters import Replayed
from headrace.client.share.dead_letters import replay_dead_letters as replay


@click.command("replay-dead-letters")
@click.argument("topic", metavar="DEAD_LETTER_TOPIC")
@click.option(
    "--to", metavar="TOPIC", help="Send all of them to this topic instead of their original ones."
)
@click.option(
    "--group",
    help="The consumer group that keeps the progress.  [default: replay-DEAD_LETTER_TOPIC]",
)
@click.option("--limit", type=click.IntRange(min=1), help="No more than N letters.")
@click.option(
    "--execute/--dry-run",
    default=False,
    help="Send the records; without it, only show what would be done.",
)
@json_option
@bootstrap_option
def replay_dead_letters(
    topic: str,
    *,
    to: str | None,
    group: str | None,
    limit: int | None,
    execute: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Send dead letters back to their topics. Without --execute, only show what would be done.

    Records keep their key, value and headers, without the dead-letter headers, and go to
    the partition of their key. A second run continues where the first one ended.
    """
    if to == topic:
        usage_error(f"--to {to}: that is where they are")
    group_id = group or f"replay-{topic}"

    async def work() -> Replayed:
        async with Admin(bootstrap, client_settings()) as admin:
            return await replay(
                admin.cluster, topic, group_id, to=to, limit=limit, is_executed=execute
            )

    outcome = complete(work(), is_busy=True)
    columns = ("to", "group", "reason", "letters")
    rows = [
        (way.to, way.group, way.reason, letters) for way, letters in sorted(outcome.sent.items())
    ]
    if as_json:
        print_json(
            {
                "sent" if execute else "to_send": [
                    dict(zip(columns, row, strict=True)) for row in rows
                ],
                "left_out": [
                    {"records": records, "why": why} for why, records in outcome.left_out.items()
                ],
            }
        )
        return
    print_table(columns, rows)
    for why, records in outcome.left_out.items():
        tell(f"headrace: {topic}: {records} skipped: {why}")
    if not execute:
        tell("nothing was sent; add --execute to send")
