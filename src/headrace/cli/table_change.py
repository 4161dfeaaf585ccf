"""`headrace table alter` and `drop`."""

from pathlib import Path

import click

from headrace.cli.options import FilePath, bootstrap_option, yes_option
from headrace.cli.running import make_sure, usage_error
from headrace.cli.streams import say
from headrace.cli.table_modules import name_argument, place_of, read_schema_file, tables_module


@click.command()
@name_argument
@click.option("--rule", "rules", metavar="RULE", multiple=True, help="Replaces all; repeatable.")
@click.option("--no-rules", is_flag=True, help="Remove all rules.")
@click.option("--on-violation", type=click.Choice(["dead-letter", "fail", "count"]))
@click.option("--on-bad-record", type=click.Choice(["dead-letter", "fail"]))
@click.option("--schema", type=FilePath(), help="A newer Avro or Protobuf schema.")
@click.option("--file-bytes", type=click.IntRange(min=1))
@click.option("--batch-records", type=click.IntRange(min=1))
@bootstrap_option
def alter(  # noqa: PLR0913  an option each
    name: str,
    *,
    rules: tuple[str, ...],
    no_rules: bool,
    on_violation: str | None,
    on_bad_record: str | None,
    schema: Path | None,
    file_bytes: int | None,
    batch_records: int | None,
    bootstrap: str,
) -> None:
    """Change rules, the schema or sizes; a running writer has to be restarted for it."""
    if rules and no_rules:
        usage_error("--rule and --no-rules exclude each other")
    administration = tables_module("administration")
    changes: dict[str, object] = {}
    if rules or no_rules:
        changes["rules"] = rules
    if on_violation:
        changes["on_violation"] = on_violation
    if on_bad_record:
        changes["fails_on_bad_record"] = on_bad_record == "fail"
    if schema is not None:
        known = administration.find_table(place_of(bootstrap), name)
        changes["schema_text"] = read_schema_file(schema, known.format)
    if file_bytes:
        changes["file_bytes"] = file_bytes
    if batch_records:
        changes["batch_records"] = batch_records
    if not changes:
        usage_error("nothing to change: `headrace table alter --help` lists what can be")
    administration.alter_table(place_of(bootstrap), name, **changes)
    say(f"changed table {name}: {', '.join(sorted(changes))}")


@click.command()
@name_argument
@click.option("--purge", is_flag=True, help="Also delete the table's files.")
@yes_option
@bootstrap_option
def drop(name: str, *, purge: bool, yes: bool, bootstrap: str) -> None:
    """Remove a table and its dead letters from the catalog, and its definition."""
    what = "and delete its files" if purge else "and keep its files"
    make_sure(f"Drop table {name} {what}?", is_sure=yes)
    definition = tables_module("administration").drop_table(place_of(bootstrap), name, purges=purge)
    if definition is None:
        say(f"dropped the definition of {name}, which could not be read; whatever it has stays")
        return
    say(f"dropped {name}" + ("" if purge else f"; its files are still in {definition.location}"))
