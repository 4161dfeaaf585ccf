"""The driver: plan a batch, have it written, commit it, again.

The table's own head is the only progress that counts. There is no checkpoint that could be lost or
differ from it: a run begins where the table ends, wherever it is started. Tasks get ranges of
offsets and not rows, so records go from the broker into files within one Python process.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.remote.store_options import StoreOptions
from headrace.spark.read_options import ReadOptions
from headrace.spark.tables.claims import HeldClaim
from headrace.spark.tables.commits import Batch, Head, judge, judge_letters
from headrace.spark.tables.committing import PlanAgain, commit_batch, pause
from headrace.spark.tables.decoding import value_columns
from headrace.spark.tables.definition import Definition, Format
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.opened import OpenTable
from headrace.spark.tables.planning import (
    FIRST_BATCH_RECORDS,
    Plan,
    TopicState,
    check_topic,
    plan_batch,
    ranges_of,
)
from headrace.spark.tables.repeated_batch import check_letters
from headrace.spark.tables.table_store import CatalogFailed, Change
from headrace.spark.tables.task import Written
from headrace.spark.tables.writer_lease import WriterLease
from headrace.spark.tier.stores import BlockingStore

LOG = logging.getLogger("headrace.spark.tables")

PLANS_MAX: Final = 10
"""How often a batch is planned again because the table was somewhere else by then."""
IDLE_SECONDS: Final = 1.0

STEPS: Final = (
    "planned",
    "written",
    "evolved",
    "before letters",
    "after letters",
    "before commit",
    "after commit",
    "after progress",
)
"""What `on_step` is called with."""


class BatchDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch did."""

    number: int
    records: int
    rows: int
    dead_letters: int
    violations: dict[str, int]
    files: int
    seconds: float
    columns_added: list[str]
    gaps: list[str]


