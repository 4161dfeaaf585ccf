"""What an executor does of a batch: read a range, decode it, write files, say what it wrote.

Only plain data comes in and goes out. Nothing is committed here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError
from headrace.remote.layout import OWN_PREFIX
from headrace.remote.store_options import StoreOptions
from headrace.spark.options import Connecting
from headrace.spark.planning import Range
from headrace.spark.read_options import FetchLimits
from headrace.spark.reading import read_range
from headrace.spark.tables.admission import admitted, refusal
from headrace.spark.tables.column_types import unify_fields
from headrace.spark.tables.data_files import DataFile, FileWriter
from headrace.spark.tables.decoding import BadValue, Decoder, decoder_of, value_columns
from headrace.spark.tables.definition import (
    LETTERS,
    METADATA,
    NAMESPACE,
    Definition,
    OnViolation,
    Target,
)
from headrace.spark.tables.partitioning import misplaced, partition_fields
from headrace.spark.tables.rules import Rule, broken, parse_rule
from headrace.spark.tier.stores import store_of

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of values are decoded at once."""
COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
TOMBSTONE: Final = "no value: a table that is appended to has nothing to delete (--mode upsert)"
NO_KEY: Final = "no key: an upserted table needs one"


class BadRecord(HeadraceError):
    """A record that stops the table, as its definition says."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a batch have in common."""

    definition: Definition
    connecting: Connecting
    limits: FetchLimits
    store_options: StoreOptions
    schema: bytes
    """The table's schema, with the ids of its fields if it has such."""
    letters_schema: bytes

    def table_schema(self) -> pa.Schema:
        return read_schema(self.schema)


class Written(msgspec.Struct, kw_only=True):
    """What a task wrote."""

    files: list[DataFile] = []
    letters: list[DataFile] = []
    removed: list[str] = []
    """Files that are replaced by the written ones."""
    rows: int = 0
    bad: int = 0
    violations: dict[str, int] = {}
    seen: bytes = b""
    """Columns that the table lacks; then there are no files, and the range is read again."""


def write_range(job: Job, wanted: Range) -> Written:
    """Write the records of a range."""
    task = RangeTask(job)
    with records_of(job, wanted) as chunks:
        for records in chunks:
            task.take(records)
    return task.finish()


