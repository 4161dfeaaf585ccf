"""`headrace table verify`: is the table what the topic says?"""

import click
from click.exceptions import Exit

from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.running import EXIT_REFUSED
from headrace.cli.streams import say, tell
from headrace.cli.table_modules import (
    master_option,
    name_argument,
    place_of,
    spark_engine,
    tables_module,
)


@click.command()
@name_argument
@master_option
@json_option
@bootstrap_option
def verify(name: str, *, master: str, as_json: bool, bootstrap: str) -> None:
    """Compare the table with the topic, row by row, as a Spark job.

    Exit code 0 if they are equal, else 1, with the offsets that differ. A writer may run meanwhile:
    what it commits after the start is not looked at.
    """
    found = tables_module("verifying").verify_table(place_of(bootstrap), name, spark_engine(master))
    if as_json:
        print_json({"equal": found.is_equal, "ranges": found.ranges, "gone": found.unverifiable})
    else:
        print_table(
            ("partition", "start", "stop", "log_rows", "table_rows", "dead", "hash", "equal"),
            [
                (
                    each.partition,
                    each.start,
                    each.stop,
                    each.log_rows,
                    each.table_rows,
                    each.table_dead,
                    each.table_hash[:16],
                    each.is_equal,
                )
                for each in found.ranges
            ],
        )
        for each in found.ranges:
            for word in ("missing", "surplus", "different"):
                offsets = getattr(each, word)
                if offsets:
                    say(f"partition {each.partition}: {word} {', '.join(map(str, offsets))}")
    for each in found.ranges:
        if each.compacted:
            tell(
                f"headrace: partition {each.partition}: {each.compacted} rows cannot be compared, "
                "as compaction has removed their records from the log"
            )
    for partition, (start, stop) in found.unverifiable.items():
        tell(f"headrace: partition {partition}: the log has lost offsets {start} to {stop - 1}")
    if not found.is_equal:
        raise Exit(EXIT_REFUSED)
