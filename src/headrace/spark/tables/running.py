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
import pyarrow as pa

from headrace.client.groups import commit_offsets
from headrace.client.offsets import epoch_ends, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError, KafkaError
from headrace.ids import ZERO_TOPIC_ID, TopicId, topic_id_text
from headrace.remote.store_options import StoreOptions
from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.lookup import ends, find_topics
from headrace.spark.offsets import EARLIEST, LATEST
from headrace.spark.planning import Range
from headrace.spark.read_options import ReadOptions
from headrace.spark.tables import registry
from headrace.spark.tables.admission import admit, fills
from headrace.spark.tables.claims import HeldClaim
from headrace.spark.tables.column_types import COLUMNS_MAX, unify_fields
from headrace.spark.tables.commits import (
    COMMIT_ATTEMPTS_MAX,
    Batch,
    CommitConflict,
    FilesGone,
    Head,
    OutcomeUnknown,
    Verdict,
    judge,
    judge_letters,
    to_properties,
)
from headrace.spark.tables.data_files import DataFile, read_rows
from headrace.spark.tables.decoding import value_columns
from headrace.spark.tables.definition import Definition, Format, Mode
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.planning import (
    FIRST_BATCH_RECORDS,
    Gap,
    Plan,
    TopicState,
    check_cuts,
    plan_batch,
    ranges_of,
)
from headrace.spark.tables.table_store import CatalogFailed, Change, TableStore, open_table
from headrace.spark.tables.task import Job, Written, read_schema, schema_bytes, write_range
from headrace.spark.tables.upserts import UpsertTask, live_keys, upsert_range
from headrace.spark.tables.writer_lease import WriterLease
from headrace.spark.tier.stores import BlockingStore

LOG = logging.getLogger("headrace.spark.tables")

SCHEMA_PASSES_MAX: Final = 4
"""How often a batch is read because each time it showed columns that were not known."""
PLANS_MAX: Final = 10
"""How often a batch is planned again because the table was somewhere else by then."""
RETRY_SECONDS_FIRST: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0
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


class PlanAgain(HeadraceError):
    """The table is somewhere else by now; the batch is dropped and planned again."""


