"""Is the table what the topic says? Row by row, as tasks over ranges of offsets.

Each task reads a range from the log, decodes it as a writer would, and compares it with the table's
rows and dead letters of that range. Records that retention or compaction has removed cannot be
compared: which, or how many rows the table has of them, is said.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.spark.planning import Range
from headrace.spark.tables.administration import Where, find_table, read_options_of, store_options
from headrace.spark.tables.commits import Head
from headrace.spark.tables.definition import (
    LETTERS,
    METADATA,
    Definition,
    Format,
    Mode,
    OnViolation,
)
from headrace.spark.tables.engine import Engine
from headrace.spark.tables.opened import OpenTable
from headrace.spark.tables.planning import check_topic
from headrace.spark.tables.stored_rows import read_stored
from headrace.spark.tables.table_store import LiveFile
from headrace.spark.tables.task import Job, RangeTask, records_of
from headrace.spark.tables.typeless import has_type, typed_records
from headrace.spark.tables.upserts import last_rows

RANGE_RECORDS: Final = 200_000
"""How many offsets a task compares; of an upserted table it is a partition, for its keys."""
OFFSETS_SHOWN_MAX: Final = 100
"""How many offsets of each kind a range reports."""


class RangeReport(msgspec.Struct, kw_only=True):
    """What a task found."""

    partition: int
    start: int
    stop: int
    log_rows: int = 0
    table_rows: int = 0
    log_dead: int = 0
    table_dead: int = 0
    log_hash: str = ""
    table_hash: str = ""
    missing: list[int] = []
    """Offsets of rows, or dead letters, that the table lacks."""
    surplus: list[int] = []
    """Offsets that the table has and should not, or has twice."""
    different: list[int] = []
    """Offsets whose rows differ."""
    compacted: int = 0
    """Rows and dead letters whose records the log's compaction has removed."""

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.surplus or self.different)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and with which result."""

    ranges: list[RangeReport]
    unverifiable: dict[int, tuple[int, int]]
    """Offsets of partitions that the table has, and the log not any more."""

    @property
    def is_equal(self) -> bool:
        return all(each.is_equal for each in self.ranges)


class VerifyTask(msgspec.Struct, frozen=True):
    """A range, and the files that may have its rows and dead letters."""

    job: Job
    range: Range
    files: list[LiveFile]
    letters: list[LiveFile]
    is_compacted: bool = False
    """Whether the log may lack records that the table has."""


def verify_table(bootstrap: Where, name: str, engine: Engine) -> Verification:
    """Compare a table with its topic, up to where the table is; Gap if it is another topic."""
    definition = find_table(bootstrap, name)
    if definition.on_violation is OnViolation.FAIL or definition.fails_on_bad_record:
        definition = msgspec.structs.replace(
            definition, on_violation=OnViolation.DEAD_LETTER, fails_on_bad_record=False
        )
    options = read_options_of(bootstrap, definition.topic)
    table = OpenTable(definition, options, store_options(definition), engine)
    try:
        head = table.rows.head()
        letters_head = table.letters.head()
        state = table.topic.state()
        check_topic(definition, state, head)
        is_compacted = table.topic.is_compacted()
        # What lies beyond the end of the log cannot be of this log.
        ends = {each: min(stop, state.latest[each]) for each, stop in head.offsets.items()}
        head = msgspec.structs.replace(head, offsets=ends)
        job = table.job()
        rows, letters = table.rows.files(), table.letters.files()
        ranges, gone = _ranges(definition, head, dict(state.earliest), table.topic.topic_id)
        tasks = [
            VerifyTask(
                job,
                each,
                _within(rows, each, ("_partition", "_offset")),
                _within(letters, each, ("partition", "offset")),
                is_compacted,
            )
            for each in ranges
        ]
        reports = engine.run(verify_range, tasks)
        reports += _strays(table, engine, job, head, letters_head)
        return Verification(ranges=reports, unverifiable=gone)
    finally:
        table.close()


class StrayTask(msgspec.Struct, frozen=True):
    """A file that may have rows outside of the offsets that the table says it has."""

    job: Job
    file: LiveFile
    names: tuple[str, str]
    """Its columns with the partition and the offset."""
    covered: dict[int, tuple[int, int]]


def _strays(
    table: OpenTable, engine: Engine, job: Job, head: Head, letters: Head
) -> list[RangeReport]:
    """Return reports of what is outside of the offsets that are in the table, if there is any."""
    covered = {each: (head.begins.get(each, 0), stop) for each, stop in head.offsets.items()}
    # Dead letters are committed before the rows they were among, so they may be ahead.
    ahead = {
        each: (
            min(covered.get(each, (begin,))[0], begin),
            max(covered.get(each, (0, 0))[1], letters.offsets.get(each, 0)),
        )
        for each, begin in letters.begins.items()
    }
    wheres = (
        (table.rows.files(), ("_partition", "_offset"), covered),
        (table.letters.files(), ("partition", "offset"), covered | ahead),
    )
    tasks = [
        StrayTask(job, file, names, places)
        for files, names, places in wheres
        for file in files
        if not _is_inside(file, names, places)
    ]
    found: dict[int, list[int]] = {}
    for strays in engine.run(find_strays, tasks):
        for partition, offset in strays:
            found.setdefault(partition, []).append(offset)
    return [
        RangeReport(
            partition=each,
            start=min(offsets),
            stop=max(offsets) + 1,
            table_rows=len(offsets),
            surplus=sorted(offsets)[:OFFSETS_SHOWN_MAX],
        )
        for each, offsets in sorted(found.items())
    ]


def _is_inside(
    file: LiveFile, names: tuple[str, str], covered: Mapping[int, tuple[int, int]]
) -> bool:
    """Return whether all of a file's rows are surely within the covered offsets."""
    if names[0] not in file.bounds or names[1] not in file.bounds:
        return False
    low, high = file.bounds[names[0]]
    first, last = file.bounds[names[1]]
    return high - low < len(covered) and all(
        each in covered and covered[each][0] <= first and last < covered[each][1]
        for each in range(low, high + 1)
    )


