"""`headrace table backfill`, `compact` and `replay`: jobs beside the writer."""

from typing import Final

import click

from headrace.cli.options import FiniteRange, bootstrap_option, dry_run_option, json_option
from headrace.cli.output import print_json
from headrace.cli.streams import say
from headrace.cli.table_modules import (
    master_option,
    name_argument,
    parse_start,
    place_of,
    spark_engine,
    tables_module,
)

ORPHAN_HOURS_MAX: Final = 1_000_000.0
"""Over a hundred years: no file is that old."""


@click.command()
@name_argument
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    default="earliest",
    help="earliest, a time in ms, or 0:23,1:345 for offsets.",
)
@master_option
@json_option
@bootstrap_option
def backfill(name: str, *, start: str, master: str, as_json: bool, bootstrap: str) -> None:
    """Write older records, below where the table began; a writer may run meanwhile."""
    given = {} if start == "earliest" else parse_start(start)
    done = tables_module("backfilling").backfill_table(
        place_of(bootstrap), name, spark_engine(master), **given
    )
    if as_json:
        print_json(done)
        return
    say(f"{done.records} records: {done.rows} rows, {done.dead_letters} dead letters")


@click.command()
@name_argument
@click.option(
    "--max-pieces",
    type=click.IntRange(min=0),
    default=20,
    help="How many merges are done at most.",
)
@click.option(
    "--keep-snapshots",
    type=click.IntRange(min=1),
    default=100,
    help="Older ones are forgotten.",
)
@click.option(
    "--orphans-older-than",
    "orphan_hours",
    type=FiniteRange(min=0, max=ORPHAN_HOURS_MAX),
    default=72.0,
    metavar="HOURS",
    help="Files that nothing names and that are as old are removed.",
)
@click.option(
    "--max-deletions",
    type=click.IntRange(min=0),
    default=10_000,
    help="How many files are removed.",
)
@dry_run_option
@master_option
@json_option
@bootstrap_option
def compact(  # noqa: PLR0913  an option each
    name: str,
    *,
    max_pieces: int,
    keep_snapshots: int,
    orphan_hours: float,
    max_deletions: int,
    dry_run: bool,
    master: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Merge small files, expire snapshots and remove orphans; a writer may run meanwhile."""
    maintenance = tables_module("maintenance")
    limits = maintenance.Limits(
        pieces_max=max_pieces,
        snapshots_kept=keep_snapshots,
        orphan_age_ms=int(orphan_hours * 3_600_000),
        deletions_max=max_deletions,
        is_dry=dry_run,
    )
    done = maintenance.maintain_table(place_of(bootstrap), name, spark_engine(master), limits)
    if as_json:
        print_json(done)
        return
    would = "would be " if dry_run else ""
    say(f"{done.files_before} files {would}merged into {done.files_after} in {done.pieces} pieces")
    if done.skipped:
        say(f"{done.skipped} pieces skipped: their files were replaced meanwhile")
    say(f"{done.snapshots_expired} snapshots {would}expired")
    say(f"{len(done.orphans)} orphans {would}removed")


@click.command()
@name_argument
@master_option
@json_option
@bootstrap_option
def replay(name: str, *, master: str, as_json: bool, bootstrap: str) -> None:
    """Decode dead letters again; those that can be read now become rows."""
    done = tables_module("replaying").replay_table(place_of(bootstrap), name, spark_engine(master))
    if as_json:
        print_json(done)
        return
    say(f"{done.tried} dead letters: {done.rows} became rows, {done.still_dead} are still dead")
    if done.known:
        say(f"{done.known} were rows already")
