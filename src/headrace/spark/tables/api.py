"""Tables with a session of the caller's: run, verify, replay, backfill, compact."""

from collections.abc import Callable
from typing import Any

from headrace.spark.tables.administration import Where, find_table, read_options_of, store_options
from headrace.spark.tables.backfilling import Backfilled, backfill_table
from headrace.spark.tables.engine import OnSpark
from headrace.spark.tables.maintenance import Limits, Maintained, maintain_table
from headrace.spark.tables.replaying import Replayed, replay_table
from headrace.spark.tables.running import BatchDone, TableRun
from headrace.spark.tables.verifying import Verification, verify_table


def run_table(
    bootstrap: Where,
    name: str,
    spark: Any,
    *,
    accepts_loss: bool = False,
    on_batch: Callable[[BatchDone], None] = lambda _: None,
) -> list[BatchDone]:
    """Write what the topic has now into the table, exactly once; return what the batches did."""
    definition = find_table(bootstrap, name)
    run = TableRun(
        definition,
        read_options_of(bootstrap, definition.topic),
        store_options(definition),
        OnSpark(lambda: spark),
        accepts_loss=accepts_loss,
    )
    run.begin()
    try:
        return run.run_available(on_batch)
    finally:
        run.end()


def verify(bootstrap: Where, name: str, spark: Any) -> Verification:
    """Compare a table with its topic."""
    return verify_table(bootstrap, name, OnSpark(lambda: spark))


def replay(bootstrap: Where, name: str, spark: Any) -> Replayed:
    """Decode the dead letters of a table again."""
    return replay_table(bootstrap, name, OnSpark(lambda: spark))


def backfill(bootstrap: Where, name: str, spark: Any, **start: Any) -> Backfilled:
    """Write older records below the table's beginning; see `backfilling.backfill_table`."""
    return backfill_table(bootstrap, name, OnSpark(lambda: spark), **start)


def compact(bootstrap: Where, name: str, spark: Any, limits: Limits | None = None) -> Maintained:
    """Merge small files, expire snapshots, remove orphans."""
    return maintain_table(bootstrap, name, OnSpark(lambda: spark), limits or Limits())
