"""Parquet files in a store: written whole, under names that no other attempt has.

A file counts only once a commit names it, so a task that fails, or is repeated, leaves files that
nobody sees; `headrace table compact` removes them.
"""

import io
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.remote.store import NoSuchObject
from headrace.spark.tables.commits import FilesGone
from headrace.spark.tables.fitting import fit, place_of
from headrace.spark.tables.partitioning import PartitionField, folder_name, split_rows
from headrace.spark.tables.writer_lease import Blocking
from headrace.surroundings import new_uuid

ROW_GROUP_ROWS: Final = 256 * 1024
CODEC: Final = "zstd"
FOLDER: Final = "file://"


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file, as its writer describes it to the driver."""

    key: str
    """Its place below the location."""
    size_bytes: int
    rows: int
    footer: bytes
    """The Parquet file's own description of its columns."""
    partition: tuple[Any, ...] = ()
    bounds: dict[str, tuple[int, int]] = {}
    """The least and the greatest `_partition` and `_offset`."""


class FileWriter:
    """Writes rows of one schema into as many files as partitions and sizes ask for."""

    def __init__(
        self,
        blocking: Blocking,
        folder: str,
        schema: pa.Schema,
        *,
        fields: list[PartitionField] | None = None,
        sort_by: tuple[str, ...] = (),
        file_bytes: int,
        has_hive_paths: bool = False,
        omits_partitions: bool = False,
    ) -> None:
        """With `omits_partitions` files lack the columns that the table is partitioned by."""
        self._blocking = blocking
        self._folder = folder
        self._schema = schema
        self._fields = fields or []
        self._sort_by = sort_by
        self._file_bytes = file_bytes
        self._has_hive_paths = has_hive_paths
        self._omits_partitions = omits_partitions
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self.files: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Take rows; they are in files after `close`."""
        if not rows.num_rows:
            return
        if self._sort_by or self._fields:
            # As much as a file has is sorted, or split by partitions, at once.
            self._waiting.append(rows)
            self._waiting_bytes += rows.nbytes
            if self._waiting_bytes >= self._file_bytes:
                self._arrange()
        else:
            self._put((), rows)

    def close(self) -> list[DataFile]:
        """Finish and return all files."""
        self._arrange()
        for values in list(self._open):
            self._finish(values)
        return self.files

    def _arrange(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        for values, part in split_rows(rows, self._fields):
            if self._sort_by:
                order = pc.sort_indices(part, [(name, "ascending") for name in self._sort_by])
                part = part.take(order)  # noqa: PLW2901
            self._put(values, part)
            if self._fields:
                self._finish(values)

    def _put(self, values: tuple[Any, ...], rows: pa.Table) -> None:
        file = self._open.get(values)
        if file is None:
            file = self._open[values] = _OpenFile(self._file_schema())
        file.write(rows)
        if file.size_bytes >= self._file_bytes:
            self._finish(values)

    def _file_schema(self) -> pa.Schema:
        if not self._omits_partitions:
            return self._schema
        named = {each.name for each in self._fields}
        return pa.schema([each for each in self._schema if each.name not in named])

    def _finish(self, values: tuple[Any, ...]) -> None:
        file = self._open.pop(values)
        data = file.finish()
        parts = [self._folder]
        if self._has_hive_paths:
            parts += [
                folder_name(value, field) for field, value in zip(self._fields, values, strict=True)
            ]
        key = "/".join([*parts, f"{new_uuid()}.parquet"])
        self._blocking.run(self._blocking.store.put(key, data, len(data)))
        self.files.append(
            DataFile(
                key=key,
                size_bytes=len(data),
                rows=file.rows,
                footer=footer_bytes(pq.read_metadata(pa.BufferReader(data))),
                partition=values,
                bounds=file.bounds,
            )
        )


class _OpenFile:
    """A file in memory; `file_bytes` of the table bounds it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self.bounds: dict[str, tuple[int, int]] = {}
        self._schema = schema
        self._sink = io.BytesIO()
        self._writer = pq.ParquetWriter(self._sink, schema, compression=CODEC)
        self._group: list[pa.Table] = []
        self._group_rows = 0
        self._group_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._sink.tell() + self._group_bytes // 4

    def write(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for name in ("_partition", "_offset", "partition", "offset"):
            if name in rows.schema.names and rows.num_rows:
                found: Any = pc.min_max(rows.column(name)).as_py()
                low, high = self.bounds.get(name, (found["min"], found["max"]))
                self.bounds[name] = (min(low, found["min"]), max(high, found["max"]))
        self._group.append(rows.select(self._schema.names))
        self._group_rows += rows.num_rows
        self._group_bytes += rows.nbytes
        if self._group_rows >= ROW_GROUP_ROWS:
            self._flush()

    def finish(self) -> memoryview:
        self._flush()
        self._writer.close()
        return self._sink.getbuffer()

    def _flush(self) -> None:
        if self._group:
            rows = pa.concat_tables(self._group).cast(self._schema)
            self._writer.write_table(rows, ROW_GROUP_ROWS)
            self._group, self._group_rows, self._group_bytes = [], 0, 0


def footer_bytes(metadata: Any) -> bytes:
    """Return a Parquet file's description as bytes."""
    sink = io.BytesIO()
    metadata.write_metadata_file(sink)
    return sink.getvalue()


def read_footer(data: bytes) -> Any:
    """Read what `footer_bytes` wrote."""
    return pq.read_metadata(io.BytesIO(data))


def read_rows(
    blocking: Blocking, key: str, columns: list[str] | None = None, filters: Any = None
) -> pa.Table:
    """Return the rows of a file, or some of its columns; of a folder only these are read.

    FilesGone if there is no such file any more.
    """
    url = blocking.store.url
    source: Any
    try:
        if url.startswith(FOLDER):
            source = f"{url.removeprefix(FOLDER)}/{key}"
        else:
            source = pa.BufferReader(blocking.run(blocking.store.get(key)))
        return pq.read_table(source, columns=columns, filters=filters, partitioning=None)
    except (FileNotFoundError, NoSuchObject):
        raise FilesGone(
            f"{key} is not in the table any more: it was replaced meanwhile. Read the table again"
        ) from None


def fit_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows of an older file in the columns that the table has now."""
    arrays = []
    stored = list(rows.schema)
    for each in schema:
        index = place_of(stored, each)
        if index is not None:
            column = rows.column(index)
            is_same = column.type.equals(each.type, check_metadata=True)
            arrays.append(column if is_same else fit(column, each.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, each.type))
    return pa.Table.from_arrays(arrays, schema=schema)
