"""A table that is open: its rows, its dead letters, its topic, and the tasks that write its files.

Writers and jobs work on one. What they commit, and when, is theirs.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.remote.store_options import StoreOptions
from headrace.spark.planning import Range
from headrace.spark.read_options import ReadOptions
from headrace.spark.tables.admission import admit, fills
from headrace.spark.tables.column_types import COLUMNS_MAX, unify_fields
from headrace.spark.tables.commits import COMMIT_ATTEMPTS_MAX, CommitConflict, FilesGone
from headrace.spark.tables.committing import PlanAgain, pause
from headrace.spark.tables.definition import Definition, Mode
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.table_store import CatalogFailed, open_table
from headrace.spark.tables.task import Job, Written, read_schema, schema_bytes, write_range
from headrace.spark.tables.topic_view import TopicView
from headrace.spark.tables.upserts import UpsertTask, live_keys, upsert_range

SCHEMA_PASSES_MAX: Final = 4
"""How often a batch is read because each time it showed columns that were not known."""


class UnstableSchema(HeadraceError):
    """A batch shows new columns however often it is read."""


class OpenTable:
    """One table, opened by one thread."""

    def __init__(
        self,
        definition: Definition,
        options: ReadOptions,
        store_options: StoreOptions,
        engine: Engine,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_step` hears what `write_ranges` has done."""
        self.definition = definition
        self._options = options
        self.store_options = store_options
        self._engine = engine
        self._step = on_step
        self.rows = open_table(definition, definition.name, store_options)
        self.letters = open_table(definition, definition.dead_letters, store_options)
        self.topic = TopicView(definition, options)

    def close(self) -> None:
        """Release what is open."""
        self.rows.close()
        self.letters.close()

    def job(self) -> Job:
        """Return what tasks need, as of the last heads."""
        return Job(
            definition=self.definition,
            connecting=self._options.connecting,
            limits=self._options.limits,
            store_options=self.store_options,
            schema=schema_bytes(self.rows.schema()),
            letters_schema=schema_bytes(self.letters.schema()),
        )

    def write_ranges(self, pending: list[Range]) -> tuple[list[Written], list[str]]:
        """Write ranges with all columns that they contain; return the new columns."""
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

    def _run_tasks(self, ranges: list[Range]) -> list[Written]:
        job = self.job()
        if self.definition.mode is Mode.UPSERT:
            live = live_keys(self.rows.files())
            tasks = [UpsertTask(job, each, live.get(each.partition, [])) for each in ranges]
            return self._engine.run(upsert_range, tasks)
        return self._engine.run(_write_range, [(job, each) for each in ranges])


def _write_range(task: tuple[Job, Range]) -> Written:
    return write_range(*task)
