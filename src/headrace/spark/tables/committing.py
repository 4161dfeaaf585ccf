"""Committing a batch of a writer exactly once, by what `commits` judges of it."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.spark.tables.commits import (
    COMMIT_ATTEMPTS_MAX,
    Batch,
    CommitConflict,
    FilesGone,
    Head,
    OutcomeUnknown,
    Verdict,
    to_properties,
)
from headrace.spark.tables.definition import Definition
from headrace.spark.tables.table_store import CatalogFailed, Change, TableStore

LOG = logging.getLogger("headrace.spark.tables")

RETRY_SECONDS_FIRST: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0


class PlanAgain(HeadraceError):
    """The table is somewhere else by now; the batch is dropped and planned again."""


def commit_batch(
    definition: Definition,
    store: TableStore,
    batch: Batch,
    change: Change,
    *,
    judge: Callable[[Head, Batch], Verdict],
    check: Callable[[], None],
    gaps: Sequence[str] = (),
) -> None:
    """Commit a batch exactly once: the head is read again before every attempt.

    `check` raises if the writer was taken over. PlanAgain if the table is somewhere else by now.
    """
    problem: HeadraceError | None = None
    for attempt in range(COMMIT_ATTEMPTS_MAX):
        check()
        try:
            head = store.head()
        except CatalogFailed as error:
            problem = problem or error
            pause(attempt)
            continue
        verdict = judge(head, batch)
        if verdict is Verdict.SKIP:
            return
        if verdict is Verdict.PLAN_AGAIN:
            raise PlanAgain(f"the table is at {dict(head.offsets)}, another writer committed")
        properties = to_properties(head, batch)
        if gaps:
            properties["headrace.gaps"] = "; ".join(gaps)
        try:
            store.commit(head, msgspec.structs.replace(change, properties=properties))
            return
        except FilesGone as error:
            raise PlanAgain(str(error)) from None
        except (CommitConflict, OutcomeUnknown) as error:
            LOG.info("table %s, batch %d: %s", definition.name, batch.number, error)
            problem = error
        pause(attempt)
    raise CatalogFailed(
        f"batch {batch.number} of table {definition.name!r} could not be committed "
        f"({problem}). Its files are kept; the next run looks whether it was, and continues "
        "from there"
    )


def pause(attempt: int) -> None:
    """Wait before the next attempt."""
    time.sleep(min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2**attempt))
