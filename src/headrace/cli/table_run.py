"""`headrace table run`: write what the topic has, once or for as long as it runs."""

import math
import re
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import click

from headrace.cli.options import FiniteRange, bootstrap_option, json_option
from headrace.cli.output import print_json
from headrace.cli.streams import say, tell
from headrace.cli.table_modules import (
    master_option,
    name_argument,
    place_of,
    spark_engine,
    tables_module,
)
from headrace.errors import HeadraceError

ALARM_SECONDS: Final = 60.0
"""How often a run looks whether retention is about to pass the table."""


@click.command()
@name_argument
@click.option("--once", is_flag=True, help="Write what the topic has now, then end.")
@click.option(
    "--interval",
    type=FiniteRange(min=0),
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
    find = tables_module("alarms").alarms_of
    alarms = Alarms(lambda: find(definition, options, work.table.rows.head()))

    def show(batch: Any) -> None:
        _print(batch, as_json=as_json)
        alarms.look()

    work.begin()
    stops: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    try:
        alarms.look()
        if once:
            done = work.run_available(show, lambda: bool(stops))
            if not as_json:
                rows = sum(each.rows for each in done)
                letters = sum(each.dead_letters for each in done)
                how = "stopped before it was up to date" if stops else "is up to date"
                say(f"table {name} {how}: {rows} rows, {letters} dead letters")
        else:
            work.run_forever(show, lambda: bool(stops), interval)
    finally:
        signal.signal(signal.SIGTERM, before)
        work.end()


class Alarms:
    """Says what threatens a table, each thing once until it is over."""

    def __init__(self, find: Callable[[], list[str]]) -> None:
        self._find = find
        self._looked_at = -math.inf
        self._told: set[str] = set()

    def look(self) -> None:
        """Ask, at most once in a while, and tell what is new."""
        now = time.monotonic()
        if now - self._looked_at < ALARM_SECONDS:
            return
        self._looked_at = now
        try:
            found = self._find()
        except HeadraceError as error:  # a run does not end because it cannot look
            found = [f"whether retention is about to pass the table is unknown: {error}"]
        for alarm in found:
            if _kind(alarm) not in self._told:
                tell(f"headrace: {alarm}")
        self._told = {_kind(each) for each in found}


def _kind(alarm: str) -> str:
    """Return an alarm without its numbers, which are others each time."""
    return re.sub(r"\d+", "0", alarm)


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
