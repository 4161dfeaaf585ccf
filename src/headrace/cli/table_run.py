"""`headrace table run`: write what the topic has, once or for as long as it runs."""

import signal
from typing import Any

import click

from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.output import print_json
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
@click.option("--once", is_flag=True, help="Write what the topic has now, then end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=10.0,
    metavar="SECONDS",
    help="How often a batch is written at most.",
)
@click.option(
    "--accept-loss", is_flag=True, help="Continue behind records that retention has removed."
)
@master_option
@json_option
@bootstrap_option
def run(
    name: str,
    *,
    once: bool,
    interval: float,
    accept_loss: bool,
    master: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Write the topic's records into the table, exactly once.

    One writer at a time. It can be stopped and killed at any time: the next run continues where the
    table ends.
    """
    administration, running = tables_module("administration"), tables_module("running")
    definition = administration.find_table(place_of(bootstrap), name)
    options = administration.read_options_of(place_of(bootstrap), definition.topic)
    work = running.TableRun(
        definition,
        options,
        administration.store_options(definition),
        spark_engine(master),
        accepts_loss=accept_loss,
    )
    work.begin()
    for alarm in tables_module("alarms").alarms_of(definition, options, work.table.rows.head()):
        tell(f"headrace: {alarm}")
    stops: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    try:
        if once:
            done = work.run_available(lambda batch: _print(batch, as_json=as_json))
            if not as_json:
                rows = sum(each.rows for each in done)
                letters = sum(each.dead_letters for each in done)
                say(f"table {name} is up to date: {rows} rows, {letters} dead letters")
        else:
            work.run_forever(
                lambda batch: _print(batch, as_json=as_json), lambda: bool(stops), interval
            )
    finally:
        signal.signal(signal.SIGTERM, before)
        work.end()


def _print(batch: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(batch)
        return
    parts = [f"{batch.records} records", f"{batch.rows} rows", f"{batch.files} files"]
    if batch.dead_letters:
        parts.append(f"{batch.dead_letters} dead letters")
    parts += [f"{count} x {rule!r}" for rule, count in batch.violations.items()]
    if batch.columns_added:
        parts.append(f"new columns {', '.join(batch.columns_added)}")
    say(f"batch {batch.number}: {', '.join(parts)} in {batch.seconds:.1f} s")
    for gap in batch.gaps:
        tell(f"headrace: {gap}; continued behind it")