def find_strays(task: StrayTask) -> list[tuple[int, int]]:
    """Return partition and offset of the rows that are outside of what is covered."""
    schema = task.job.table_schema() if task.names[0] in METADATA.names else LETTERS
    work = RangeTask(task.job)
    partition, offset = task.names
    rows = read_stored(work.blocking, task.file, schema, columns=[partition, offset])
    names = rows.to_pylist()
    places = [
        tuple(-1 if row[name] is None else int(row[name]) for name in task.names) for row in names
    ]
    return [
        (each, at)
        for each, at in places
        if not task.covered.get(each, (0, 0))[0] <= at < task.covered.get(each, (0, 0))[1]
    ]


def verify_range(task: VerifyTask) -> RangeReport:
    """Compare one range."""
    wanted = task.range
    report = RangeReport(partition=wanted.partition, start=wanted.start, stop=wanted.stop)
    work = RangeTask(task.job)
    schema = task.job.table_schema()
    expected, bad, read = _expected(task, work, schema)
    stored = _stored(work, task.files, schema, ("_partition", "_offset"), wanted)
    found = pa.concat_tables([schema.empty_table(), *stored])
    if task.job.definition.mode is Mode.UPSERT:
        places: Any = found.column("_offset")
        found = found.filter(pc.greater_equal(places, pa.scalar(wanted.start, pa.int64())))
    letters = _stored(work, task.letters, LETTERS, ("partition", "offset"), wanted)
    dead = [row for each in letters for row in _letters(each)]
    if task.is_compacted:
        whole = found.num_rows + len(dead)
        found = _at(found, read)
        dead = [(offset, text) for offset, text in dead if offset in read]
        report.compacted = whole - found.num_rows - len(dead)
    for definition in _older(task.job.definition):
        job = msgspec.structs.replace(task.job, definition=definition)
        again = msgspec.structs.replace(task, job=job)
        expected, bad = _by_older(again, expected, bad, found, dead)
    if task.job.definition.format is Format.JSON:
        definition = next(_older(task.job.definition), task.job.definition)
        job = msgspec.structs.replace(task.job, definition=definition)
        again = msgspec.structs.replace(task, job=job)
        expected, bad = _by_older(again, expected, bad, found, dead, only_typed=True)
    report.log_rows, report.table_rows = expected.num_rows, found.num_rows
    report.log_dead, report.table_dead = len(bad), len(dead)
    _compare(report, expected.sort_by("_offset"), found.sort_by("_offset"))
    _compare_letters(report, dict(bad), dead)
    return report


def _older(definition: Definition) -> Iterator[Definition]:
    """Yield what rows may have been written by before the table was altered."""
    if definition.has_changed_rules:
        definition = msgspec.structs.replace(definition, rules=())
        yield definition
    for each in definition.older_schemas:
        yield msgspec.structs.replace(definition, **msgspec.structs.asdict(each))


