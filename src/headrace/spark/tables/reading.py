"""What a joined read consists of, and its rows: see `source`."""

from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.planning import Range
from headrace.spark.tables.administration import find_table, read_options_of, store_options
from headrace.spark.tables.admission import admit
from headrace.spark.tables.data_files import fit_rows
from headrace.spark.tables.definition import METADATA, Mode, OnViolation
from headrace.spark.tables.engine import Here
from headrace.spark.tables.opened import SCHEMA_PASSES_MAX, OpenTable, UnstableSchema
from headrace.spark.tables.planning import check_topic, plan_batch
from headrace.spark.tables.source import TableOptions
from headrace.spark.tables.stored_rows import read_stored
from headrace.spark.tables.table_store import LiveFile
from headrace.spark.tables.task import Job, RangeTask, records_of, schema_bytes
from headrace.spark.tables.upserts import last_rows, live_keys

ALL_RECORDS = 2**62


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A table up to its head, and the log beyond."""

    job: Job
    live: list[LiveFile]
    tails: list[Range]
    """One range for each partition of the topic, which may be empty."""

    @property
    def schema(self) -> pa.Schema:
        return self.job.table_schema()

    @property
    def is_upsert(self) -> bool:
        return self.job.definition.mode is Mode.UPSERT

    @property
    def files(self) -> list[LiveFile]:
        return self.live

    def files_of(self, partition: int) -> list[LiveFile]:
        """Return the files of an upserted table that have rows of a partition of the topic."""
        return live_keys(self.live).get(partition, [])


def plan_read(options: TableOptions) -> ReadPlan:
    """Fix where the table ends and the log begins; Gap if something is missing in between."""
    definition = find_table(options.connecting, options.table)
    definition = msgspec.structs.replace(
        definition,
        fails_on_bad_record=False,
        on_violation=OnViolation.COUNT
        if definition.on_violation is OnViolation.COUNT
        else OnViolation.DEAD_LETTER,
    )
    table = OpenTable(
        definition,
        read_options_of(options.connecting, definition.topic),
        store_options(definition),
        Here(),
    )
    try:
        # The head first: what is committed afterwards is read from the log.
        head = table.rows.head()
        table.letters.head()
        state = table.topic.state()
        check_topic(definition, state, head)
        table.topic.check_cuts(head)
        plan = plan_batch(definition, state, head, head, records_max=ALL_RECORDS)
        tails = [
            Range(definition.topic, each, start, plan.stop[each], table.topic.topic_id)
            for each, start in plan.start.items()
        ]
        return ReadPlan(job=table.job(), live=table.rows.files(), tails=tails)
    finally:
        table.close()


def _decoded(work: RangeTask, job: Job, records: pa.Table) -> pa.Table:
    """Return the rows that a writer would make of records, in the columns that the table has.

    Whether a row is one may be up to columns that the writer would add for it: a rule's.
    """
    schema = job.table_schema()
    for _ in range(SCHEMA_PASSES_MAX):
        rows, _, seen = work.decode(records)
        if not len(seen):
            return _planned(job, rows, schema)
        grown = admit(job.definition, job.table_schema(), seen)
        job = msgspec.structs.replace(job, schema=schema_bytes(grown))
        work = RangeTask(job)
    raise UnstableSchema("records show new columns again and again")


def _planned(job: Job, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in the columns that the read was planned with; UnstableSchema if they are wider.

    Leaving them out would be a gap.
    """
    try:
        return fit_rows(rows, schema)
    except (pa.ArrowException, ValueError) as error:
        place = rows.slice(0, 1).select(METADATA.names[:2]).to_pylist()[0]
        name = job.definition.name
        raise UnstableSchema(
            f"records of {job.definition.topic}-{place['_partition']} from offset "
            f"{place['_offset']} on need wider columns than table {name!r} has yet ({error}): "
            f"`headrace table run {name}` widens them; then read again"
        ) from None


def rows_of(job: Job, files: list[LiveFile], tail: Range | None) -> Iterator[pa.Table]:
    """Yield the rows of files and of a range; of an upserted table the last ones."""
    work = RangeTask(job)
    schema = job.table_schema()
    is_upsert = job.definition.mode is Mode.UPSERT
    newer, touched = [schema.empty_table()], None
    gone: dict[bytes, int] = {}
    if tail is not None and tail.size:
        with records_of(job, tail) as chunks:
            for chunk in chunks:
                records = chunk
                if is_upsert:
                    keys, values = records.column("key"), records.column("value")
                    dead = records.filter(pc.and_(values.is_null(), keys.is_valid()))
                    gone |= {
                        row["key"]: row["offset"]
                        for row in dead.select(["key", "offset"]).to_pylist()
                    }
                    records = records.filter(pc.and_(values.is_valid(), keys.is_valid()))
                rows = _decoded(work, job, records)
                if is_upsert:
                    newer.append(rows)
                else:
                    yield rows
    if is_upsert:
        last = last_rows(pa.concat_tables(newer), gone)
        yield last
        touched = pa.array({*last.column("_key").to_pylist(), *gone}, pa.binary())
    for file in files:
        found = read_stored(work.blocking, file, schema)
        if touched is not None and len(touched):
            found = found.filter(pc.invert(pc.is_in(found.column("_key"), value_set=touched)))
        yield found