class UnstableSchema(HeadraceError):
    """A batch shows new columns however often it is read."""


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
        self.definition = definition
        self._options = options
        self._store_options = store_options
        self._engine = engine
        self._accepts_loss = accepts_loss
        self._step = on_step or (lambda _: None)
        self.rows = open_table(definition, definition.name, store_options)
        self.letters = open_table(definition, definition.dead_letters, store_options)
        # A store of its own: it is used by the thread that renews.
        self._lease_store = BlockingStore(definition.location, store_options)
        self._lease = WriterLease(self._lease_store, definition.name)
        self._claim: HeldClaim | None = None
        self._epoch = 0
        self._number = 0
        self.topic_id = ZERO_TOPIC_ID

    def begin(self) -> None:
        """Take the table; HeldByAnother if somebody writes it. A run that fails here is over."""
        try:
            head = self.rows.head()
            self._epoch = self._lease.claim(head.epoch)
            self._claim = HeldClaim(self._lease, self.definition.name)
            self._check_definition()
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
            self.close()

    def close(self) -> None:
        """Release what is open; enough for a run that never began."""
        self._lease_store.close()
        self.rows.close()
        self.letters.close()

    def run_available(
        self, on_batch: Callable[[BatchDone], None] = lambda _: None
    ) -> list[BatchDone]:
        """Write what the topic has now, in batches; return what they did."""
        done: list[BatchDone] = []
        target: dict[int, int] | None = None
        while True:
            state = self.topic_state()
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
                return done
            done.append(batch)
            on_batch(batch)

    def run_forever(
        self,
        on_batch: Callable[[BatchDone], None],
        should_stop: Callable[[], bool],
        interval_seconds: float,
    ) -> None:
        """Write what comes, until told to stop."""
        while not should_stop():
            begin = time.monotonic()
            batch = self.run_batch(self.topic_state())
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
                LOG.info("table %s: %s", self.definition.name, error)
                problem = error
            pause(attempt)
        raise CatalogFailed(
            f"table {self.definition.name!r}: a batch was planned {PLANS_MAX} times, and could "
            f"never be committed ({problem})"
        )

    def _run_batch(self, state: TopicState) -> BatchDone | None:
        begin = time.monotonic()
        self._check_lease()
        head, letters = self.rows.head(), self.letters.head()
        for each in (head, letters):
            self.check_cuts(each)
        plan = plan_batch(
            self.definition,
            state,
            head,
            letters,
            records_max=self._records_max(),
            accepts_loss=self._accepts_loss,
        )
        if not plan.size:
            return None
        for gap in plan.gaps:
            LOG.warning("%s; continuing behind it, as the loss is accepted", gap)
        self._step("planned")
        written, added = self.write_ranges(
            ranges_of(self.definition, plan, self.topic_id, self._engine.parallelism)
        )
        batch = Batch(
            start=plan.start if not plan.gaps else {**plan.start, **_known(head, plan)},
            stop=plan.stop,
            epoch=self._epoch,
            number=self._number,
            query=self.definition.id,
            topic_id=state.topic_id,
            leaders={each: epoch for each, epoch in state.leaders.items() if each in plan.stop},
        )
        letter_files = [file for each in written for file in each.letters]
        if plan.is_again:
            self._check_again(plan, letter_files)
        if letter_files:
            self._step("before letters")
            # They begin behind a loss, wherever the rows' head is.
            behind = msgspec.structs.replace(batch, start=plan.start)
            self._commit(self.letters, behind, Change(added=letter_files), is_letters=True)
            self._step("after letters")
        change = Change(
            added=[file for each in written for file in each.files],
            removed=[key for each in written for key in each.removed],
        )
        self._step("before commit")
        self._commit(self.rows, batch, change, is_letters=False, gaps=plan.gaps)
        self._step("after commit")
        self._show_progress(plan)
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

    def _check_again(self, plan: Plan, files: list[DataFile]) -> None:
        """Raise Gap if a batch has other dead letters than those that are committed of it."""
        blocking = BlockingStore(self.definition.location, self._store_options)
        keys = [each.key for each in self.letters.files()], [each.key for each in files]
        try:
            before, now = (
                {
                    (row["partition"], row["offset"])
                    for key in some
                    for row in read_rows(blocking, key, ["partition", "offset"]).to_pylist()
                    if plan.start[row["partition"]] <= row["offset"] < plan.stop[row["partition"]]
                }
                for some in keys
            )
        finally:
            blocking.close()
        if before == now:
            return
        partition, offset = min(before ^ now)
        problem = (
            f"the dead letters of a batch were committed and its rows were not, and now "
            f"{self.definition.topic}-{partition} offset {offset} "
            f"{'is none' if (partition, offset) in before else 'is one, too'}: the log, or what "
            "decodes it, is another one than then"
        )
        if not self._accepts_loss:
            raise Gap(
                f"{problem}. If the log was cut off, drop the table and create it again; "
                "`headrace table run --accept-loss` takes the batch as it is now"
            )
        LOG.warning("%s; it is taken as it is now", problem)

    def write_ranges(self, pending: list[Range]) -> tuple[list[Written], list[str]]:
        """Have ranges written, with all columns that they show; return the columns that are new."""
        done: list[Written] = []
        added: list[str] = []
        for _ in range(SCHEMA_PASSES_MAX):
            try:
                results = self._run_tasks(pending)
            except FilesGone as error:
                raise PlanAgain(str(error)) from None
            seen = [read_schema(each.seen) for each in results if each.seen]
            done += [each for each in results if not each.seen]
            self._step("written")
            if not seen:
                return done, added
            pending = [wanted for wanted, each in zip(pending, results, strict=True) if each.seen]
            added += self.evolve(unify_fields(seen))
            self._step("evolved")
        raise UnstableSchema(
            f"table {self.definition.name!r}: a batch shows new columns again and again; the last "
            f"ones: {', '.join(added[-5:])}"
        )

    def job(self) -> Job:
        """Return what tasks need, as of the last heads."""
        return Job(
            definition=self.definition,
            connecting=self._options.connecting,
            limits=self._options.limits,
            store_options=self._store_options,
            schema=schema_bytes(self.rows.schema()),
            letters_schema=schema_bytes(self.letters.schema()),
        )

    def _run_tasks(self, ranges: list[Range]) -> list[Written]:
        job = self.job()
        if self.definition.mode is Mode.UPSERT:
            live = live_keys(self.rows.files())
            tasks = [UpsertTask(job, each, live.get(each.partition, [])) for each in ranges]
            return self._engine.run(upsert_range, tasks)
        return self._engine.run(_write_range, [(job, each) for each in ranges])

    def evolve(self, wanted: pa.Schema) -> list[str]:
        """Add those columns to the table that it can have; return their names."""
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            self.rows.head()
            known = self.rows.schema()
            if fills(known, wanted):
                raise UnstableSchema(
                    f"table {self.definition.name!r} would have more than {COLUMNS_MAX} columns: "
                    "is a field's name a value? --column and --no-evolve keep to the given ones"
                )
            grown = admit(self.definition, known, wanted)
            if grown.equals(known):
                return []
            try:
                self.rows.evolve(grown)
            except CommitConflict:
                pause(attempt)
                continue
            self.rows.head()
            names = [each.name for each in grown if each.name not in known.names]
            return names or [each.name for each in wanted]
        raise CatalogFailed(f"the schema of table {self.definition.name!r} cannot be changed")

    def _commit(
        self,
        store: TableStore,
        batch: Batch,
        change: Change,
        *,
        is_letters: bool,
        gaps: list[str] | None = None,
    ) -> None:
        """Commit a batch exactly once: the head is read again before every attempt."""
        problem: HeadraceError | None = None
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            self._check_lease()
            try:
                head = store.head()
            except CatalogFailed as error:
                problem = problem or error
                pause(attempt)
                continue
            verdict = (judge_letters if is_letters else judge)(head, batch)
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
                LOG.info("table %s, batch %d: %s", self.definition.name, batch.number, error)
                problem = error
            pause(attempt)
        raise CatalogFailed(
            f"batch {batch.number} of table {self.definition.name!r} could not be committed "
            f"({problem}). Its files are kept; the next run looks whether it was, and continues "
            "from there"
        )

    def topic_state(self) -> TopicState:
        """Ask the cluster for the topic, and its ends."""
        blocking = self._cluster()
        return blocking.run(self._ask(blocking))

    def check_cuts(self, head: Head) -> None:
        """Raise Gap if the log was cut off below what a head has, however long it is now."""
        asked = {
            TopicPartition(self.definition.topic, each): epoch
            for each, epoch in head.leaders.items()
            if each in head.offsets
        }
        if not asked:
            return
        blocking = self._cluster()
        found = blocking.run(epoch_ends(blocking.cluster, asked))
        # A partition that is gone, or that nobody leads, is judged by what else fails then.
        ends = {
            each.partition: end for each, end in found.items() if not isinstance(end, KafkaError)
        }
        check_cuts(self.definition, head, ends)

    async def _ask(self, blocking: BlockingCluster) -> TopicState:
        found = await find_topics(blocking.cluster, self._options.subscription)
        self.topic_id = TopicId(found.id_of(self.definition.topic))
        earliest = await ends(blocking.cluster, found.partitions, EARLIEST, self._options)
        listed = await list_offsets(
            blocking.cluster,
            dict.fromkeys(found.partitions, LATEST),
            is_committed=self._options.limits.is_committed,
        )
        latest = values_of(listed)
        return TopicState(
            topic_id=topic_id_text(self.topic_id) if any(self.topic_id) else "",
            earliest={each.partition: offset for each, offset in earliest.items()},
            latest={each.partition: place.offset for each, place in latest.items()},
            leaders={
                each.partition: place.leader_epoch
                for each, place in latest.items()
                if place.leader_epoch >= 0
            },
        )

    def _show_progress(self, plan: Plan) -> None:
        """Commit the offsets for a group, for tools that show lags; they decide nothing."""
        topic = self.definition.topic
        offsets = {TopicPartition(topic, each): stop for each, stop in plan.stop.items()}
        blocking = self._cluster()
        try:
            values_of(
                blocking.run(commit_offsets(blocking.cluster, self.definition.group, offsets))
            )
        except HeadraceError as error:
            LOG.warning("the lag of group %r is not shown: %s", self.definition.group, error)

    def _records_max(self) -> int:
        has_columns = len(value_columns(self.rows.schema())) > 0
        if self.definition.format is Format.JSON and self.definition.evolves and not has_columns:
            return min(FIRST_BATCH_RECORDS, self.definition.batch_records)
        return self.definition.batch_records

    def _cluster(self) -> BlockingCluster:
        return cluster_of(self._options.connecting)

    def _check_definition(self) -> None:
        """Raise if the table was altered since its definition was read: `alter` takes the claim."""
        blocking = self._cluster()
        found = blocking.run(registry.read_one(blocking.cluster, self.definition.name))
        if found != self.definition:
            raise registry.DefinitionChanged(
                f"table {self.definition.name!r} was altered, or created again, just now: run it "
                "again"
            )

    def _check_lease(self) -> None:
        if self._claim is not None:
            self._claim.check()


def _write_range(task: tuple[Job, Range]) -> Written:
    return write_range(*task)


def _known(head: Head, plan: Plan) -> dict[int, int]:
    """Return the head's offsets where a loss was skipped: there the batch continues from them."""
    return {each: offset for each, offset in head.offsets.items() if each in plan.start}


def _summed(written: list[Written]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in written:
        for rule, count in each.violations.items():
            total[rule] = total.get(rule, 0) + count
    return total


def pause(attempt: int) -> None:
    """Wait before the next attempt."""
    time.sleep(min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2**attempt))