def _by_older(
    task: VerifyTask,
    expected: pa.Table,
    bad: list[tuple[int, str]],
    found: pa.Table,
    dead: list[tuple[int, str]],
    *,
    only_typed: bool = False,
) -> tuple[pa.Table, list[tuple[int, str]]]:
    """Expect rows as an older definition makes them, where the table has them so.

    They were written by it, and `alter` leaves what is written. That is what breaks rules of now or
    cannot be decoded any more, and what a newer schema decodes otherwise. Of an upserted table the
    former may have been replaced since. With `only_typed` the columns are older: an empty list was
    null before its column came, and does not fit if that is none of lists.
    """
    places = {offset for offset, _ in bad}.difference(offset for offset, _ in dead)
    changed = _differing(expected, found)
    if not places and not changed:
        return expected, bad
    job = task.job
    older, _, _ = _expected(
        task, RangeTask(job), job.table_schema(), has_all=True, only_typed=only_typed
    )
    changed -= _differing(older, found) | places
    changed.intersection_update(older.column("_offset").to_pylist())
    expected = pa.concat_tables([_but(expected, changed), _at(older, changed)])
    older = _at(older, places)
    is_upsert = job.definition.mode is Mode.UPSERT
    replaced = set(older.column("_offset").to_pylist()) if is_upsert else set()
    older = _at(older, set(found.column("_offset").to_pylist()))
    taken = replaced.union(older.column("_offset").to_pylist())
    rows = pa.concat_tables([expected, older])
    if is_upsert:
        rows = last_rows(rows, {})
    return rows, [each for each in bad if each[0] not in taken]


def _differing(expected: pa.Table, found: pa.Table) -> set[int]:
    """Return the offsets of rows that are on both sides and differ."""
    expected = _numbered(expected.sort_by("_offset"))
    found = _numbered(found.sort_by("_offset"))
    if expected.equals(found):
        return set()
    wanted = {row["_offset"]: row for row in expected.to_pylist()}
    return {
        row["_offset"]
        for row in found.to_pylist()
        if not _is_stored_as(row, wanted.get(row["_offset"], row))
    }


def _but(rows: pa.Table, offsets: set[Any]) -> pa.Table:
    places: Any = pa.array(offsets, pa.int64())
    return rows.filter(pc.invert(pc.is_in(rows.column("_offset"), value_set=places)))


def _at(rows: pa.Table, offsets: set[Any]) -> pa.Table:
    wanted: Any = pa.array(offsets, pa.int64())
    return rows.filter(pc.is_in(rows.column("_offset"), value_set=wanted))


def _letters(records: pa.Table) -> list[tuple[int, str]]:
    """Return the offset of each record, and what of it a dead letter has."""
    times: Any = records.column("timestamp").cast(pa.int64())
    columns: list[list[Any]] = [
        records.column("offset").to_pylist(),
        times.to_pylist(),
        *(records.column(each).to_pylist() for each in ("key", "value")),
    ]
    return [(offset, repr(rest)) for offset, *rest in zip(*columns, strict=True)]


def _expected(
    task: VerifyTask,
    work: RangeTask,
    schema: pa.Schema,
    *,
    has_all: bool = False,
    only_typed: bool = False,
) -> tuple[pa.Table, list[tuple[int, str]], set[int]]:
    """Return the rows that a range should be, its dead letters, and the offsets that it has.

    The latter only of a log that is compacted. With `has_all` the rows are all, of an upserted
    table, too; with `only_typed` they are decoded without what has no type of its own.
    """
    job, is_upsert = task.job, task.job.definition.mode is Mode.UPSERT
    rows = [schema.empty_table()]
    bad: list[tuple[int, str]] = []
    gone: dict[bytes, int] = {}
    read: set[int] = set()
    with records_of(job, task.range) as chunks:
        for records in chunks:
            part = records
            if task.is_compacted:
                offsets: list[Any] = records.column("offset").to_pylist()
                read.update(offsets)
            if is_upsert:
                keys, values = part.column("key"), part.column("value")
                bad += _letters(part.filter(keys.is_null()))
                dead = part.filter(pc.and_(values.is_null(), keys.is_valid()))
                gone |= {
                    row["key"]: row["offset"] for row in dead.select(["key", "offset"]).to_pylist()
                }
                part = part.filter(pc.and_(values.is_valid(), keys.is_valid()))
            decoded, refused, _ = work.decode(typed_records(part) if only_typed else part)
            rows.append(decoded)
            bad += _letters(part.take(pa.array([each.row for each in refused], pa.int64())))
    whole = pa.concat_tables(rows)
    return (last_rows(whole, gone) if is_upsert and not has_all else whole), bad, read


