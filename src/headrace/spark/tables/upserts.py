"""Upserts by copying: the last record of a key is its row, a tombstone removes it.

A task has one partition of the topic, so it sees its keys in order. It looks for them in the `_key`
column of every file with rows of that partition, and writes those files again without the old rows.
So a batch costs a scan of that column, plus the size of the files that have one of its keys:
with keys all over the table, that is the table. Memory holds the rows of one partition's batch
(`batch_records` bounds it) and one file.
"""

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError
from headrace.spark.planning import Range
from headrace.spark.tables.decoding import BadValue
from headrace.spark.tables.stored_rows import read_stored
from headrace.spark.tables.table_store import LiveFile
from headrace.spark.tables.task import NO_KEY, Job, RangeTask, Written, records_of


class MixedFile(HeadraceError):
    """A file with rows of several partitions in an upserted table."""


class UpsertTask(msgspec.Struct, frozen=True):
    """A range, and the files that may have older rows of its keys."""

    job: Job
    range: Range
    live: list[LiveFile]


def live_keys(files: list[LiveFile]) -> dict[int, list[LiveFile]]:
    """Return the files of each partition of the topic."""
    found: dict[int, list[LiveFile]] = {}
    for each in files:
        low, high = each.bounds.get("_partition", (-1, -2))
        if low != high:
            raise MixedFile(
                f"{each.key} has rows of several partitions: another program has rewritten files "
                "of this upserted table. Create it again, and compact it here"
            )
        found.setdefault(low, []).append(each)
    return found


def upsert_range(task: UpsertTask) -> Written:
    """Write the last rows of a range's keys, and the files that had older ones."""
    work = _Upsert(task)
    with records_of(task.job, task.range) as chunks:
        for records in chunks:
            work.take(records)
    return work.finish()


class _Upsert:
    def __init__(self, task: UpsertTask) -> None:
        self._task = task
        self._range = RangeTask(task.job)
        self._rows: list[pa.Table] = []
        self._gone: dict[bytes, int] = {}
        """The offset of the last tombstone of a key."""

    def take(self, records: pa.Table) -> None:
        keys = records.column("key")
        values = records.column("value")
        bad: list[BadValue] = []
        if keys.null_count:
            missing: list[Any] = pc.indices_nonzero(keys.is_null().combine_chunks()).to_pylist()
            bad += [BadValue(row, NO_KEY) for row in missing]
        dead = pc.and_(values.is_null(), keys.is_valid())
        for row in records.filter(dead).select(["key", "offset"]).to_pylist():
            self._gone[row["key"]] = row["offset"]
        both: Any = pc.and_(values.is_valid(), keys.is_valid())
        living = pc.indices_nonzero(both.combine_chunks())
        part = records.take(living)
        rows, more, seen = self._range.decode(part)
        bad += [BadValue(living[each.row].as_py(), each.reason) for each in more]
        if not self._range.add_seen(seen):
            self._range.refuse(records, bad)
            self._rows.append(rows)

    def finish(self) -> Written:
        if not self._range.is_known:
            return self._range.finish()
        schema = self._task.job.table_schema()
        rows = last_rows(pa.concat_tables([*self._rows, schema.empty_table()]), self._gone)
        keys: list[Any] = rows.column("_key").to_pylist()
        touched = pa.array(sorted({*keys, *self._gone}), pa.binary())
        removed: list[str] = []
        for file in self._task.live:
            kept = self._without(file, touched, schema)
            if kept is not None:
                removed.append(file.key)
                self._range.write(kept, is_new=False)
        self._range.write(rows)
        written = self._range.finish()
        written.removed = removed
        return written

    def _without(self, file: LiveFile, touched: Any, schema: pa.Schema) -> pa.Table | None:
        """Return the rows of a file that stay; None if all do, so that the file does."""
        blocking = self._range.blocking
        keys = read_stored(blocking, file, schema, columns=["_key"]).column("_key")
        found = pc.is_in(keys, value_set=touched)
        if not pc.any(found).as_py():
            return None
        return read_stored(blocking, file, schema).filter(pc.invert(found))


def last_rows(rows: pa.Table, gone: dict[bytes, int]) -> pa.Table:
    """Return the last row of each key that no later tombstone removes."""
    latest = rows.select(["_key", "_offset"]).group_by("_key").aggregate([("_offset", "max")])
    offsets = pa.array(
        [
            row["_offset_max"]
            for row in latest.to_pylist()
            if gone.get(row["_key"], -1) < row["_offset_max"]
        ],
        pa.int64(),
    )
    return rows.filter(pc.is_in(rows.column("_offset"), value_set=offsets))