class RangeTask:
    """One range on its way into files."""

    def __init__(self, job: Job) -> None:
        self._definition = job.definition
        self._schema = job.table_schema()
        self.blocking = store_of(job.definition.location, job.store_options)
        self._decoder: Decoder = decoder_of(
            job.definition, value_columns(self._schema, generated_names(job.definition))
        )
        self._rules = [parse_rule(each) for each in job.definition.rules]
        self._seen: list[pa.Schema] = []
        self._written = Written()
        definition = job.definition
        self._fields = partition_fields(definition)
        self._rows = FileWriter(
            self.blocking,
            data_folder(definition, definition.name),
            self._schema,
            fields=self._fields,
            sort_by=definition.sort_by,
            file_bytes=definition.file_bytes,
            has_hive_paths=definition.to is Target.PARQUET,
            omits_partitions=definition.to is not Target.ICEBERG,
        )
        self._letters = FileWriter(
            self.blocking,
            data_folder(definition, definition.dead_letters),
            read_schema(job.letters_schema),
            file_bytes=definition.file_bytes,
        )

    def take(self, records: pa.Table) -> None:
        """Decode and write some records."""
        rows, bad, seen = self.decode(records)
        if not self.add_seen(seen):
            self.refuse(records, bad)
            self.write(rows)

    @property
    def is_known(self) -> bool:
        """Whether the table has all columns that were seen."""
        return not self._seen

    def add_seen(self, seen: pa.Schema) -> bool:
        """Note columns; return whether the table lacks any, so that all is read again."""
        if len(seen):
            self._seen.append(seen)
        return not self.is_known

    def write(self, rows: pa.Table, *, is_new: bool = True) -> None:
        """Write rows of the table."""
        self._written.rows += rows.num_rows if is_new else 0
        self._rows.write(rows)

    def write_letters(self, letters: pa.Table) -> None:
        """Write dead letters."""
        self._letters.write(letters)

    def decode(self, records: pa.Table) -> tuple[pa.Table, list[BadValue], pa.Schema]:
        """Return rows of the table, the records that are not, and columns that it lacks.

        If it lacks any, the rows are not checked yet: rules may be about those.
        """
        values = records.column("value").combine_chunks()
        bad: list[BadValue] = []
        places = None
        if values.null_count:
            empty: list[Any] = pc.indices_nonzero(values.is_null()).to_pylist()
            bad += [BadValue(row, TOMBSTONE) for row in empty]
            places = pc.indices_nonzero(values.is_valid())
            values = values.take(places)
        decoded = admitted(self._decoder, values, self._refusal)
        bad += [
            BadValue(each.row if places is None else places[each.row].as_py(), each.reason)
            for each in decoded.bad
        ]
        kept: Any = pa.array(decoded.kept, pa.int64())
        if places is not None:
            kept = places.take(kept)
        whole = len(decoded.kept) == records.num_rows
        sources = records if whole else records.take(kept)
        rows = with_metadata(sources, decoded.columns, self._schema)
        if len(decoded.seen):
            return rows, [], decoded.seen
        rows, broken_rows = self._check(rows, kept)
        return rows, bad + broken_rows, decoded.seen

    def _refusal(self, seen: pa.Schema) -> str:
        return refusal(self._definition, self._schema, seen)

    def finish(self) -> Written:
        """Close the files; return what there is to commit."""
        if self._seen:
            return Written(seen=schema_bytes(unify_fields(self._seen)))
        self._written.files = self._rows.close()
        self._written.letters = self._letters.close()
        return self._written

    def _check(self, rows: pa.Table, kept: Any) -> tuple[pa.Table, list[BadValue]]:
        """Count the rows that break rules, and take them out if that is asked for.

        Rows that no partition can have are always taken out.
        """
        bad: dict[int, str] = {}
        for rule in self._rules:
            mask = broken(rule, rows)
            if mask is None:
                continue
            places = pc.indices_nonzero(mask).to_pylist()
            counts = self._written.violations
            counts[rule.text] = counts.get(rule.text, 0) + len(places)
            if self._definition.on_violation is OnViolation.FAIL:
                self._fail(rule, rows, places[0])
            for place in places:
                bad.setdefault(place, f"breaks the rule {rule.text!r}")
        if self._definition.on_violation is OnViolation.COUNT:
            bad = {}
        if self._fields:
            bad |= misplaced(rows, self._fields, self._definition.to)
        if not bad:
            return rows, []
        good = pa.array([row for row in range(rows.num_rows) if row not in bad], pa.int64())
        return rows.take(good), [BadValue(kept[row].as_py(), why) for row, why in bad.items()]

    def _fail(self, rule: Rule, rows: pa.Table, place: int) -> None:
        partition, offset = (rows.column(each)[place].as_py() for each in METADATA.names[:2])
        raise BadRecord(
            f"the record at {self._definition.topic}-{partition} offset {offset} breaks the rule "
            f"{rule.text!r}, and the table is defined to fail then (--on-violation fail)"
        )

    def refuse(self, records: pa.Table, bad: list[BadValue]) -> None:
        """Write dead letters, or fail if the table is defined so."""
        if not bad:
            return
        bad = sorted(bad, key=lambda each: each.row)
        part = records.take(pa.array([each.row for each in bad], pa.int64()))
        if self._definition.fails_on_bad_record:
            place = part.slice(0, 1).select(["partition", "offset"]).to_pylist()[0]
            raise BadRecord(
                f"the record at {self._definition.topic}-{place['partition']} offset "
                f"{place['offset']} cannot be taken: {bad[0].reason} (--on-bad-record fail)"
            )
        self._written.bad += len(bad)
        self.write_letters(
            pa.table(
                [
                    pa.array([self._definition.topic] * len(bad), pa.string()),
                    *(part.column(each) for each in ("partition", "offset", "timestamp", "key")),
                    part.column("value"),
                    pa.array([each.reason for each in bad], pa.string()),
                ],
                names=LETTERS.names,
            )
        )


def with_metadata(records: pa.Table, columns: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a table: where they come from, and their values."""
    sources = dict(zip(METADATA.names, ("partition", "offset", "timestamp", "key"), strict=True))
    arrays = [
        records.column(sources[each.name]) if each.name in sources else columns.column(each.name)
        for each in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


@contextmanager
def records_of(job: Job, wanted: Range) -> Iterator[Iterator[pa.Table]]:
    """Read a range in chunks; the fetch in flight is dropped at the end, however that comes."""
    reading: Any = read_range(job.connecting, wanted, job.limits, COLUMNS)
    try:
        yield chunks_of(reading, CHUNK_BYTES)
    finally:
        reading.close()


def chunks_of(batches: Iterator[pa.RecordBatch], size_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of small batches as tables of about this size."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= size_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def data_folder(definition: Definition, table: str) -> str:
    """Return where tasks write: of plain Parquet out of sight, as there is nothing but the folder.

    Everywhere else a file that no commit names is invisible anyway.
    """
    if definition.to is Target.PARQUET:
        return f"{OWN_PREFIX}tables/{table}/staged"
    return f"{NAMESPACE}/{table}/data"


def generated_names(definition: Definition) -> list[str]:
    """Return the columns that partitions add to a table of Delta or Parquet."""
    if definition.to is Target.ICEBERG:
        return []
    return [each.name for each in partition_fields(definition) if each.transform != "identity"]


def schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def read_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))
