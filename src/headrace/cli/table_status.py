"""`headrace table status` and `list`: what tables there are, and how far they are."""

import click

from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json, print_table
from headrace.cli.streams import say, tell
from headrace.cli.table_modules import name_argument, place_of, tables_module


@click.command()
@name_argument
@json_option
@bootstrap_option
def status(name: str, *, as_json: bool, bootstrap: str) -> None:
    """Show how far a table is, its columns, who writes it, and what threatens it."""
    found = tables_module("state").state_of(place_of(bootstrap), name)
    if as_json:
        print_json(found)
        return
    say(f"table {found.name}: topic {found.topic} to {found.to}, {found.mode}, in {found.location}")
    say(f"{found.rows} rows in {found.files} files, {found.dead_letters} dead letters")
    say(f"written by {found.writer or 'nobody now'}")
    print_table(
        ("partition", "log_start", "log_end", "table", "lag"),
        [
            (each.partition, each.log_start, each.log_end, each.table, each.lag)
            for each in found.partitions
        ],
    )
    print_table(("column", "type"), list(found.columns.items()))
    for alarm in found.alarms:
        tell(f"headrace: {alarm}")


@click.command("list")
@json_option
@bootstrap_option
def list_(*, as_json: bool, bootstrap: str) -> None:
    """List the tables of a cluster."""
    found = tables_module("administration").list_tables(place_of(bootstrap))
    if as_json:
        print_json(found)
        return
    print_table(
        ("table", "topic", "format", "to", "mode", "location"),
        [(each.name, each.topic, each.format, each.to, each.mode, each.location) for each in found],
    )