def _compare(report: RangeReport, expected: pa.Table, found: pa.Table) -> None:
    expected, found = _numbered(expected), _numbered(found)
    report.log_hash = _hash(expected)
    if found.equals(expected):
        report.table_hash = report.log_hash
        return
    report.table_hash = _hash(found)
    if report.table_hash == report.log_hash:
        return  # the same rows; Arrow says that no NaN equals another
    wanted = {row["_offset"]: row for row in expected.to_pylist()}
    there: dict[int, Any] = {}
    surplus: set[int] = set()
    for row in found.to_pylist():
        offset = row["_offset"]
        if offset in there or offset not in wanted:
            surplus.add(offset)
        there[offset] = row
    report.missing = sorted(set(wanted).difference(there))[:OFFSETS_SHOWN_MAX]
    report.surplus = sorted(surplus)[:OFFSETS_SHOWN_MAX]
    report.different = sorted(
        offset for offset, row in wanted.items() if not _is_stored_as(there.get(offset, row), row)
    )[:OFFSETS_SHOWN_MAX]


def _is_stored_as(stored: Any, wanted: Any) -> bool:
    """Return whether a stored value is what a writer made of a record then.

    An empty list, or an object with nothing but null, has no type. Until another record has shown
    the type the column did not exist, so what is stored is null.
    """
    if repr(stored) == repr(wanted):
        return True
    if stored is None:
        return not has_type(wanted)
    if isinstance(stored, dict) and isinstance(wanted, dict):
        return all(_is_stored_as(stored.get(name), each) for name, each in wanted.items())
    if isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        return all(map(_is_stored_as, stored, wanted))
    return False


def _compare_letters(
    report: RangeReport, wanted: dict[int, str], found: list[tuple[int, str]]
) -> None:
    """Add what is wrong with the dead letters of a range. Their reasons may be others by now."""
    there = dict(found)
    doubled = {each for each, count in Counter(offset for offset, _ in found).items() if count > 1}
    different = {each for each, text in wanted.items() if there.get(each, text) != text}
    report.missing = _shown(report.missing, set(wanted).difference(there))
    report.surplus = _shown(report.surplus, set(there).difference(wanted) | doubled)
    report.different = _shown(report.different, different)


def _shown(offsets: list[int], more: set[int]) -> list[int]:
    return sorted({*offsets, *more})[:OFFSETS_SHOWN_MAX]


def _numbered(rows: pa.Table) -> pa.Table:
    """Return rows with times as numbers: Python's end with the year 9999."""
    for index, each in enumerate(rows.schema):
        if pa.types.is_timestamp(each.type) or pa.types.is_date(each.type):
            kind = pa.int64() if pa.types.is_timestamp(each.type) else pa.int32()
            rows = rows.set_column(index, each.name, rows.column(index).cast(kind))
    return rows


def _hash(rows: pa.Table) -> str:
    digest = xxhash.xxh3_128()
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            digest.update(repr(row).encode())
    return digest.hexdigest()


def _stored(
    work: RangeTask,
    files: Iterable[LiveFile],
    schema: pa.Schema,
    names: tuple[str, str],
    wanted: Range,
) -> list[pa.Table]:
    partition, offset = names
    filters = (
        (pc.field(partition) == wanted.partition)
        & (pc.field(offset) >= wanted.start)
        & (pc.field(offset) < wanted.stop)
    )
    return [read_stored(work.blocking, each, schema, filters=filters) for each in files]


def _ranges(
    definition: Definition, head: Head, earliest: dict[int, int], topic_id: bytes
) -> tuple[list[Range], dict[int, tuple[int, int]]]:
    found: list[Range] = []
    gone: dict[int, tuple[int, int]] = {}
    size = None if definition.mode is Mode.UPSERT else RANGE_RECORDS
    for each, stop in sorted(head.offsets.items()):
        begin = head.begins.get(each, 0)
        start = max(begin, earliest.get(each, 0))
        if start > begin:
            gone[each] = (begin, min(start, stop))
        step = size or max(1, stop - start)
        for at in range(start, stop, step):
            found.append(Range(definition.topic, each, at, min(at + step, stop), topic_id))
    return found, gone


def _within(files: list[LiveFile], wanted: Range, names: tuple[str, str]) -> list[LiveFile]:
    found = []
    for each in files:
        low, high = each.bounds.get(names[0], (wanted.partition, wanted.partition))
        first, last = each.bounds.get(names[1], (wanted.start, wanted.stop))
        if low <= wanted.partition <= high and first < wanted.stop and last >= wanted.start:
            found.append(each)
    return found