class TableRun:
    """One writer of one table."""

    def __init__(
        self,
        definition: Definition,
        options: ReadOptions,
        store_options: StoreOptions,
        engine: Engine,
        *,
        accepts_loss: bool = False,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self._definition = definition
        self._store_options = store_options
        self._engine = engine
        self._accepts_loss = accepts_loss
        self._step = on_step or (lambda _: None)
        self.table = OpenTable(definition, options, store_options, engine, self._step)
        # A store of its own: it is used by the thread that renews.
        self._lease_store = BlockingStore(definition.location, store_options)
        self._lease = WriterLease(self._lease_store, definition.name)
        self._claim: HeldClaim | None = None
        self._epoch = 0
        self._number = 0

    def begin(self) -> None:
        """Take the table; HeldByAnother if somebody writes it. A run that fails here is over."""
        try:
            head = self.table.rows.head()
            self._epoch = self._lease.claim(head.epoch)
            self._claim = HeldClaim(self._lease, self._definition.name)
            self.table.topic.check_definition()
        except BaseException:
            self.end()
            raise
        self._number = head.batch + 1

    def end(self) -> None:
        """Leave the table to others."""
        try:
            if self._claim is not None:
                self._claim.leave()
        finally:
            self._lease_store.close()
            self.table.close()

    def run_available(
        self,
        on_batch: Callable[[BatchDone], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[BatchDone]:
        """Write what the topic has now, in batches, until told to stop; return what they did."""
        done: list[BatchDone] = []
        target: dict[int, int] | None = None
        while not should_stop():
            state = self.table.topic.state()
            target = dict(state.latest) if target is None else target
            state = msgspec.structs.replace(
                state,
                latest={
                    each: min(end, target.get(each, 0)) if each in target else state.earliest[each]
                    for each, end in state.latest.items()
                },
            )
            batch = self.run_batch(state)
            if batch is None:
                break
            done.append(batch)
            on_batch(batch)
        return done

    def run_forever(
        self,
        on_batch: Callable[[BatchDone], None],
        should_stop: Callable[[], bool],
        interval_seconds: float,
    ) -> None:
        """Write what comes, until told to stop."""
        while not should_stop():
            begin = time.monotonic()
            batch = self.run_batch(self.table.topic.state())
            if batch is not None:
                on_batch(batch)
            idle = interval_seconds - (time.monotonic() - begin) if batch else IDLE_SECONDS
            deadline = time.monotonic() + max(0.0, idle)
            while time.monotonic() < deadline and not should_stop():
                time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))

    def run_batch(self, state: TopicState) -> BatchDone | None:
        """Plan, write and commit one batch; None if there is nothing to write."""
        problem: PlanAgain | None = None
        for attempt in range(PLANS_MAX):
            try:
                return self._run_batch(state)
            except PlanAgain as error:
                LOG.info("table %s: %s", self._definition.name, error)
                problem = error
            pause(attempt)
        raise CatalogFailed(
            f"table {self._definition.name!r}: a batch was planned {PLANS_MAX} times, and could "
            f"never be committed ({problem})"
        )

    def _run_batch(self, state: TopicState) -> BatchDone | None:
        begin = time.monotonic()
        self._check_lease()
        plan, head = self._plan(state)
        if not plan.size and not plan.gaps:
            return None  # a loss that is accepted is committed though nothing is behind it
        for gap in plan.gaps:
            LOG.warning("%s; continuing behind it, as the loss is accepted", gap)
        self._step("planned")
        table = self.table
        written, added = table.write_ranges(
            ranges_of(self._definition, plan, table.topic.topic_id, self._engine.parallelism)
        )
        batch = Batch(
            start=plan.start if not plan.gaps else {**plan.start, **_known(head, plan)},
            stop=plan.stop,
            epoch=self._epoch,
            number=self._number,
            query=self._definition.id,
            topic_id=state.topic_id,
            leaders={each: epoch for each, epoch in state.leaders.items() if each in plan.stop},
        )
        self._commit_letters(plan, batch, written)
        change = Change(
            added=[file for each in written for file in each.files],
            removed=[key for each in written for key in each.removed],
        )
        self._step("before commit")
        commit_batch(
            self._definition,
            table.rows,
            batch,
            change,
            judge=judge,
            check=self._check_lease,
            gaps=plan.gaps,
        )
        self._step("after commit")
        table.topic.show_progress(plan.stop)
        self._step("after progress")
        self._number += 1
        return BatchDone(
            number=batch.number,
            records=plan.size,
            rows=sum(each.rows for each in written),
            dead_letters=sum(each.bad for each in written),
            violations=_summed(written),
            files=len(change.added),
            seconds=time.monotonic() - begin,
            columns_added=added,
            gaps=plan.gaps,
        )

    def _plan(self, state: TopicState) -> tuple[Plan, Head]:
        """Return the next batch, and the head of the table that it continues."""
        head, letters = self.table.rows.head(), self.table.letters.head()
        check_topic(self._definition, state, head)
        for each in (head, letters):
            self.table.topic.check_cuts(each)
        plan = plan_batch(
            self._definition,
            state,
            head,
            letters,
            records_max=self._records_max(),
            accepts_loss=self._accepts_loss,
        )
        return plan, head

    def _commit_letters(self, plan: Plan, batch: Batch, written: list[Written]) -> None:
        """Commit the dead letters of a batch, before its rows."""
        files = [file for each in written for file in each.letters]
        letters = self.table.letters
        if plan.is_again:
            check_letters(
                self._definition,
                self._store_options,
                letters,
                plan,
                files,
                accepts_loss=self._accepts_loss,
            )
        if not files:
            return
        self._step("before letters")
        # They begin behind a loss, wherever the rows' head is.
        behind = msgspec.structs.replace(batch, start=plan.start)
        commit_batch(
            self._definition,
            letters,
            behind,
            Change(added=files),
            judge=judge_letters,
            check=self._check_lease,
        )
        self._step("after letters")

    def _records_max(self) -> int:
        has_columns = len(value_columns(self.table.rows.schema())) > 0
        definition = self._definition
        if definition.format is Format.JSON and definition.evolves and not has_columns:
            return min(FIRST_BATCH_RECORDS, definition.batch_records)
        return definition.batch_records

    def _check_lease(self) -> None:
        if self._claim is not None:
            self._claim.check()


def _known(head: Head, plan: Plan) -> dict[int, int]:
    """Return the head's offsets where a loss was skipped: there the batch continues from them."""
    return {each: offset for each, offset in head.offsets.items() if each in plan.start}


def _summed(written: list[Written]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in written:
        for rule, count in each.violations.items():
            total[rule] = total.get(rule, 0) + count
    return total
