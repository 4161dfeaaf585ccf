"""`headrace share replay-dead-letters`: records that were given up, back to where they are from."""

import click

from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import complete, usage_error
from headrace.cli.streams import tell
from headrace.client.admin import Admin
from headrace.client.share.dead_letters import Replayed
from headrace.client.share.dead_letters import replay_dead_letters as replay


@click.command("replay-dead-letters")
@click.argument("topic", metavar="DEAD_LETTER_TOPIC")
@click.option("--to", metavar="TOPIC", help="Send all of them there, not where they are from.")
@click.option(
    "--group",
    help="The consumer group that notes how far it got.  [default: replay-DEAD_LETTER_TOPIC]",
)
@click.option("--limit", type=click.IntRange(min=1), help="No more than N letters.")
@click.option("--execute/--dry-run", default=False, help="Do it, or only show what would be done.")
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
    """Send dead letters to their topics again. Shows what it would do; --execute does it.

    They go with their key, value and headers, but for the headers that made them dead letters, to
    the partition of their key. A second run goes on where the first one ended.
    """
    if to == topic:
        usage_error(f"--to {to}: that is where they are")
    group_id = group or f"replay-{topic}"

    async def work() -> Replayed:
        async with Admin(bootstrap) as admin:
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
        tell(f"headrace: {topic}: {records} left out: {why}")
    if not execute:
        tell("nothing is sent; --execute does it")
